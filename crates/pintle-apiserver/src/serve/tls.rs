//! The server certificate of a listener, and the client certificates it trusts.

use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{ServeError, certificate_names::Name};
use crate::authority::Authority;

/// The certificate of a listener, and the authority that signed it.
pub(super) struct Identity {
    pub(super) authority_pem: String,
    authority: Authority,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

fn failed(error: impl std::fmt::Display) -> ServeError {
    ServeError::Certificate(error.to_string())
}

impl Identity {
    /// Creates a server certificate for these names.
    pub(super) fn new(names: &[Name], authority: Authority) -> Result<Self, ServeError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        for name in names {
            params.subject_alt_names.push(match name {
                Name::Address(address) => SanType::IpAddress(*address),
                Name::Dns(name) => SanType::DnsName(name.as_str().try_into().map_err(failed)?),
            });
        }
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = authority.issue(&params, &key).map_err(failed)?;
        Ok(Self {
            authority_pem: authority.pem(),
            authority,
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// Issues a client certificate and its key, both in PEM.
    pub(super) fn issue(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<(String, String), ServeError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, user);
        if let Some(group) = group {
            name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = self.authority.issue(&params, &key).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Accepts certificates of our authority. Clients without one need a token.
    fn client_verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, ServeError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).map_err(failed)?;
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(failed)
    }

    /// Returns the TLS configuration: TLS 1.2 and 1.3, HTTP/2 preferred.
    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let clients = self.client_verifier(Arc::clone(&provider))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![self.certificate.clone()], key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests;
