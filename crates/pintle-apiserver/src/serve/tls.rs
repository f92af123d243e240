//! A certificate authority and a server certificate, made when the server starts to listen.

use std::{net::IpAddr, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::ServeError;

/// Names every certificate holds, as clients inside and outside of a cluster use them.
const NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Who the server is.
pub(super) struct Identity {
    pub(super) authority_pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

fn failed(error: impl std::fmt::Display) -> ServeError {
    ServeError::Certificate(error.to_string())
}

impl Identity {
    /// A fresh authority and a certificate for `address`.
    pub(super) fn new(address: IpAddr) -> Result<Self, ServeError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "pintle-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?)
            .map_err(failed)?;

        let names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let loopback = [
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ];
        let other = (!loopback.contains(&address)).then_some(address);
        params
            .subject_alt_names
            .extend(loopback.into_iter().chain(other).map(SanType::IpAddress));
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &authority).map_err(failed)?;
        Ok(Self {
            authority_pem: authority.pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// TLS 1.2 and 1.3, HTTP/2 preferred.
    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
