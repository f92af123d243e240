use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::testing::Log;

/// Certificate files in a directory that is removed on drop.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn paths(&self) -> (PathBuf, PathBuf) {
        (self.0.join("tls.crt"), self.0.join("tls.key"))
    }

    /// Writes a new certificate and key and returns the certificate.
    fn renew(&self) -> CertificateDer<'static> {
        let (certificate, key) = pair();
        self.write(&certificate.pem(), &key.serialize_pem());
        certificate.der().clone()
    }

    fn write(&self, certificate: &str, key: &str) {
        let paths = self.paths();
        fs::write(paths.0, certificate).unwrap();
        fs::write(paths.1, key).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pair() -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["webhook.test".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap(), key)
}

/// Performs a TLS handshake without a socket and returns the server's certificate. Fails if the
/// client, which trusts only `trusted`, rejects it.
async fn handshake(
    server: &Arc<ServerConfig>,
    trusted: &CertificateDer<'static>,
) -> Result<CertificateDer<'static>, io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = tokio::io::duplex(16 * 1024);
    let acceptor = TlsAcceptor::from(Arc::clone(server));
    let name = ServerName::try_from("webhook.test").unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let (connected, _accepted) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    let connected = connected?;
    let (_, session) = connected.get_ref();
    Ok(session.peer_certificates().unwrap()[0].clone())
}

/// Proves webhook-server/reload.
#[tokio::test(start_paused = true)]
async fn new_handshakes_use_replaced_files() {
    let log = Log::capture();
    let mut seen = 0;
    // Returns what was logged since the last call.
    let mut news = || {
        let text = log.text().split_off(seen);
        seen += text.len();
        text
    };
    let files = Files::new("pintle-certificates");
    let first = files.renew();
    let (certificate, key) = files.paths();
    let certificates = Certificates::files(&certificate, &key).unwrap();
    let config = certificates.server_config().unwrap();
    let work = async {
        let pass = || tokio::time::sleep(2 * RELOAD_EVERY);
        assert_eq!(handshake(&config, &first).await.unwrap(), first);
        pass().await;
        assert_eq!(news(), "", "unchanged files are not reloaded");

        let second = files.renew();
        assert_eq!(handshake(&config, &first).await.unwrap(), first);
        pass().await;
        assert_eq!(handshake(&config, &second).await.unwrap(), second);
        assert!(handshake(&config, &first).await.is_err());
        let lines = news();
        assert_eq!(lines.matches("reloaded the webhook certificate").count(), 1);

        // A certificate without its key, as between two writes; then no certificate at all.
        let (third, third_key) = pair();
        fs::write(&certificate, third.pem()).unwrap();
        pass().await;
        assert_eq!(handshake(&config, &second).await.unwrap(), second);
        assert!(news().contains("keeping the current one"));
        files.write("", &third_key.serialize_pem());
        pass().await;
        assert_eq!(handshake(&config, &second).await.unwrap(), second);
        assert!(news().contains("the file has no certificate"));
        fs::remove_file(&certificate).unwrap();
        pass().await;
        assert_eq!(handshake(&config, &second).await.unwrap(), second);
        assert!(news().contains("failed to read the webhook certificate"));

        fs::write(&certificate, third.pem()).unwrap();
        pass().await;
        let third = third.der().clone();
        assert_eq!(handshake(&config, &third).await.unwrap(), third);
    };
    tokio::select! {
        biased;
        () = work => {}
        () = certificates.reload() => unreachable!("reloading never ends"),
    }
}

/// Proves webhook-server/reload.
#[test]
fn unusable_files_are_typed_errors() {
    let files = Files::new("pintle-unusable");
    let (certificate, key) = files.paths();
    let error = Certificates::files(&certificate, &key).unwrap_err();
    assert!(matches!(error, CertificateError::Read { path, .. } if path == certificate));
    let ((one, _), (_, other)) = (pair(), pair());
    files.write(&one.pem(), &other.serialize_pem());
    let error = Certificates::files(&certificate, &key).unwrap_err();
    assert!(matches!(error, CertificateError::Invalid(_)), "{error}");
    files.write("", &other.serialize_pem());
    let error = Certificates::files(&certificate, &key).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid certificate or key: the file has no certificate"
    );
}

/// Proves webhook-server/reload.
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
    // A restarted server compares the files with the certificate in use.
    let third = renew();
    let reloading = tokio::time::timeout(RELOAD_EVERY * 2, certificates.reload());
    assert!(reloading.await.is_err());
    assert_eq!(used(), third);
    fs::remove_dir_all(&directory).unwrap();
}
