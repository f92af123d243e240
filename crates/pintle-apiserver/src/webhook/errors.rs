//! Why a webhook call failed, in client-go's words.

use std::io;

use rustls::CertificateError;

/// Why a webhook could not be called.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The request did not get a response.
    #[error("Post \"{url}\": {why}")]
    Transport { url: String, why: String },
    /// The response has an error status code.
    #[error("{0}")]
    Status(String),
    /// The response is not a review.
    #[error("{0}")]
    Malformed(String),
    /// Code in this process failed.
    #[error("{0}")]
    Local(String),
}

/// client-go's message for an exceeded deadline.
pub(super) const DEADLINE: &str = "context deadline exceeded";

impl CallError {
    pub(super) fn transport(url: &str, why: impl Into<String>) -> Self {
        Self::Transport {
            url: url.to_owned(),
            why: why.into(),
        }
    }

    /// Describes a status code as client-go does, with the body if it is text.
    pub(super) fn status(code: u16, body: &[u8], is_text: bool) -> Self {
        /// The fields of a Status that matter here.
        #[derive(serde::Deserialize)]
        struct Failed {
            kind: String,
            status: String,
            message: String,
        }
        // If the body is a Status, its message is enough.
        let message = serde_json::from_slice(body)
            .ok()
            .filter(|failed: &Failed| failed.kind == "Status" && failed.status == "Failure")
            .map(|failed| failed.message);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            return Self::Status(message);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(2048)]);
        let text = if is_text { text.trim() } else { "unknown" };
        Self::Status(match code {
            400 => "the server rejected our request for an unknown reason".to_owned(),
            401 => "the server has asked for the client to provide credentials".to_owned(),
            404 => "the server could not find the requested resource".to_owned(),
            405 => "the server does not allow this method on the requested resource".to_owned(),
            406 if text.is_empty() || text == "unknown" => {
                "the server was unable to respond with a content type that the client supports"
                    .to_owned()
            }
            403 | 406 | 415 => text.to_owned(),
            409 => "the server reported a conflict".to_owned(),
            422 => "the server rejected our request due to an error in our request".to_owned(),
            429 => "the server has received too many requests and has asked us to try again later"
                .to_owned(),
            503 => "the server is currently unable to handle the request".to_owned(),
            504 => "the server was unable to return a response in the time allotted, but may \
                    still be processing the request"
                .to_owned(),
            500.. => format!(
                "an error on the server ({text:?}) has prevented the request from succeeding"
            ),
            code => format!(
                "the server responded with the status code {code} but did not return more information"
            ),
        })
    }
}

/// Describes a failure to connect as Go does.
pub(super) fn connect_error(address: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {why}")
}

/// Describes a failed handshake as Go does.
pub(super) fn tls_error(name: &str, error: &io::Error) -> String {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            let why = match problem {
                // An authority of the same name signed it with another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "certificate signed by unknown authority".to_owned()
                }
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => {
                    "certificate has expired or is not yet valid".to_owned()
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    format!("certificate is not valid for {name}")
                }
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {why}")
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        Some(other) => format!("remote error: tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}
