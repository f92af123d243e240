//! URLs as Go's `net/url` parses them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Native, go};
use crate::value::{EvalError, Evaluated, Key, Library, Map, Value, fail, no_such_overload};

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Returns the URL, its scheme in lower case.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the host without brackets and port.
    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    fn port(&self) -> &str {
        let after = match self.host.rsplit_once(']') {
            Some((_, after)) => after,
            None => self.host.as_str(),
        };
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

/// Parses a URL as `url.Parse` does, if `url.ParseRequestURI` accepts it too.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    check_request(text)?;
    let (whole, _) = text.split_once('#').unwrap_or((text, ""));
    parse_as(whole, text, false)
}

/// Checks that a text is an absolute URL or an absolute path, as `url.ParseRequestURI` does. It
/// knows no fragments.
pub(crate) fn check_request(text: &str) -> Result<(), String> {
    parse_as(text, text, true).map(|_| ())
}

/// Parses a URL without a fragment. `original` is for messages.
fn parse_as(text: &str, original: &str, request: bool) -> Result<Url, String> {
    let refuse = |why: &str| format!("parse {}: {why}", go::quote(original));
    if text.bytes().any(|c| c < 0x20 || c == 0x7f) {
        return Err(refuse("net/url: invalid control character in URL"));
    }
    if text.is_empty() && request {
        return Err(refuse("empty url"));
    }
    let mut url = Url {
        text: text.to_owned(),
        scheme: String::new(),
        host: String::new(),
        path: text.to_owned(),
        query: String::new(),
    };
    if text == "*" {
        return Ok(url);
    }
    let (scheme, rest) = scheme(text).map_err(refuse)?;
    url.scheme = scheme.to_ascii_lowercase();
    // Schemes compare without case.
    url.text.replace_range(..scheme.len(), &url.scheme);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            // Opaque, such as `mailto:a@b`.
            url.path.clear();
            return Ok(url);
        }
        if request {
            return Err(refuse("invalid URI for request"));
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|first| first.contains(':'))
        {
            return Err(refuse("first path segment in URL cannot contain colon"));
        }
    }
    let mut path = rest;
    let has_authority = !scheme.is_empty() || !request && !rest.starts_with("///");
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
        let end = after.find('/').unwrap_or(after.len());
        let authority = &after[..end];
        path = &after[end..];
        let (user, name) = match authority.rsplit_once('@') {
            Some((user, name)) => (user, name),
            None => ("", authority),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return Err(refuse("net/url: invalid userinfo"));
        }
        url.host = check_host(name, &url.scheme).map_err(|why| refuse(&why))?;
    }
    unescape(path).map_err(|bad| refuse(&format!("invalid URL escape {}", go::quote(&bad))))?;
    url.path = escape_path(path);
    Ok(url)
}

/// Splits off the scheme.
fn scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str, scheme: &str) -> Result<String, String> {
    let port_is_valid = |port: &str| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|p| p.bytes().all(|c| c.is_ascii_digit()))
    };
    // Since Go 1.26, hosts of web addresses have at most one colon (golang/go#75223).
    let colon = match scheme {
        "http" | "https" => host.find(':'),
        _ => host.rfind(':'),
    };
    if host.starts_with('[') {
        let Some((_, port)) = host.rsplit_once(']') else {
            return Err("missing ']' in host".into());
        };
        if !port_is_valid(port) {
            return Err(format!("invalid port {} after host", go::quote(port)));
        }
    } else if let Some(at) = colon {
        let port = &host[at..];
        if !port_is_valid(port) {
            return Err(format!("invalid port {} after host", go::quote(port)));
        }
    }
    let allowed = |c: char| {
        c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii()
    };
    if let Some(bad) = host.chars().find(|&c| !allowed(c)) {
        return Err(format!(
            "invalid character {} in host name",
            go::quote(&bad.to_string())
        ));
    }
    let plain = unescape(host).map_err(|bad| format!("invalid URL escape {}", go::quote(&bad)))?;
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

/// Decodes `%41`. The error is the part that is not valid.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] != b'%' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        let hex = bytes
            .get(i + 1..i + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(byte);
        } else {
            let end = (i + 3).min(bytes.len());
            return Err(String::from_utf8_lossy(&bytes[i..end]).into_owned());
        }
        i += 3;
    }
    Ok(out)
}

/// Escapes what a path must not contain. A path that is valid stays as it is.
fn escape_path(path: &str) -> String {
    let valid = |c: u8| c.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&c);
    if path.bytes().all(valid) {
        return path.to_owned();
    }
    let mut out = String::new();
    for byte in unescape(path).unwrap_or_default() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn query(url: &Url) -> Value {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pair in url.query.split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            let plain = unescape(&text.replace('+', " ")).ok()?;
            Some(String::from_utf8_lossy(&plain).into_owned())
        };
        if let (Some(key), Some(value)) = (decode(key), decode(value)) {
            found.entry(key).or_default().push(value.into());
        }
    }
    let entries = found.into_iter();
    let entries = entries.map(|(key, values)| (Key::String(key.into()), Value::list(values)));
    Value::Map(Arc::new(Map {
        entries: entries.collect(),
        hidden: BTreeMap::new(),
    }))
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "url" => |_, args| match args {
            [Value::String(text)] => match parse(text) {
                Ok(url) => Ok(Value::Library(Library::Url(Arc::new(url)))),
                Err(why) => Err(fail(format!(
                    "URL parse error during conversion from string: {why}"
                ))),
            },
            _ => Err(no_such_overload()),
        },
        "isURL" => |_, args| match args {
            [Value::String(text)] => Ok(Value::Bool(check_request(text).is_ok())),
            _ => Err(no_such_overload()),
        },
        "getScheme" => |_, args| text(args, |url| &url.scheme),
        "getHost" => |_, args| text(args, |url| &url.host),
        "getHostname" => |_, args| text(args, Url::hostname),
        "getPort" => |_, args| text(args, Url::port),
        "getEscapedPath" => |_, args| text(args, |url| &url.path),
        "getQuery" => |_, args| Ok(query(url(args)?)),
        _ => return None,
    })
}

fn url(args: &[Value]) -> Result<&Url, EvalError> {
    match args {
        [Value::Library(Library::Url(url))] => Ok(url),
        _ => Err(no_such_overload()),
    }
}

fn text(args: &[Value], read: fn(&Url) -> &str) -> Evaluated {
    Ok(read(url(args)?).into())
}
