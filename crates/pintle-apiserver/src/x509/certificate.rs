//! Validates DER certificates by the rules of Go's `crypto/x509`, with its error messages.
//!
//! The structure is checked as far as Go does when it parses a certificate: every field, the public
//! key of the common algorithms, and the frame of the extensions. The contents of extensions are
//! not checked.

use jiff::civil;

use super::{
    BIT_STRING, BOOLEAN, OCTET_STRING, OID, SEQUENCE, VERSION, attributes, element, expect,
};

const INTEGER: u8 = 0x02;
const NULL: &[u8] = &[0x05, 0x00];
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// The named curves, and the size of a coordinate in bytes.
const CURVES: [(&[u8], usize); 4] = [
    (&[0x2b, 0x81, 0x04, 0x00, 0x21], 28),
    (super::P256, 32),
    (super::P384, 48),
    (&[0x2b, 0x81, 0x04, 0x00, 0x23], 66),
];

/// Checks that DER is one certificate or several.
pub(super) fn check_all(mut der: &[u8]) -> Result<(), &'static str> {
    loop {
        let (certificate, rest) = expect(SEQUENCE, der).ok_or("x509: malformed certificate")?;
        check(certificate)?;
        if rest.is_empty() {
            return Ok(());
        }
        der = rest;
    }
}

/// Checks the contents of a certificate's sequence.
fn check(certificate: &[u8]) -> Result<(), &'static str> {
    let (fields, rest) = expect(SEQUENCE, certificate).ok_or("x509: malformed tbs certificate")?;
    let (version, fields) = version(fields)?;
    let (serial, fields) = integer(fields).ok_or("x509: malformed serial number")?;
    if serial.first().is_some_and(|byte| byte & 0x80 != 0) {
        return Err("x509: negative serial number");
    }
    let why = "x509: malformed signature algorithm identifier";
    let (algorithm, fields) = expect(SEQUENCE, fields).ok_or(why)?;
    let why = "x509: malformed algorithm identifier";
    let (outer_algorithm, signature) = expect(SEQUENCE, rest).ok_or(why)?;
    if algorithm != outer_algorithm {
        return Err("x509: inner and outer signature algorithm identifiers don't match");
    }
    parsed_identifier(algorithm)?;
    let (issuer, fields) = expect(SEQUENCE, fields).ok_or("x509: malformed issuer")?;
    attributes(issuer).ok_or("x509: invalid RDNSequence")?;
    let (validity, fields) = expect(SEQUENCE, fields).ok_or("x509: malformed validity")?;
    time(time(validity)?)?;
    // Go also names the issuer here.
    let (subject, fields) = expect(SEQUENCE, fields).ok_or("x509: malformed issuer")?;
    attributes(subject).ok_or("x509: invalid RDNSequence")?;
    let (key, fields) = expect(SEQUENCE, fields).ok_or("x509: malformed spki")?;
    public_key(key)?;
    extensions(version, fields)?;
    bit_string(signature).ok_or("x509: malformed signature")?;
    Ok(())
}

/// Reads the optional version, from 1 to 3.
fn version(fields: &[u8]) -> Result<(u8, &[u8]), &'static str> {
    if fields.first() != Some(&VERSION) {
        return Ok((1, fields));
    }
    let why = "x509: malformed version";
    let (version, rest) = expect(VERSION, fields).ok_or(why)?;
    match integer(version) {
        Some(([version @ 0..=2], [])) => Ok((version + 1, rest)),
        Some(([first, ..], [])) if first & 0x80 == 0 => Err("x509: invalid version"),
        _ => Err(why),
    }
}

/// Returns an algorithm and its parameters.
fn parsed_identifier(identifier: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let (algorithm, parameters) = expect(OID, identifier).ok_or("x509: malformed OID")?;
    if !parameters.is_empty() {
        element(parameters).ok_or("x509: malformed parameters")?;
    }
    Ok((algorithm, parameters))
}

/// Checks a time and returns what follows it.
fn time(der: &[u8]) -> Result<&[u8], &'static str> {
    let (tag, text, rest) = element(der).ok_or("x509: unsupported time format")?;
    let (valid, why) = match tag {
        UTC_TIME => (is_time(text, 2), "x509: malformed UTCTime"),
        GENERALIZED_TIME => (is_time(text, 4), "x509: malformed GeneralizedTime"),
        _ => return Err("x509: unsupported time format"),
    };
    if valid { Ok(rest) } else { Err(why) }
}

/// Returns true for a year of the given number of digits, then month, day, hour, minute, second and
/// `Z`.
fn is_time(text: &[u8], year: usize) -> bool {
    let Some(digits) = text.strip_suffix(b"Z") else {
        return false;
    };
    if digits.len() != year + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let number = |from: usize, length: usize| {
        let digits = digits[from..from + length].iter();
        digits.fold(0_i16, |sum, digit| sum * 10 + i16::from(digit - b'0'))
    };
    let part = |index: usize| i8::try_from(number(year + 2 * index, 2)).unwrap_or(i8::MAX);
    let year = number(0, year);
    civil::DateTime::new(year, part(0), part(1), part(2), part(3), part(4), 0).is_ok()
}

fn public_key(info: &[u8]) -> Result<(), &'static str> {
    let why = "x509: malformed public key algorithm identifier";
    let (identifier, key) = expect(SEQUENCE, info).ok_or(why)?;
    let (algorithm, parameters) = parsed_identifier(identifier)?;
    let key = bit_string(key).ok_or("x509: malformed subjectPublicKey")?;
    match algorithm {
        RSA => rsa_key(parameters, key),
        ECDSA => {
            let (curve, _) = expect(OID, parameters).ok_or("x509: invalid ECDSA parameters")?;
            let curve = CURVES.iter().find(|(known, _)| *known == curve);
            let (_, size) = curve.ok_or("x509: unsupported elliptic curve")?;
            match key {
                [4, point @ ..] if point.len() == 2 * size => Ok(()),
                _ => Err("x509: failed to unmarshal elliptic curve point"),
            }
        }
        super::ED25519 if !parameters.is_empty() => {
            Err("x509: Ed25519 key encoded with illegal parameters")
        }
        super::ED25519 if key.len() != 32 => Err("x509: wrong Ed25519 public key size"),
        _ => Ok(()),
    }
}

fn rsa_key(parameters: &[u8], key: &[u8]) -> Result<(), &'static str> {
    if parameters != NULL {
        return Err("x509: RSA key missing NULL parameters");
    }
    let (key, _) = expect(SEQUENCE, key).ok_or("x509: invalid RSA public key")?;
    let (modulus, key) = integer(key).ok_or("x509: invalid RSA modulus")?;
    let (exponent, _) = integer(key).ok_or("x509: invalid RSA public exponent")?;
    let is_positive = |number: &[u8]| number != [0] && number[0] & 0x80 == 0;
    if !is_positive(modulus) {
        return Err("x509: RSA modulus is not a positive number");
    }
    if !is_positive(exponent) {
        return Err("x509: RSA public exponent is not a positive number");
    }
    Ok(())
}

/// Checks what follows the public key.
fn extensions(version: u8, mut fields: &[u8]) -> Result<(), &'static str> {
    if version > 1 {
        for (tag, why) in [
            (ISSUER_ID, "x509: malformed issuerUniqueID"),
            (SUBJECT_ID, "x509: malformed subjectUniqueID"),
        ] {
            if fields.first() == Some(&tag) {
                fields = element(fields).ok_or(why)?.2;
            }
        }
    }
    if version < 3 || fields.first() != Some(&EXTENSIONS) {
        return Ok(());
    }
    let why = "x509: malformed extensions";
    let (list, _) = expect(EXTENSIONS, fields).ok_or(why)?;
    let (mut list, _) = expect(SEQUENCE, list).ok_or(why)?;
    while !list.is_empty() {
        let (extension, rest) = expect(SEQUENCE, list).ok_or("x509: malformed extension")?;
        let why = "x509: malformed extension OID field";
        let (_, mut value) = expect(OID, extension).ok_or(why)?;
        if value.first() == Some(&BOOLEAN) {
            let critical = expect(BOOLEAN, value).filter(|(flag, _)| matches!(flag, [0 | 0xff]));
            value = critical
                .ok_or("x509: malformed extension critical field")?
                .1;
        }
        expect(OCTET_STRING, value).ok_or("x509: malformed extension value field")?;
        list = rest;
    }
    Ok(())
}

/// Splits off an integer, in the shortest form.
fn integer(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bytes, rest) = expect(INTEGER, der)?;
    match bytes {
        [] => None,
        [0, next, ..] if next & 0x80 == 0 => None,
        [0xff, next, ..] if next & 0x80 != 0 => None,
        _ => Some((bytes, rest)),
    }
}

/// Returns the bytes of a bit string, whose unused bits are zero.
fn bit_string(der: &[u8]) -> Option<&[u8]> {
    let (unused, bytes) = expect(BIT_STRING, der)?.0.split_first()?;
    let last = bytes.last().copied();
    let mask = 1_u8.checked_shl(u32::from(*unused))?.wrapping_sub(1);
    match last {
        None => (*unused == 0).then_some(bytes),
        Some(last) => (last & mask == 0).then_some(bytes),
    }
}
