//! The TLS configuration of a call: only the CA bundle of the webhook is trusted.

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

/// The certificates that a webhook may have, in PEM. Parsed on first use.
#[derive(Clone)]
pub(super) struct Roots {
    bundle: Arc<Vec<u8>>,
    parsed: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roots").field(&self.bundle.len()).finish()
    }
}

impl Roots {
    pub(super) fn new(bundle: Vec<u8>) -> Self {
        Self {
            bundle: Arc::new(bundle),
            parsed: Arc::default(),
        }
    }

    /// Returns the PEM text.
    pub(super) fn bundle(&self) -> &Arc<Vec<u8>> {
        &self.bundle
    }

    /// Returns the client configuration that trusts these certificates.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.parsed
            .get_or_init(|| client_config(&self.bundle))
            .clone()
    }
}

fn client_config(bundle: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let mut pinned = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots
            .add(certificate.clone())
            .map_err(|error| error.to_string())?;
        pinned.push(certificate);
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
