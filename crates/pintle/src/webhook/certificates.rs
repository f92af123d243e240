//! The certificate of a webhook server.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::Injection;

/// How often files are checked for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The certificate or key is not valid.
    #[error("invalid certificate or key: {0}")]
    Invalid(String),
}

fn invalid(error: impl fmt::Display) -> CertificateError {
    CertificateError::Invalid(error.to_string())
}

/// The certificate and key of a webhook server.
#[must_use]
#[derive(Debug)]
pub struct Certificates {
    current: Arc<Current>,
    files: Option<Files>,
    /// The CA bundle of a generated certificate, in PEM.
    authority: Option<String>,
    pub(super) injections: Vec<Injection>,
}

/// The files of a certificate.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The contents that the current certificate was parsed from. The files may change before a
    /// server runs, and while it is restarted.
    parsed: Mutex<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    fn read(&self) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
        Ok((read(&self.certificate)?, read(&self.key)?))
    }
}

impl fmt::Debug for Files {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = (&self.certificate, &self.key);
        f.debug_tuple("Files").field(&paths).finish()
    }
}

/// The certificate in use.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

impl Certificates {
    /// Reads a certificate chain and a key from PEM files, such as those of a mounted Secret of
    /// type `kubernetes.io/tls`. A running server reloads them when they change.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or is invalid, or if the key does not belong to the
    /// certificate.
    pub fn files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, CertificateError> {
        let (certificate, key) = (certificate.into(), key.into());
        let parsed = (read(&certificate)?, read(&key)?);
        let current = parse(&parsed.0, &parsed.1)?;
        Ok(Self {
            current: Arc::new(Current(RwLock::new(Arc::new(current)))),
            files: Some(Files {
                certificate,
                key,
                parsed: Mutex::new(parsed),
            }),
            authority: None,
            injections: Vec::new(),
        })
    }

    /// Generates a certificate authority and a certificate for these DNS names or addresses. Both
    /// exist only in this process; [`inject`](Self::inject) writes the authority where the API
    /// server reads it.
    ///
    /// The API server calls a Service under the name `NAME.NAMESPACE.svc`.
    ///
    /// # Errors
    ///
    /// Fails if a name is not valid.
    pub fn self_signed<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "pintle-webhook-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(invalid)?;
        let authority = CertifiedIssuer::self_signed(params, key).map_err(invalid)?;
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).map_err(invalid)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "pintle-webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(invalid)?;
        let certificate = params.signed_by(&key, &authority).map_err(invalid)?;
        let current = parse(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())?;
        Ok(Self {
            current: Arc::new(Current(RwLock::new(Arc::new(current)))),
            files: None,
            authority: Some(authority.pem()),
            injections: Vec::new(),
        })
    }

    /// Writes the CA bundle of a self-signed certificate into a configuration while a manager runs
    /// the server.
    ///
    /// Replicas that each generate a certificate cannot share a configuration: use
    /// [`files`](Self::files) instead.
    pub fn inject(mut self, injection: Injection) -> Self {
        self.injections.push(injection);
        self
    }

    /// Returns the CA bundle of a self-signed certificate, in PEM.
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Returns the TLS configuration of the server. It always uses the newest certificate.
    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&self.current) as _;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the files again whenever they change. Never ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the certificate is replaced as a whole.
    pub(super) async fn reload(&self) {
        let Some(files) = &self.files else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            let found = match files.read() {
                Ok(found) if found == *files.parsed.lock() => continue,
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "failed to read the webhook certificate; keeping the current one");
                    continue;
                }
            };
            match parse(&found.0, &found.1) {
                Ok(new) => {
                    *self.current.0.write() = Arc::new(new);
                    tracing::info!("reloaded the webhook certificate");
                }
                // The two files may have been read between their writes, so try again.
                Err(error) => {
                    tracing::warn!(%error, "invalid webhook certificate; keeping the current one");
                    continue;
                }
            }
            *files.parsed.lock() = found;
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|error| CertificateError::Read {
        path: path.to_owned(),
        error,
    })
}

fn parse(certificates: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(invalid)?;
    if chain.is_empty() {
        return Err(invalid("the file has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(invalid)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(invalid)
}

#[cfg(test)]
mod tests;
