//! The certificate authority of a server.
//!
//! It signs the certificates of its listeners and of the users of their kubeconfigs, and
//! certificate signing requests that a controller approves. Every listener trusts the client
//! certificates that it has signed.

use std::{fmt, ops::Range, sync::Arc};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    KeyUsagePurpose, SigningKey,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;

use crate::{
    ApiServer,
    x509::{
        SigningRequest,
        issue::{self, Terms},
    },
};

/// Why a certificate authority cannot be created, or cannot sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The key or the certificate could not be created or signed.
    #[error("failed to create the certificate: {0}")]
    Certificate(String),
    /// The request is malformed, or its signature does not match its key.
    #[error("unable to verify certificate request signature: {0}")]
    Request(String),
}

fn failed(error: impl fmt::Display) -> AuthorityError {
    AuthorityError::Certificate(error.to_string())
}

/// The certificate authority of a server; see [`ApiServer::authority`]. Clones are handles to the
/// same authority.
#[derive(Clone)]
pub struct Authority(Arc<CertifiedIssuer<'static, KeyPair>>);

impl ApiServer {
    /// Returns the certificate authority of this server, creating it on first use.
    ///
    /// Clients with a certificate that it has signed are authenticated by every listener: the
    /// common name is the user, the organizations are the groups.
    ///
    /// # Errors
    ///
    /// Fails if the system provides no randomness.
    ///
    /// # Examples
    ///
    /// ```
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let authority = server.authority()?;
    /// assert!(authority.pem().starts_with("-----BEGIN CERTIFICATE-----"));
    /// # Ok::<(), pintle_apiserver::AuthorityError>(())
    /// ```
    pub fn authority(&self) -> Result<Authority, AuthorityError> {
        let authority = self.api.authority.get_or_init(Authority::new);
        authority.clone()
    }
}

impl Authority {
    fn new() -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "pintle-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        Ok(Self(Arc::new(issuer)))
    }

    /// Returns the certificate of the authority in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> &CertificateDer<'static> {
        self.0.der()
    }

    /// Signs a certificate for a key.
    pub(crate) fn issue(
        &self,
        params: &CertificateParams,
        key: &KeyPair,
    ) -> Result<Certificate, AuthorityError> {
        params.signed_by(key, &self.0).map_err(failed)
    }

    /// Signs a request and returns the certificate in PEM, with these usages and this validity.
    ///
    /// Subject, key and alternative names come from the request; the caller must check that its
    /// subject may have such a certificate. Usages are named as in a `CertificateSigningRequest`.
    ///
    /// # Errors
    ///
    /// Fails if the request is malformed or not signed with its own key, or if the system provides
    /// no randomness.
    pub fn sign(
        &self,
        request: &SigningRequest,
        usages: &[String],
        validity: Range<Timestamp>,
    ) -> Result<String, AuthorityError> {
        request.check_signature().map_err(AuthorityError::Request)?;
        let mut serial = [0; 16];
        SystemRandom::new().fill(&mut serial).map_err(failed)?;
        let terms = Terms {
            usages,
            not_before: validity.start,
            not_after: validity.end,
            serial,
        };
        let signed = issue::to_be_signed(request, self.der(), &terms);
        let signed = signed.ok_or_else(|| {
            AuthorityError::Request("x509: malformed certificate request".to_owned())
        })?;
        let signature = self.0.key().sign(&signed).map_err(failed)?;
        let der = issue::certificate(&signed, &signature);
        Ok(pem("CERTIFICATE", &der))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Encodes a block of a PEM file.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + &format!("-----END {label}-----\n")
}
