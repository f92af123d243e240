//! Certificates for signing requests, as kube-controller-manager issues them: subject, key and
//! alternative names come from the request; usages and validity come from the signer.

use jiff::{Timestamp, tz::TimeZone};

use super::{
    BIT_STRING, BOOLEAN, ECDSA_SHA256, OCTET_STRING, OID, SEQUENCE, SigningRequest, VERSION,
    expect, signed,
};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const EXTENSIONS: u8 = 0xa3;

const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// `anyExtendedKeyUsage`.
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
/// The prefix of the other extended usages.
const USAGES: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];

/// The bit of each key usage, counted from the first.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// The last arc of each extended key usage under [`USAGES`].
const EXTENDED_USAGES: [(&str, u8); 10] = [
    ("server auth", 1),
    ("client auth", 2),
    ("code signing", 3),
    ("email protection", 4),
    ("s/mime", 4),
    ("ipsec end system", 5),
    ("ipsec tunnel", 6),
    ("ipsec user", 7),
    ("timestamping", 8),
    ("ocsp signing", 9),
];

/// What the signer decides: usages, validity and serial number.
pub(crate) struct Terms<'a> {
    pub(crate) usages: &'a [String],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) serial: [u8; 16],
}

/// Returns the part of a certificate that its issuer signs with ECDSA and SHA-256, or `None` if the
/// request or the issuer's certificate is malformed.
pub(crate) fn to_be_signed(
    request: &SigningRequest,
    issuer: &[u8],
    terms: &Terms<'_>,
) -> Option<Vec<u8>> {
    let parts = signed(&request.der)?;
    let mut serial = terms.serial;
    // Positive, and not encoded with leading zeros.
    serial[0] = serial[0] & 0x7f | 0x40;
    let mut extensions = key_usage(terms.usages);
    extensions.extend(extended_key_usage(terms.usages));
    extensions.extend(extension(BASIC_CONSTRAINTS, true, &der(SEQUENCE, &[])));
    extensions.extend(request.alternative_name_extension()?);
    let validity = [time(terms.not_before), time(terms.not_after)].concat();
    let fields = [
        der(VERSION, &der(INTEGER, &[2])),
        der(INTEGER, &serial),
        algorithm(),
        der(SEQUENCE, subject(issuer)?),
        der(SEQUENCE, &validity),
        der(SEQUENCE, parts.subject),
        der(SEQUENCE, parts.public_key),
        der(EXTENSIONS, &der(SEQUENCE, &extensions)),
    ];
    Some(der(SEQUENCE, &fields.concat()))
}

/// Returns a certificate in DER, given the signed part and the signature.
pub(crate) fn certificate(signed: &[u8], signature: &[u8]) -> Vec<u8> {
    let signature = [&[0], signature].concat();
    let fields = [signed, &algorithm(), &der(BIT_STRING, &signature)].concat();
    der(SEQUENCE, &fields)
}

/// Returns the contents of a certificate's subject.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (mut fields, _) = expect(SEQUENCE, certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = super::element(fields)?.2;
    }
    for _ in 0..4 {
        fields = super::element(fields)?.2;
    }
    Some(expect(SEQUENCE, fields)?.0)
}

fn algorithm() -> Vec<u8> {
    der(SEQUENCE, &der(OID, ECDSA_SHA256))
}

fn key_usage(usages: &[String]) -> Vec<u8> {
    let known = KEY_USAGES.iter();
    let set = known.filter(|(name, _)| usages.iter().any(|usage| usage == name));
    let bits = set.fold(0_u16, |bits, (_, bit)| bits | 0x8000 >> bit);
    if bits == 0 {
        return Vec::new();
    }
    let unused = bits.trailing_zeros();
    let bytes = bits.to_be_bytes();
    let bytes = if unused >= 8 { &bytes[..1] } else { &bytes[..] };
    let unused = u8::try_from(unused % 8).unwrap_or_default();
    let value = der(BIT_STRING, &[&[unused], bytes].concat());
    extension(KEY_USAGE, true, &value)
}

fn extended_key_usage(usages: &[String]) -> Vec<u8> {
    let has = |name: &str| usages.iter().any(|usage| usage == name);
    let mut arcs: Vec<u8> = EXTENDED_USAGES
        .iter()
        .filter(|(name, _)| has(name))
        .map(|(_, arc)| *arc)
        .collect();
    arcs.dedup();
    let mut wanted = Vec::new();
    if has("any") {
        wanted.extend(der(OID, ANY_USAGE));
    }
    for arc in arcs {
        wanted.extend(der(OID, &[USAGES, &[arc]].concat()));
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    extension(EXTENDED_KEY_USAGE, false, &der(SEQUENCE, &wanted))
}

fn extension(kind: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let mut fields = der(OID, kind);
    if critical {
        fields.extend(der(BOOLEAN, &[0xff]));
    }
    fields.extend(der(OCTET_STRING, value));
    der(SEQUENCE, &fields)
}

fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    let (tag, year) = if (1950..2050).contains(&at.year()) {
        (UTC_TIME, "%y")
    } else {
        (GENERALIZED_TIME, "%Y")
    };
    let text = at.strftime(&format!("{year}%m%d%H%M%SZ")).to_string();
    der(tag, text.as_bytes())
}

/// Encodes a DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut element = vec![tag];
    let length = content.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => element.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let bytes = &bytes[zeros..];
            element.push(0x80 | u8::try_from(bytes.len()).unwrap_or_default());
            element.extend(bytes);
        }
    }
    element.extend(content);
    element
}
