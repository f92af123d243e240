//! The TLS configuration of a call. Only the CA bundle of the webhook is trusted; without a bundle,
//! the certificates of the system are.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

/// The certificates that a webhook is verified with, in PEM. Parsed on first use. If the bundle is
/// empty, the system's certificates are used.
#[derive(Clone)]
pub(crate) struct Roots {
    bundle: Arc<Vec<u8>>,
    parsed: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roots").field(&self.bundle.len()).finish()
    }
}

impl Roots {
    pub(crate) fn new(bundle: Vec<u8>) -> Self {
        // Upstream ignores a bundle that contains only whitespace.
        let bundle = if bundle.trim_ascii().is_empty() {
            Vec::new()
        } else {
            bundle
        };
        Self {
            bundle: Arc::new(bundle),
            parsed: Arc::default(),
        }
    }

    /// Returns the PEM text.
    pub(super) fn bundle(&self) -> &Arc<Vec<u8>> {
        &self.bundle
    }

    /// Returns true if the bundle is empty, so that the system's certificates are used.
    pub(super) fn is_system(&self) -> bool {
        self.bundle.is_empty()
    }

    /// Returns the client configuration that trusts these certificates.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let parse = || {
            if self.is_system() {
                return client_config(system_certificates(), true);
            }
            let certificates = CertificateDer::pem_slice_iter(&self.bundle);
            let certificates: Result<Vec<_>, _> = certificates.collect();
            client_config(certificates.map_err(|error| error.to_string())?, false)
        };
        self.parsed.get_or_init(parse).clone()
    }
}

/// Loads the certificates that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_certificates() -> Vec<CertificateDer<'static>> {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "failed to load system certificates; webhooks without a caBundle \
            may be rejected");
    }
    loaded.certs
}

/// Trusts these certificates. If `lenient`, skips invalid ones.
fn client_config(
    certificates: Vec<CertificateDer<'static>>,
    lenient: bool,
) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let mut pinned = Vec::new();
    for certificate in certificates {
        match roots.add(certificate.clone()) {
            Ok(()) => pinned.push(certificate),
            Err(_) if lenient => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = if roots.is_empty() {
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        let verifier = Verifier { verifier, pinned };
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Verifies like webpki, and also accepts a certificate of the bundle itself that is marked as an
/// authority. Go accepts such self-signed certificates, and many webhooks have them.
#[derive(Debug)]
struct Verifier {
    verifier: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.pinned.iter().any(|pinned| pinned == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
