use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

use super::*;

fn request(group: DnValue, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::OrganizationName, group);
    params.serialize_request(key).unwrap().pem().unwrap()
}

/// Proves objects/csr-validation.
#[test]
fn signatures_of_common_keys_verify() {
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let pem = request("red".into(), &key);
        let mut request = SigningRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!(request.organizations(), Some(vec!["red".to_owned()]));
        assert_eq!(request.check_signature(), Ok(()));
        let at = request.der.windows(3).position(|bytes| bytes == b"red");
        request.der[at.unwrap()] = b'b';
        assert_eq!(request.organizations(), Some(vec!["bed".to_owned()]));
        assert!(request.check_signature().is_err());
    }
}

/// Proves objects/csr-validation.
#[test]
fn organizations_are_read_in_any_encoding() {
    let key = KeyPair::generate().unwrap();
    for group in [
        DnValue::Utf8String("red".into()),
        DnValue::PrintableString("red".try_into().unwrap()),
        DnValue::BmpString("red".try_into().unwrap()),
    ] {
        let pem = request(group, &key);
        let request = SigningRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!(request.organizations(), Some(vec!["red".to_owned()]));
    }
}

/// Proves objects/csr-validation.
#[test]
fn pem_blocks_are_found_as_go_finds_them() {
    let labels = |pem: &str| -> Vec<String> {
        let blocks = blocks(pem.as_bytes()).into_iter();
        blocks.map(|block| block.label).collect()
    };
    let a = "-----BEGIN A-----\nMA A=\t\r\n-----END A-----\n";
    assert_eq!(labels(a), ["A"]);
    assert_eq!(labels(&format!("x\n{a}y\n{a}")), ["A", "A"]);
    assert!(labels("-----BEGIN A-----\nMAA=\n-----END B-----\n").is_empty());
    assert!(labels("-----BEGIN A-----\n!\n-----END A-----\n").is_empty());
    assert!(labels("-----BEGIN A-----\nMAA=\n").is_empty());
    let headed = blocks(b"-----BEGIN A-----\nK: v\n\nMAA=\n-----END A-----\n");
    assert!(headed[0].has_headers);
}

proptest! {
    // Proves errors/no-panic.
    #[test]
    fn garbage_is_malformed(
        der in prop::collection::vec(any::<u8>(), 0..64),
        cut in 0..200_usize,
    ) {
        let _ = certificate_subject(&der);
        let _ = (SigningRequest { der }).check_signature();
        let key = KeyPair::generate().unwrap();
        let whole = SigningRequest::parse(request("red".into(), &key).as_bytes()).unwrap();
        let der = whole.der[..cut.min(whole.der.len() - 1)].to_vec();
        let cut = SigningRequest { der };
        prop_assert!(cut.organizations().is_none());
    }
}
