//! JSON Web Tokens, and the key that signs them.
//!
//! A token is three parts in base64, joined by dots: a header that names the key, the claims, and
//! the signature (ES256) of the first two.

use std::fmt;

use base64::{
    Engine, alphabet,
    engine::{
        GeneralPurpose,
        general_purpose::{NO_PAD, URL_SAFE_NO_PAD},
    },
};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
        UnparsedPublicKey,
    },
};
use serde_json::{Value, json};

/// The prefix of a P-256 point in a `SubjectPublicKeyInfo`.
const KEY_INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Also decodes base64 with non-zero trailing bits.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

/// The key could not be generated or used.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("failed to sign a token")]
pub(crate) struct Unsigned;

/// Why a string is not a token of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It is not a token, or another issuer's token.
    Unknown,
    /// It names an unknown key.
    NoKey,
    /// The signature is invalid.
    Signature,
}

/// The signing key of the server. It is generated with the operating system's randomness, never
/// from the server's seed: a run can be replayed, its secrets cannot.
pub(super) struct Key {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}

impl Key {
    pub(super) fn generate() -> Result<Self, Unsigned> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| Unsigned)?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random)
            .map_err(|_| Unsigned)?;
        let public = [&KEY_INFO, pair.public_key().as_ref()].concat();
        let id = encode(digest(&SHA256, &public));
        Ok(Self { pair, random, id })
    }

    /// Returns a token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, Unsigned> {
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let signed = format!("{}.{}", encode(header), encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        let signature = signature.map_err(|_| Unsigned)?;
        Ok(format!("{signed}.{}", encode(signature)))
    }

    /// Verifies a token of `issuer` and returns its claims.
    pub(super) fn claims(&self, token: &str, issuer: &str) -> Result<Value, Foreign> {
        let parts: Vec<&str> = token.split('.').collect();
        let [header, payload, signature] = parts[..] else {
            return Err(Foreign::Unknown);
        };
        // Not verified yet: this only decides which error to return.
        let claims = decode(payload).filter(|claims| claims["iss"] == issuer);
        let (Some(claims), Some(header_value)) = (claims, decode(header)) else {
            return Err(Foreign::Unknown);
        };
        let Ok(signature_bytes) = LENIENT.decode(signature) else {
            return Err(Foreign::Unknown);
        };
        match header_value["kid"].as_str() {
            None | Some("") => {}
            Some(id) if id == self.id => {}
            Some(_) => return Err(Foreign::NoKey),
        }
        // Accept only one encoding of the signature, so that each token has a single spelling.
        if header_value["alg"] != "ES256" || encode(&signature_bytes) != signature {
            return Err(Foreign::Signature);
        }
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        public
            .verify(format!("{header}.{payload}").as_bytes(), &signature_bytes)
            .map_err(|_| Foreign::Signature)?;
        Ok(claims)
    }

    /// Returns the public key as a JSON Web Key.
    pub(super) fn public(&self) -> Value {
        // One byte for the format, then the two coordinates.
        let point = self.pair.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": encode(x), "y": encode(y)})
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[cfg(test)]
mod tests;
