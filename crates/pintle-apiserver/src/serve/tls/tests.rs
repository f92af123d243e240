use std::time::Duration;

use rustls::pki_types::{UnixTime, pem::PemObject};

use super::*;

/// Returns a time in the middle of 2030.
fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_908_000_000))
}

fn accepts(identity: &Identity, certificate: &CertificateDer<'_>) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = identity.client_verifier(provider).unwrap();
    verifier.verify_client_cert(certificate, &[], now()).is_ok()
}

/// Proves auth/identity.
#[test]
fn only_valid_client_certificates_are_accepted() {
    let names = ["localhost".parse().unwrap()];
    let identity = || {
        let authority = crate::ApiServer::builder().build().authority().unwrap();
        Identity::new(&names, authority).unwrap()
    };
    let (ours, other) = (identity(), identity());
    let (pem, _) = ours.issue("alice", Some("red")).unwrap();
    let alice = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert!(accepts(&ours, &alice));
    assert!(!accepts(&other, &alice), "issued by another authority");
    assert!(!accepts(&ours, &ours.certificate), "a server certificate");

    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    for (year, good) in [(2029, false), (2031, true)] {
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = ours.authority.issue(&params, &key).unwrap();
        assert_eq!(accepts(&ours, signed.der()), good, "until {year}");
    }
}
