//! Certificates and certificate signing requests: as much of PEM, DER and X.509 as a server needs.
//!
//! TLS verifies certificates with rustls. This module reads what rustls does not expose: subjects,
//! and the signing requests of `certificates.k8s.io`. Anything it does not understand is an error,
//! never an absent value.

mod certificate;
pub(crate) mod issue;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};

pub(crate) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
pub(crate) const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

const BIT_STRING: u8 = 0x03;
const OID: u8 = 0x06;
/// A string of two bytes per character.
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OCTET_STRING: u8 = 0x04;
/// The attributes of a signing request.
const ATTRIBUTES: u8 = 0xa0;
/// The attribute with the requested extensions.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BOOLEAN: u8 = 0x01;

const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const RSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c];
const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d];

/// One attribute of a subject: the bytes of its type, and its value.
pub(crate) type Attribute<'a> = (&'a [u8], String);

/// A block of a PEM file.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    label: String,
    has_headers: bool,
    der: Vec<u8>,
}

/// Returns the blocks of a PEM file, like Go: white space is ignored, and text outside of blocks is
/// skipped.
fn blocks(pem: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(pem);
    let mut found = Vec::new();
    let mut open: Option<(String, Vec<&str>)> = None;
    for line in text.lines().map(str::trim_end) {
        let marker = |start: &str| {
            let label = line.strip_prefix(start)?.strip_suffix("-----")?;
            Some(label.to_owned())
        };
        if let Some(label) = marker("-----BEGIN ") {
            open = Some((label, Vec::new()));
        } else if let Some(label) = marker("-----END ") {
            let body = open.take().filter(|(opened, _)| *opened == label);
            found.extend(body.and_then(|(label, lines)| block(label, &lines)));
        } else if let Some((_, lines)) = &mut open {
            lines.push(line);
        }
    }
    found
}

fn block(label: String, lines: &[&str]) -> Option<Block> {
    let headers = lines.iter().take_while(|line| line.contains(':')).count();
    let body: String = lines[headers..].concat();
    let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    Some(Block {
        label,
        has_headers: headers > 0,
        der: STANDARD.decode(body).ok()?,
    })
}

/// A certificate signing request (PKCS #10), as in the field `spec.request` of a
/// `CertificateSigningRequest`.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::SigningRequest;
///
/// assert!(SigningRequest::parse(b"not PEM").is_err());
/// ```
#[derive(Debug)]
pub struct SigningRequest {
    der: Vec<u8>,
}

/// The kind of an alternative name in a signing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlternativeName {
    /// A DNS name.
    Dns,
    /// An email address.
    Email,
    /// An IP address.
    Address,
    /// A URI.
    Uri,
    /// Any other name.
    Other,
}

/// The parts of a signing request.
struct Signed<'a> {
    message: &'a [u8],
    subject: &'a [u8],
    /// The algorithm and the bits of the public key.
    public_key: &'a [u8],
    /// The fields after the key.
    attributes: &'a [u8],
    curve: Option<&'a [u8]>,
    key: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl SigningRequest {
    /// Reads the first block of a PEM file.
    ///
    /// # Errors
    ///
    /// Fails with Kubernetes' message if the block is not a signing request.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let first = blocks(pem).into_iter().next();
        let first = first.filter(|block| block.label == "CERTIFICATE REQUEST");
        let block = first.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        let request = Self { der: block.der };
        match request.organizations() {
            Some(_) => Ok(request),
            None => Err("x509: malformed certificate request".to_owned()),
        }
    }

    /// Returns the organizations of the subject, or `None` if the request is malformed.
    pub fn organizations(&self) -> Option<Vec<String>> {
        self.subject(ORGANIZATION)
    }

    /// Returns the common name of the subject: the last one if there are several, empty if there is
    /// none. Returns `None` if the request is malformed.
    pub fn common_name(&self) -> Option<String> {
        Some(self.subject(COMMON_NAME)?.pop().unwrap_or_default())
    }

    fn subject(&self, wanted: &[u8]) -> Option<Vec<String>> {
        let subject = attributes(signed(&self.der)?.subject)?.into_iter();
        let wanted = subject.filter(|(kind, _)| *kind == wanted);
        Some(wanted.map(|(_, name)| name).collect())
    }

    /// Returns the kinds of the requested alternative names, or `None` if the request is malformed.
    pub fn alternative_names(&self) -> Option<Vec<AlternativeName>> {
        let extension = self.alternative_name_extension()?;
        if extension.is_empty() {
            return Some(Vec::new());
        }
        let (extension, _) = expect(SEQUENCE, extension)?;
        let (_, mut value) = expect(OID, extension)?;
        if value.first() == Some(&BOOLEAN) {
            value = element(value)?.2;
        }
        let (names, _) = expect(OCTET_STRING, value)?;
        let (mut names, _) = expect(SEQUENCE, names)?;
        let mut found = Vec::new();
        while !names.is_empty() {
            let (tag, _, rest) = element(names)?;
            names = rest;
            found.push(match tag & 0x1f {
                1 => AlternativeName::Email,
                2 => AlternativeName::Dns,
                6 => AlternativeName::Uri,
                7 => AlternativeName::Address,
                _ => AlternativeName::Other,
            });
        }
        Some(found)
    }

    /// Returns the extension with the alternative names, empty if the request has none, or `None`
    /// if the request is malformed.
    fn alternative_name_extension(&self) -> Option<&[u8]> {
        let rest = signed(&self.der)?.attributes;
        if rest.is_empty() {
            return Some(&[]);
        }
        let (mut attributes, _) = expect(ATTRIBUTES, rest)?;
        while !attributes.is_empty() {
            let (attribute, rest) = expect(SEQUENCE, attributes)?;
            attributes = rest;
            let (kind, values) = expect(OID, attribute)?;
            if kind != EXTENSION_REQUEST {
                continue;
            }
            let (mut extensions, _) = expect(SEQUENCE, expect(SET, values)?.0)?;
            while !extensions.is_empty() {
                let (content, rest) = expect(SEQUENCE, extensions)?;
                let extension = &extensions[..extensions.len() - rest.len()];
                extensions = rest;
                if expect(OID, content)?.0 == SUBJECT_ALTERNATIVE_NAME {
                    return Some(extension);
                }
            }
        }
        Some(&[])
    }

    /// Checks that the key in the request has signed it.
    pub(crate) fn check_signature(&self) -> Result<(), String> {
        let signed = signed(&self.der).ok_or("x509: malformed certificate request")?;
        let algorithm: &'static dyn VerificationAlgorithm = match (signed.algorithm, signed.curve) {
            (ECDSA_SHA256, Some(P256)) => &signature::ECDSA_P256_SHA256_ASN1,
            (ECDSA_SHA384, Some(P256)) => &signature::ECDSA_P256_SHA384_ASN1,
            (ECDSA_SHA256, Some(P384)) => &signature::ECDSA_P384_SHA256_ASN1,
            (ECDSA_SHA384, Some(P384)) => &signature::ECDSA_P384_SHA384_ASN1,
            (ED25519, _) => &signature::ED25519,
            (RSA_SHA1, _) => &signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            (RSA_SHA256, _) => &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            (RSA_SHA384, _) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (RSA_SHA512, _) => &signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            _ => {
                return Err("x509: cannot verify signature: algorithm unimplemented".to_owned());
            }
        };
        let verified =
            UnparsedPublicKey::new(algorithm, signed.key).verify(signed.message, signed.signature);
        verified.map_err(|_| {
            let what = match signed.algorithm {
                ED25519 => "x509: Ed25519 verification failure",
                RSA_SHA1 | RSA_SHA256 | RSA_SHA384 | RSA_SHA512 => "crypto/rsa: verification error",
                _ => "x509: ECDSA verification failure",
            };
            what.to_owned()
        })
    }
}

/// Checks that a PEM file holds certificates and nothing else.
pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let blocks = blocks(pem);
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            let label = &block.label;
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {label:?}"
            ));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.der.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        certificate::check_all(&block.der)?;
    }
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

/// Checks that a PEM file holds a valid certificate, like client-go: other blocks and invalid
/// certificates are skipped unless there is nothing else.
pub(crate) fn check_authorities(pem: &[u8]) -> Result<(), String> {
    let blocks = blocks(pem);
    let is_certificate = |block: &&Block| block.label == "CERTIFICATE" && !block.has_headers;
    let checks = blocks.iter().filter(is_certificate);
    let checks: Vec<_> = checks
        .map(|block| certificate::check_all(&block.der))
        .collect();
    if checks.iter().any(Result::is_ok) {
        return Ok(());
    }
    let why = if let Some(Err(why)) = checks.first() {
        format!("failed to parse certificate: {why}")
    } else if blocks.is_empty() || !pem.trim_ascii_end().ends_with(b"-----") {
        "unable to parse bytes as PEM block".to_owned()
    } else {
        "no valid certificate authority data seen".to_owned()
    };
    Err(format!("unable to load root certificates: {why}"))
}

/// Returns the subject of a certificate, or `None` if it is malformed.
pub(crate) fn certificate_subject(der: &[u8]) -> Option<Vec<Attribute<'_>>> {
    let (certificate, _) = expect(SEQUENCE, der)?;
    let (mut fields, _) = expect(SEQUENCE, certificate)?;
    // An optional version, then serial number, algorithm, issuer, validity, subject.
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    attributes(expect(SEQUENCE, fields)?.0)
}

fn signed(der: &[u8]) -> Option<Signed<'_>> {
    let (request, rest) = expect(SEQUENCE, der)?;
    if !rest.is_empty() {
        return None;
    }
    let (info, rest) = expect(SEQUENCE, request)?;
    let message = &request[..request.len() - rest.len()];
    let (algorithm, rest) = expect(SEQUENCE, rest)?;
    let (algorithm, _) = expect(OID, algorithm)?;
    let signature = bits(rest)?;
    // A version, then the subject and its key.
    let (_, _, info) = element(info)?;
    let (subject, info) = expect(SEQUENCE, info)?;
    let (public_key, attributes) = expect(SEQUENCE, info)?;
    let (key_algorithm, key) = expect(SEQUENCE, public_key)?;
    let (_, parameters) = expect(OID, key_algorithm)?;
    Some(Signed {
        message,
        subject,
        public_key,
        attributes,
        curve: expect(OID, parameters).map(|(curve, _)| curve),
        key: bits(key)?,
        algorithm,
        signature,
    })
}

/// Returns the attributes of a subject, given the contents of its sequence.
fn attributes(mut names: &[u8]) -> Option<Vec<Attribute<'_>>> {
    let mut found = Vec::new();
    while !names.is_empty() {
        let (mut set, rest) = expect(SET, names)?;
        names = rest;
        while !set.is_empty() {
            let (pair, rest) = expect(SEQUENCE, set)?;
            set = rest;
            let (kind, value) = expect(OID, pair)?;
            let (tag, value, _) = element(value)?;
            let value = match tag {
                BMP_STRING => {
                    let units = value.chunks(2).map(|unit| match unit {
                        [high, low] => u16::from_be_bytes([*high, *low]),
                        _ => 0,
                    });
                    String::from_utf16(&units.collect::<Vec<u16>>()).ok()?
                }
                _ => std::str::from_utf8(value).ok()?.to_owned(),
            };
            found.push((kind, value));
        }
    }
    Some(found)
}

/// Returns the bytes of a bit string, or `None` if it is not a whole number of bytes.
fn bits(der: &[u8]) -> Option<&[u8]> {
    match expect(BIT_STRING, der)?.0 {
        [0, bytes @ ..] => Some(bytes),
        _ => None,
    }
}

/// Splits off the first DER element if it has this tag: its content, and the rest.
fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Splits off the first DER element: its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
        if bytes.len() > 4 || bytes.first() == Some(&0) {
            return None;
        }
        let length = bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        // DER has one encoding of a length, the shortest.
        (length >= 0x80).then_some((length, rest))?
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests;
