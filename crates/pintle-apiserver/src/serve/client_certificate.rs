//! Maps a client certificate to a user: the common name is the user, organizations are groups.
//!
//! TLS has verified the certificate by now. Only the subject is parsed from its DER; a hash of the
//! whole certificate becomes the credential id.

use std::{collections::BTreeMap, fmt::Write};

use ring::digest::{SHA256, digest};

use crate::api::{AUTHENTICATED, CREDENTIAL, User};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Returns the user of a certificate, or `None` if it has no common name.
pub(super) fn user(certificate: &[u8]) -> Option<User> {
    let credential = fingerprint(certificate);
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    // An optional version, then serial number, algorithm, issuer, validity, subject.
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (tag, mut names, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let mut name = None;
    let mut groups = Vec::new();
    while !names.is_empty() {
        let (tag, mut set, rest) = element(names)?;
        names = rest;
        while tag == SET && !set.is_empty() {
            let (_, pair, rest) = element(set)?;
            set = rest;
            let (tag, kind, value) = element(pair)?;
            let (_, value, _) = element(value)?;
            let value = std::str::from_utf8(value).ok()?.to_owned();
            match (tag, kind) {
                (OID, COMMON_NAME) => name = Some(value),
                (OID, ORGANIZATION) => groups.push(value),
                _ => {}
            }
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

/// Splits off the first DER element: its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        let length = bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests;
