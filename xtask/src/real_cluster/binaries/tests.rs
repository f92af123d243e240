use super::*;

#[test]
fn versions_come_from_go_mod() {
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
fn go_releases_compare_numerically() {
    assert!(release("1.25.9") < release("1.26.0"));
    assert!(release("1.26.8") > release("1.26.0"));
    assert!(release("2.0") > release("1.26.0"));
}
