//! URLs as Go's `net/url` parses them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Native, net, standard::bounded};
use crate::go;
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
    /// Returns the URL without its fragment, with the scheme in lower case.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the host without brackets and port.
    fn hostname(&self) -> &str {
        let (host, _) = self.split_host();
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        inner.unwrap_or(host)
    }

    fn port(&self) -> &str {
        self.split_host().1
    }

    fn split_host(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(at) if is_optional_port(&self.host[at..]) => {
                (&self.host[..at], &self.host[at + 1..])
            }
            _ => (&self.host, ""),
        }
    }
}

/// Parses a URL as `url.Parse` does, if `url.ParseRequestURI` accepts it too.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    check_request(text)?;
    let (whole, _) = text.split_once('#').unwrap_or((text, ""));
    parse_as(whole, text, false)
}

/// Checks that a string is an absolute URL or an absolute path, as `url.ParseRequestURI` of Go
/// does. Fragments are not recognized. The error is Go's.
///
/// # Examples
///
/// ```
/// assert!(pintle_cel::check_request_uri("https://example.com/a").is_ok());
/// let error = pintle_cel::check_request_uri("example.com").unwrap_err();
/// assert_eq!(error, r#"parse "example.com": invalid URI for request"#);
/// ```
pub fn check_request_uri(text: &str) -> Result<(), String> {
    check_request(text)
}

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
    // Schemes are case-insensitive.
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
        url.host = parse_host(name, &url.scheme).map_err(|why| refuse(&why))?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return Err(refuse("net/url: invalid userinfo"));
        }
        unescape(user, Part::Other).map_err(|why| refuse(&why))?;
    }
    unescape(path, Part::Other).map_err(|why| refuse(&why))?;
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

/// Returns true for an empty string, or a colon followed by digits.
fn is_optional_port(text: &str) -> bool {
    let digits = |port: &str| port.bytes().all(|c| c.is_ascii_digit());
    text.is_empty() || text.strip_prefix(':').is_some_and(digits)
}

/// Checks and decodes a host with an optional port.
fn parse_host(host: &str, scheme: &str) -> Result<String, String> {
    let check_port = |port: &str| {
        if is_optional_port(port) {
            return Ok(());
        }
        Err(format!("invalid port {} after host", go::quote(port)))
    };
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".into()),
        None => {
            // Since Go 1.26, hosts of web addresses have at most one colon (golang/go#75223).
            let colon = match scheme {
                "http" | "https" => host.find(':'),
                _ => host.rfind(':'),
            };
            if let Some(at) = colon {
                check_port(&host[at..])?;
            }
            return unescape(host, Part::Host);
        }
    }
    let Some((inside, port)) = host[1..].rsplit_once(']') else {
        return Err("missing ']' in host".into());
    };
    check_port(port)?;
    // `%25` starts a zone, which may contain more than a host.
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let address = unescape(address, Part::Host)? + &unescape(zone, Part::Zone)?;
    net::check_ipv6(&address)?;
    Ok(format!("[{address}]{port}"))
}

/// A part of a URL, which decides what may be in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// Decodes percent escapes such as `%41`.
fn unescape(text: &str, part: Part) -> Result<String, String> {
    let plain = unescape_bytes(text, part)?;
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

fn unescape_bytes(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let in_host = |c: u8| c.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&c);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        if byte != b'%' {
            if part != Part::Other && byte < 0x80 && !in_host(byte) {
                let bad = go::quote(&char::from(byte).to_string());
                return Err(format!("invalid character {bad} in host name"));
            }
            out.push(byte);
            i += 1;
            continue;
        }
        let end = (i + 3).min(bytes.len());
        let escape = &bytes[i..end];
        let digit = |at: usize| char::from(*escape.get(at)?).to_digit(16);
        let decoded = digit(1).zip(digit(2));
        let decoded = decoded.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        let decoded = decoded.filter(|&byte| match part {
            _ if byte == b'%' => true,
            Part::Host => byte >= 0x80,
            Part::Zone => byte == b' ' || byte >= 0x80 || in_host(byte),
            Part::Other => true,
        });
        let Some(decoded) = decoded else {
            let bad = go::quote(&String::from_utf8_lossy(escape));
            return Err(format!("invalid URL escape {bad}"));
        };
        out.push(decoded);
        i += 3;
    }
    Ok(out)
}

/// Escapes characters that a path must not contain. A valid path is unchanged.
fn escape_path(path: &str) -> String {
    let valid = |c: u8| c.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&c);
    if path.bytes().all(valid) {
        return path.to_owned();
    }
    let mut out = String::new();
    for byte in unescape_bytes(path, Part::Other).unwrap_or_default() {
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
        let decode = |text: &str| unescape(&text.replace('+', " "), Part::Other).ok();
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
        "isURL" => |context, args| match args {
            [Value::String(text)] => {
                context.work.spend(text.len() / 16)?;
                Ok(Value::Bool(check_request(text).is_ok()))
            }
            _ => Err(no_such_overload()),
        },
        "getScheme" => |_, args| text(args, |url| &url.scheme),
        "getHost" => |_, args| text(args, |url| &url.host),
        "getHostname" => |_, args| text(args, Url::hostname),
        "getPort" => |_, args| text(args, Url::port),
        "getEscapedPath" => |_, args| text(args, |url| &url.path),
        "getQuery" => |context, args| {
            let url = url(args)?;
            bounded(context, url.query.len())?;
            Ok(query(url))
        },
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
