//! Names: validation of names, label keys and label values, with upstream's messages, and the random
//! part of generated names.

use std::net::IpAddr;

use pintle_clock::Rng;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const WORD: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const DOTS: &str = "must not contain dots";

/// The alphabet of Kubernetes' generated names: no vowels and no look-alikes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The syntax that a kind requires of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// An RFC 1123 subdomain. Most kinds use this.
    Subdomain,
    /// An RFC 1123 label: namespaces and services.
    Label,
    /// An RFC 1035 label: names inside CRDs.
    Label1035,
    /// Any single path segment: RBAC, and kinds without a rule.
    PathSegment,
    /// An IP address in canonical form.
    Address,
}

impl NameRule {
    /// Returns the problems of `name`. A `prefix` (`generateName`) may end in a dash.
    pub(crate) fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        let body = if prefix { &before_tail(name) } else { name };
        match self {
            Self::Subdomain => in_characters(is_subdomain(body)),
            Self::Label => in_characters(label(body, LABEL, |c| {
                c.is_ascii_lowercase() || c.is_ascii_digit()
            })),
            Self::Label1035 => in_characters(label(body, LABEL_1035, |c| c.is_ascii_lowercase())),
            Self::PathSegment => path_segment(name, prefix),
            Self::Address => address(name).into_iter().collect(),
        }
    }
}

/// Returns why `text` is not an IP address in canonical form.
fn address(text: &str) -> Option<String> {
    let Ok(address) = text.parse::<IpAddr>() else {
        let octets: Vec<&str> = text.split('.').collect();
        let padded = octets.len() == 4 && octets.iter().all(|octet| octet.parse::<u8>().is_ok());
        return Some(if padded {
            "must not have leading 0s".to_owned()
        } else {
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()
        });
    };
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return Some("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    let canonical = address.to_string();
    (canonical != text).then(|| format!("must be in canonical form ({canonical:?})"))
}

/// Replaces a trailing dash, and the character before it, by a letter. The characters before the
/// dash are validated with the complete name.
fn before_tail(prefix: &str) -> String {
    let mut name = prefix.to_owned();
    if prefix.len() > 1 && name.ends_with('-') {
        name.pop();
        name.pop();
        name.push('a');
    }
    name
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| name.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// Upstream limits names in characters, but label parts in bytes.
fn in_characters(problems: Vec<String>) -> Vec<String> {
    let reword = |problem: String| match problem.strip_suffix(" bytes") {
        Some(rest) => format!("{rest} characters"),
        None => problem,
    };
    problems.into_iter().map(reword).collect()
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn label(name: &str, rule: &str, first: impl Fn(char) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63));
    }
    if !(name.starts_with(&first) && is_dns_label(name)) {
        let dotted = rule == LABEL && name.split('.').all(is_dns_label);
        problems.push(if dotted { DOTS } else { rule }.to_owned());
    }
    problems
}

fn is_dns_label(s: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !s.is_empty()
        && s.chars().all(|c| inner(c) || c == '-')
        && s.starts_with(inner)
        && s.ends_with(inner)
}

/// Returns why `name` is not an RFC 1123 subdomain.
pub(crate) fn is_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(too_long(253));
    }
    if !name.split('.').all(is_dns_label) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

fn is_word(s: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric();
    !s.is_empty()
        && s.chars().all(|c| inner(c) || matches!(c, '-' | '_' | '.'))
        && s.starts_with(inner)
        && s.ends_with(inner)
}

/// Returns why `name` is not a qualified name (`prefix/name`), the syntax of label keys.
pub(crate) fn qualified_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = name.split('/').collect();
    let local = match parts[..] {
        [local] => local,
        [prefix, local] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    is_subdomain(prefix)
                        .into_iter()
                        .map(|p| format!("prefix part {p}")),
                );
            }
            local
        }
        _ => {
            return vec![format!(
                "a valid label key {WORD} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if local.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if local.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !is_word(local) {
        problems.push(format!("name part {WORD}"));
    }
    problems
}

/// Returns why `value` is not a label value.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_long(63));
    }
    if !value.is_empty() && !is_word(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// Returns five random characters to append to a `generateName`.
pub(crate) fn random_suffix(rng: &Rng) -> String {
    let random = || {
        let index = usize::try_from(rng.below(ALPHABET.len() as u64)).unwrap_or_default();
        char::from(ALPHABET[index])
    };
    std::iter::repeat_with(random).take(5).collect()
}

#[cfg(test)]
mod tests;
