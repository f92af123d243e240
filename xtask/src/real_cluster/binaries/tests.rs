use super::*;

#[test]
fn go_mod_pins_every_version_once() {
    let versions = Versions::pinned().unwrap();
    assert_eq!(versions.kubernetes, "v1.36.4");
    assert_eq!(versions.etcd, "v3.6.8");
    assert!(
        versions
            .link_flags()
            .contains("-X k8s.io/client-go/pkg/version.gitMinor=36")
    );
}

#[test]
fn older_go_is_rejected() {
    assert!(release("1.25.9") < release("1.26.0"));
    assert!(release("1.26.8") > release("1.26.0"));
    assert!(release("2.0") > release("1.26.0"));
}
