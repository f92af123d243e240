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

/// A request generated with `openssl req -newkey rsa:1024 -sha1 -subj /O=team/CN=e2e`.
const SHA1: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBXDCBxgIBADAdMQ0wCwYDVQQKDAR0ZWFtMQwwCgYDVQQDDANlMmUwgZ8wDQYJ\n\
KoZIhvcNAQEBBQADgY0AMIGJAoGBAKxrY1F53Cerurmujv2aMW50b2PrpMSLO9CZ\n\
2LwVSwRcV9wWNzE/QjWNjBeAq6RVB4h6PMKPd4vMJit1lIodA/z1qhLuUf09PyQt\n\
u/NXCyzWoB61iWx8t3ByW9GodElSX795KGBIbWT00Js5rBoCkLiEBr7ePV5LIQ7l\n\
am+LehCfAgMBAAGgADANBgkqhkiG9w0BAQUFAAOBgQChBZQuChYdyISfY0ebsP1Q\n\
J1TkcU6y5lYAdXI34ecqeEF65mhElkMATG4GyE/bUX2Tad6U+wa8J7J+FmMFuEOi\n\
f3TPDDC8+MH3JcskUzpWwqJhDbmsFPfvZrcki3B2npnkBoiF4OLHNB2uiF0rxVzo\n\
X/FOcaEUiirX2RVHtUQtOA==\n\
-----END CERTIFICATE REQUEST-----\n";

/// Proves objects/csr-validation.
#[test]
fn legacy_signatures_verify() {
    let mut request = SigningRequest::parse(SHA1.as_bytes()).unwrap();
    assert_eq!(request.organizations(), Some(vec!["team".to_owned()]));
    assert_eq!(request.check_signature(), Ok(()));
    let at = request.der.windows(4).position(|bytes| bytes == b"team");
    request.der[at.unwrap()] = b'b';
    let why = "crypto/rsa: verification error";
    assert_eq!(request.check_signature(), Err(why.to_owned()));
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
fn pem_blocks_are_found_like_go() {
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

/// Proves objects/csr-validation.
#[test]
fn certificates_are_checked_like_go() {
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        assert_eq!(certificate::check_all(&der), Ok(()));
        let chain = [der.clone(), der.clone()].concat();
        assert_eq!(certificate::check_all(&chain), Ok(()));
        // No prefix of a certificate is a certificate.
        for end in 1..der.len() {
            assert!(certificate::check_all(&der[..end]).is_err(), "{end}");
        }
        let trailing = [der, vec![0]].concat();
        assert_eq!(
            certificate::check_all(&trailing),
            Err("x509: malformed certificate")
        );
    }
}

/// Encodes a sequence of elements.
fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(0x30, &parts.concat())
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    let length = if length < 0x80 {
        vec![length]
    } else {
        vec![0x81, length]
    };
    [&[tag][..], &length, content].concat()
}

/// Proves objects/csr-validation.
#[test]
fn invalid_der_certificate_gets_go_message() {
    let oid = tagged(0x06, RSA_SHA256);
    let algorithm = sequence(&[&oid]);
    let (version, serial) = (tagged(0xa0, &[2, 1, 2]), tagged(2, &[1]));
    let name = sequence(&[]);
    let at = tagged(0x17, b"260101000000Z");
    let validity = sequence(&[&at, &at]);
    let key = |algorithm: &[u8], bits: &[u8]| sequence(&[algorithm, &tagged(3, bits)]);
    let spki = key(&sequence(&[&tagged(6, &[0x2a, 3])]), &[0, 1]);
    let signature = tagged(3, &[0, 1]);
    let check = |changed: usize, by: &[u8]| {
        let mut parts = [
            &version[..],
            &serial,
            &algorithm,
            &name,
            &validity,
            &name,
            &spki,
            &[],
        ];
        let mut outer = [&algorithm[..], &signature];
        match changed {
            8.. => outer[changed - 8] = by,
            _ => parts[changed] = by,
        }
        let der = sequence(&[&sequence(&parts), outer[0], outer[1]]);
        certificate::check_all(&der)
    };
    assert_eq!(check(0, &version), Ok(()));
    assert_eq!(check(0, &[]), Ok(()));
    let seconds = sequence(&[&tagged(0x18, b"20260101000060Z"), &at]);
    let rsa = sequence(&[&tagged(6, &[42, 134, 72, 134, 247, 13, 1, 1, 1]), &[5, 0]]);
    let curve = sequence(&[&tagged(6, &[42, 134, 72, 206, 61, 2, 1]), &tagged(6, P256)]);
    let extension = |parts: &[&[u8]]| tagged(0xa3, &sequence(&[&sequence(parts)]));
    for (field, by, why) in [
        (0, tagged(0xa0, &[2, 1, 3]), "invalid version"),
        (0, tagged(0xa0, &[2, 1, 0x80]), "malformed version"),
        (1, tagged(2, &[]), "malformed serial number"),
        (1, tagged(2, &[0, 1]), "malformed serial number"),
        (1, tagged(2, &[0x80]), "negative serial number"),
        (2, oid.clone(), "malformed signature algorithm identifier"),
        (
            2,
            name.clone(),
            "inner and outer signature algorithm identifiers don't match",
        ),
        (3, serial.clone(), "malformed issuer"),
        (3, sequence(&[&serial]), "invalid RDNSequence"),
        (4, serial.clone(), "malformed validity"),
        (4, sequence(&[&at]), "unsupported time format"),
        (4, seconds, "malformed GeneralizedTime"),
        (5, serial.clone(), "malformed issuer"),
        (6, serial.clone(), "malformed spki"),
        (6, name.clone(), "malformed public key algorithm identifier"),
        (6, sequence(&[&algorithm]), "malformed subjectPublicKey"),
        (6, key(&rsa, &[0, 1]), "invalid RSA public key"),
        (
            6,
            key(&sequence(&[&tagged(6, RSA_KEY)]), &[0]),
            "RSA key missing NULL parameters",
        ),
        (
            6,
            key(&curve, &[0, 4, 1]),
            "failed to unmarshal elliptic curve point",
        ),
        (7, extension(&[&serial]), "malformed extension OID field"),
        (7, extension(&[&oid]), "malformed extension value field"),
        (8, serial.clone(), "malformed algorithm identifier"),
        (9, tagged(3, &[1, 1]), "malformed signature"),
    ] {
        let (found, why) = (check(field, &by), format!("x509: {why}"));
        assert_eq!(found.map_err(str::to_owned), Err(why), "{field}: {by:?}");
    }
    let empty = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let why = "found CERTIFICATE PEM block containing 0 certificates";
    assert_eq!(check_certificates(empty), Err(why.to_owned()));
    // A length has one encoding.
    assert!(element(&[4, 0x81, 1, 0]).is_none());
    assert!(element(&[4, 0x80, 0, 0]).is_none());
}

const RSA_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

proptest! {
    // Proves errors/status-reasons.
    #[test]
    fn garbage_is_malformed(
        der in prop::collection::vec(any::<u8>(), 0..64),
        cut in 0..200_usize,
    ) {
        let _ = (certificate_subject(&der), certificate::check_all(&der));
        let _ = (SigningRequest { der }).check_signature();
        let key = KeyPair::generate().unwrap();
        let whole = SigningRequest::parse(request("red".into(), &key).as_bytes()).unwrap();
        let der = whole.der[..cut.min(whole.der.len() - 1)].to_vec();
        let cut = SigningRequest { der };
        prop_assert!(cut.organizations().is_none());
    }
}
