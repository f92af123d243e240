//! The bearer token of a listener.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::api::User;

/// A secret. Drawn from the operating system, never from the server's seed: a run may replay, its
/// secrets may not.
#[derive(Clone)]
pub(super) struct Token(Arc<str>);

impl Token {
    pub(super) fn new() -> Result<Self, String> {
        let mut bytes = [0_u8; 32];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| "no randomness for a token".to_owned())?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes).into()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Who sends these headers, if they carry the token. The time this takes says nothing about how
    /// much of a wrong token was right.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let value = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        bool::from(token.ct_eq(self.0.as_bytes())).then(User::admin)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn only_the_token_itself_opens() {
        let token = Token::new().unwrap();
        assert!(
            token
                .user(&headers(&format!("Bearer {}", token.reveal())))
                .is_some()
        );
        for wrong in ["", "Bearer ", "Bearer x", "Basic Zm9v", "Bear"] {
            assert!(token.user(&headers(wrong)).is_none(), "{wrong:?}");
        }
        let longer = format!("Bearer {}x", token.reveal());
        assert!(token.user(&headers(&longer)).is_none());
        assert!(token.user(&HeaderMap::new()).is_none());
        assert!(!format!("{token:?}").contains(token.reveal()));
    }
}
