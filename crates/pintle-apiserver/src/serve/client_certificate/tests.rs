use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;

fn certificate(user: &str, group: Option<&str>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

#[test]
fn common_name_is_the_user_and_organizations_are_groups() {
    let alice = user(&certificate("alice", Some("red"))).unwrap();
    assert_eq!(alice.name, "alice");
    assert_eq!(alice.groups, ["red", "system:authenticated"]);
    let [credential] = &alice.extra[CREDENTIAL][..] else {
        panic!("one credential");
    };
    assert!(credential.starts_with("X509SHA256="));
    assert_eq!(credential.len(), "X509SHA256=".len() + 64);
    let again = user(&certificate("alice", Some("red"))).unwrap();
    assert_ne!(again.extra, alice.extra, "another certificate");
    assert!(user(&certificate("", None)).is_none());
}

#[test]
fn certificate_may_have_several_organizations() {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(DnType::OrganizationName, "red");
    name.push(DnType::CommonName, "alice");
    // rcgen allows each type once, so give the second one by its OID.
    name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "blue");
    let key = KeyPair::generate().unwrap();
    let alice = user(params.self_signed(&key).unwrap().der()).unwrap();
    assert_eq!(alice.name, "alice");
    assert_eq!(alice.groups, ["red", "blue", "system:authenticated"]);
}

proptest! {
    #[test]
    fn arbitrary_der_never_panics(at in 0_usize..400, byte in any::<u8>(), cut in 0_usize..400) {
        let mut der = certificate("alice", Some("red"));
        if let Some(place) = der.get_mut(at) {
            *place = byte;
        }
        let end = cut.min(der.len());
        let _ = user(&der[..end]);
        let _ = user(&der);
    }
}
