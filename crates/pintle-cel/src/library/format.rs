//! Named formats of strings.

use std::sync::LazyLock;

use regex::Regex;

use super::timestamp::Timestamp;
use super::{Native, url};
use crate::value::{Evaluated, Library, Value, no_such_overload};

/// A format that strings can be checked against.
#[derive(Debug)]
pub struct Format {
    pub(crate) name: &'static str,
    /// The length of a regular expression for the format, which determines the cost.
    pub(crate) regex_size: u64,
    check: fn(&str) -> Vec<String>,
}

static FORMATS: [Format; 13] = [
    Format {
        name: "dns1123Label",
        regex_size: 30,
        check: |text| label(text),
    },
    Format {
        name: "dns1123Subdomain",
        regex_size: 60,
        check: |text| subdomain(text),
    },
    Format {
        name: "dns1035Label",
        regex_size: 30,
        check: |text| label_1035(text),
    },
    Format {
        name: "qualifiedName",
        regex_size: 60,
        check: |text| qualified_name(text),
    },
    Format {
        name: "dns1123LabelPrefix",
        regex_size: 30,
        check: |text| label(&prefix(text)),
    },
    Format {
        name: "dns1123SubdomainPrefix",
        regex_size: 60,
        check: |text| subdomain(&prefix(text)),
    },
    Format {
        name: "dns1035LabelPrefix",
        regex_size: 30,
        check: |text| label_1035(&prefix(text)),
    },
    Format {
        name: "labelValue",
        regex_size: 40,
        check: |text| label_value(text),
    },
    Format {
        name: "uri",
        regex_size: 1_103,
        check: |text| url::check_request(text).err().into_iter().collect(),
    },
    Format {
        name: "uuid",
        regex_size: 70,
        check: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    Format {
        name: "byte",
        regex_size: 84,
        check: |text| unless(is_base64(text), "invalid base64"),
    },
    Format {
        name: "date",
        regex_size: 71,
        check: |text| unless(Timestamp::parse_date(text).is_some(), "invalid date"),
    },
    Format {
        name: "datetime",
        regex_size: 71,
        check: |text| unless(is_date_time(text), "invalid datetime"),
    },
];

fn unless(valid: bool, why: &str) -> Vec<String> {
    if valid {
        Vec::new()
    } else {
        vec![why.to_owned()]
    }
}

static LABEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").ok());

fn is_label(text: &str) -> bool {
    LABEL.as_ref().is_some_and(|regex| regex.is_match(text))
}

const LABEL_WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035_WHY: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_WHY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
    regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_WHY: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} bytes"))
}

pub(super) fn label(text: &str) -> Vec<String> {
    let form = (!is_label(text)).then(|| LABEL_WHY.to_owned());
    too_long(text, 63).into_iter().chain(form).collect()
}

pub(super) fn subdomain(text: &str) -> Vec<String> {
    let form = (!text.split('.').all(is_label)).then(|| SUBDOMAIN_WHY.to_owned());
    too_long(text, 253).into_iter().chain(form).collect()
}

fn label_1035(text: &str) -> Vec<String> {
    let valid = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    let form = (!valid).then(|| LABEL_1035_WHY.to_owned());
    too_long(text, 63).into_iter().chain(form).collect()
}

/// Returns true for the syntax of label values and of label names.
fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    ends(text.chars().next()) && ends(text.chars().last()) && text.chars().all(inner)
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match *parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                QUALIFIED_WHY.strip_prefix("name part ").unwrap_or_default()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if let Some(why) = too_long(name, 63) {
        errors.push(format!("name part {why}"));
    }
    if !is_name(name) {
        errors.push(QUALIFIED_WHY.to_owned());
    }
    errors
}

fn label_value(text: &str) -> Vec<String> {
    let form = (!text.is_empty() && !is_name(text)).then(|| LABEL_VALUE_WHY.to_owned());
    too_long(text, 63).into_iter().chain(form).collect()
}

/// Returns a prefix in the form in which it is checked. It may end with a dash, because something
/// follows it. As upstream, the character before the dash is not checked either.
fn prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept = rest.char_indices().last().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..kept])
        }
        _ => text.to_owned(),
    }
}

/// Returns true for 32 hexadecimal digits. Each of the four dashes is optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((part, after)) if part.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Returns true for non-empty base64 with padding.
fn is_base64(text: &str) -> bool {
    static BASE64: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let pattern =
            "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
        Regex::new(pattern).ok()
    });
    BASE64.as_ref().is_some_and(|it| it.is_match(text))
}

/// Returns true for a date, `T` and a time with a zone.
fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new("^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$")
            .ok()
    });
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    Timestamp::parse_date(day).is_some() && TIME.as_ref().is_some_and(|it| it.is_match(time))
}

pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let clean: Vec<u8> = text
        .bytes()
        .filter(|c| !matches!(c, b'\r' | b'\n'))
        .collect();
    if !clean.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(clean.len() / 4 * 3);
    let chunks = clean.len() / 4;
    for (i, chunk) in clean.chunks(4).enumerate() {
        let padding = chunk.iter().rev().take_while(|c| **c == b'=').count();
        if padding > 2 || (padding > 0 && i + 1 != chunks) {
            return None;
        }
        let mut bits: u32 = 0;
        for c in &chunk[..4 - padding] {
            let value = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * padding;
        let [_, a, b, c] = bits.to_be_bytes();
        out.extend_from_slice(&[a, b, c][..3 - padding]);
    }
    Some(out)
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "format.named" => |_, args| match args {
            [Value::String(name)] => {
                let found = FORMATS.iter().find(|format| format.name == &**name);
                Ok(found.map_or(Value::Optional(None), |format| {
                    Value::some(Value::Library(Library::Format(format)))
                }))
            }
            _ => Err(no_such_overload()),
        },
        "validate" => |_, args| match args {
            [Value::Library(Library::Format(format)), Value::String(text)] => {
                let errors = (format.check)(text);
                if errors.is_empty() {
                    return Ok(Value::Optional(None));
                }
                Ok(Value::some(Value::list(
                    errors.into_iter().map(Value::from).collect(),
                )))
            }
            _ => Err(no_such_overload()),
        },
        "format.dns1123Label" => |_, _| constant(0),
        "format.dns1123Subdomain" => |_, _| constant(1),
        "format.dns1035Label" => |_, _| constant(2),
        "format.qualifiedName" => |_, _| constant(3),
        "format.dns1123LabelPrefix" => |_, _| constant(4),
        "format.dns1123SubdomainPrefix" => |_, _| constant(5),
        "format.dns1035LabelPrefix" => |_, _| constant(6),
        "format.labelValue" => |_, _| constant(7),
        "format.uri" => |_, _| constant(8),
        "format.uuid" => |_, _| constant(9),
        "format.byte" => |_, _| constant(10),
        "format.date" => |_, _| constant(11),
        "format.datetime" => |_, _| constant(12),
        _ => return None,
    })
}

fn constant(i: usize) -> Evaluated {
    FORMATS
        .get(i)
        .map(|format| Value::Library(Library::Format(format)))
        .ok_or_else(no_such_overload)
}
