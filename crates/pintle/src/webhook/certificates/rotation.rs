use super::*;

/// Proves webhook/reload.
#[tokio::test(start_paused = true)]
async fn files_replaced_before_serving_are_noticed() {
    let directory = std::env::temp_dir().join(format!("pintle-rotation-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let renew = || {
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["webhook.test".to_owned()]).unwrap();
        let made = params.self_signed(&pair).unwrap();
        fs::write(&certificate, made.pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        made.der().clone()
    };
    let first = renew();
    let certificates = Certificates::files(&certificate, &key).unwrap();
    let used = || certificates.current.0.read().cert[0].clone();
    assert_eq!(used(), first);
    // The server starts later, for example after an election.
    let second = renew();
    let reloading = tokio::time::timeout(RELOAD_EVERY * 2, certificates.reload());
    assert!(reloading.await.is_err());
    assert_eq!(used(), second);
    // A restarted server continues with what is in use.
    let third = renew();
    let reloading = tokio::time::timeout(RELOAD_EVERY * 2, certificates.reload());
    assert!(reloading.await.is_err());
    assert_eq!(used(), third);
    fs::remove_dir_all(&directory).unwrap();
}
