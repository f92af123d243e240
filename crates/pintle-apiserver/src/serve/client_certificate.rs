//! Maps a client certificate to a user: the common name is the user, organizations are groups.
//!
//! TLS has already verified the certificate. Only the subject is parsed from its DER; a hash of the
//! whole certificate becomes the credential id.

use std::{collections::BTreeMap, fmt::Write};

use ring::digest::{SHA256, digest};

use crate::{
    api::{AUTHENTICATED, CREDENTIAL, User},
    x509::{COMMON_NAME, ORGANIZATION, certificate_subject},
};

/// Returns the user of a certificate, or `None` if it has no common name or cannot be parsed.
pub(super) fn user(certificate: &[u8]) -> Option<User> {
    let credential = fingerprint(certificate);
    let mut name = None;
    let mut groups = Vec::new();
    for (kind, value) in certificate_subject(certificate)? {
        match kind {
            COMMON_NAME => name = Some(value),
            ORGANIZATION => groups.push(value),
            _ => {}
        }
    }
    groups.push(AUTHENTICATED.to_owned());
    let name = name.filter(|name| !name.is_empty())?;
    Some(User {
        name,
        groups,
        extra: BTreeMap::from([(CREDENTIAL.to_owned(), vec![credential])]),
        ..User::default()
    })
}

fn fingerprint(certificate: &[u8]) -> String {
    let mut text = "X509SHA256=".to_owned();
    for byte in digest(&SHA256, certificate).as_ref() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests;
