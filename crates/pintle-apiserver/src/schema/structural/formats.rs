//! String formats that schemas may name, and what each accepts.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use pintle_cel::go;
use regex::Regex;

use super::node::Node;

/// The string formats that are enforced; others are ignored.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Returns the format if it is enforced for the type of this schema, else the empty string.
pub(super) fn enforced(schema: &Node) -> &str {
    let format = schema.format.as_str();
    if format.is_empty() || schema.int_or_string {
        return "";
    }
    if is_known_format(&schema.type_name, format) {
        format
    } else {
        ""
    }
}

/// Returns true if a format is enforced for a type.
pub(crate) fn is_known_format(type_name: &str, format: &str) -> bool {
    match type_name {
        "" | "string" => KNOWN.contains(&plain(format).as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Removes dashes from a format name, because names are compared without them: `date-time` is
/// `datetime`.
fn plain(format: &str) -> String {
    format.replace('-', "")
}

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        // The patterns are constants and known to compile; one that did not would match nothing.
        static $name: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new($pattern).ok());
    };
}

pattern!(
    HOSTNAME,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
pattern!(
    UUID,
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
);
pattern!(
    UUID3,
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
);
pattern!(
    UUID4,
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"
);
pattern!(
    UUID5,
    r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"
);
pattern!(
    CREDIT_CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
);
pattern!(SSN, r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
pattern!(
    BASE64,
    r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
);
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    RGB_COLOR,
    r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*\)$"
);
pattern!(DATE, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$");
pattern!(
    TIME,
    r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
);
pattern!(LABEL, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
pattern!(
    SUBDOMAIN,
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
);

/// Returns true if `text` matches `format`. Unknown formats match anything.
pub(super) fn matches(format: &str, text: &str) -> bool {
    let like = |pattern: &LazyLock<Option<Regex>>| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    };
    match plain(format).as_str() {
        "uri" => pintle_cel::check_request_uri(text).is_ok(),
        "email" => go::is_mail_address(text),
        "hostname" => {
            like(&HOSTNAME) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
        }
        "ipv4" => text.contains('.') && (ipv4(text).is_some() || text.parse::<Ipv6Addr>().is_ok()),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => like(&UUID),
        "uuid3" => like(&UUID3),
        "uuid4" => like(&UUID4),
        "uuid5" => like(&UUID5),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            CREDIT_CARD.as_ref().is_some_and(|p| p.is_match(&digits)) && luhn(&digits)
        }
        "ssn" => text.len() == 11 && like(&SSN),
        "hexcolor" => like(&HEX_COLOR),
        "rgbcolor" => like(&RGB_COLOR),
        "byte" => like(&BASE64),
        "date" => date(text),
        "datetime" => datetime(text),
        "duration" => go::parse_loose_duration(text).is_some(),
        "k8sshortname" => like(&LABEL) && text.len() <= 63,
        "k8slongname" => like(&SUBDOMAIN) && text.len() <= 253,
        _ => true,
    }
}

/// Parses an IPv4 address. Leading zeros are accepted and read as decimal.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part
            .parse::<u32>()
            .ok()
            .and_then(|n| u8::try_from(n).ok())?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let limit = if ipv4(address).is_some() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|n| n <= limit)
}

fn mac(text: &str) -> bool {
    let hex = |parts: Vec<&str>, width: usize| {
        let even = parts
            .iter()
            .all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()));
        even && matches!(parts.len() * width / 2, 6 | 8 | 20)
    };
    if text.contains('.') {
        return hex(text.split('.').collect(), 4);
    }
    let separator = if text.contains('-') { '-' } else { ':' };
    hex(text.split(separator).collect(), 2)
}

fn isbn10(text: &str) -> bool {
    let plain: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    if plain.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (weight, c) in (1..).zip(&plain) {
        let digit = match (weight, c) {
            (10, 'X') => 10,
            _ => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += weight * digit;
    }
    sum % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = text
        .chars()
        .filter(|c| !matches!(c, ' ' | '-'))
        .map(|c| c.to_digit(10))
        .collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 13) else {
        return false;
    };
    let weighted = digits.iter().zip([1, 3].into_iter().cycle());
    weighted.map(|(digit, weight)| digit * weight).sum::<u32>() % 10 == 0
}

fn luhn(digits: &str) -> bool {
    let values = digits.chars().rev().filter_map(|c| c.to_digit(10));
    let sum: u32 = values
        .enumerate()
        .map(|(i, digit)| match (i % 2, digit * 2) {
            (0, _) => digit,
            (_, twice) if twice > 9 => twice - 9,
            (_, twice) => twice,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn date(text: &str) -> bool {
    DATE.as_ref().is_some_and(|p| p.is_match(text)) && text.parse::<jiff::civil::Date>().is_ok()
}

fn datetime(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = TIME.as_ref().and_then(|p| p.captures(time)) else {
        return false;
    };
    date(day) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

#[cfg(test)]
mod tests;
