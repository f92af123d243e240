//! The bearer token of a listener's administrator.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// A secret token. It is generated with the operating system's randomness, never from the server's
/// seed: runs may be replayed, secrets may not.
#[derive(Clone)]
pub(super) struct Token(Arc<str>);

impl Token {
    pub(super) fn new() -> Result<Self, String> {
        let mut bytes = [0_u8; 32];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| "the operating system provided no randomness".to_owned())?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes).into()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// Compares in constant time.
    pub(super) fn is(&self, token: &str) -> bool {
        token.as_bytes().ct_eq(self.0.as_bytes()).into()
    }
}

/// Returns the bearer token in the headers, valid or not.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let mut parts = value.trim().splitn(3, ' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty()).then_some(token)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests;
