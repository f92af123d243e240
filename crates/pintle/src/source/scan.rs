//! Finding the end of a JSON value without decoding it.
//!
//! These scanners only pair quotes and brackets. What they cut out is checked by whoever reads it;
//! on bytes that are not JSON they stop somewhere, and never panic.

use memchr::memchr2;

use crate::object::Nesting;

/// Follows one JSON value over any number of chunks.
///
/// A value that begins with a bracket ends with its partner; a string ends with its quote; anything
/// else (numbers, `true`, `null`) ends before the next byte that cannot belong to it.
#[derive(Debug, Default)]
pub(super) struct ValueScanner {
    at: Place,
}

#[derive(Debug, Default)]
enum Place {
    /// Before the first byte.
    #[default]
    Start,
    /// In a value without quotes or brackets.
    Bare,
    /// In an object or array.
    Nested(Nesting),
    /// In a string.
    Text,
    /// In a string, after a backslash.
    Escape,
}

impl ValueScanner {
    /// How many bytes of `chunk` belong to the value, and whether it ends there.
    pub(super) fn advance(&mut self, chunk: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < chunk.len() {
            match &mut self.at {
                Place::Start => match chunk[at] {
                    // The bracket is for the nesting to count.
                    b'{' | b'[' => self.at = Place::Nested(Nesting::default()),
                    b'"' => {
                        self.at = Place::Text;
                        at += 1;
                    }
                    _ => {
                        self.at = Place::Bare;
                        at += 1;
                    }
                },
                Place::Bare => {
                    return match chunk[at..].iter().position(|&byte| ends_bare(byte)) {
                        Some(end) => (at + end, true),
                        None => (chunk.len(), false),
                    };
                }
                Place::Nested(nesting) => {
                    return match nesting.advance(&chunk[at..]) {
                        Some(end) => (at + end, true),
                        None => (chunk.len(), false),
                    };
                }
                Place::Escape => {
                    self.at = Place::Text;
                    at += 1;
                }
                Place::Text => {
                    let Some(found) = memchr2(b'"', b'\\', &chunk[at..]) else {
                        break;
                    };
                    at += found + 1;
                    if chunk[at - 1] != b'\\' {
                        return (at, true);
                    }
                    self.at = Place::Escape;
                }
            }
        }
        (chunk.len(), false)
    }
}

fn ends_bare(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[')
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Walks over the members of one complete JSON object, in order, as raw key and raw value.
///
/// Keys are given without their quotes and with escapes as written. The walk ends at the first
/// member that is not well formed.
#[derive(Debug)]
pub(super) struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Members<'a> {
    pub(super) fn of(object: &'a [u8]) -> Self {
        let rest = trim(object).strip_prefix(b"{").unwrap_or_default();
        Self { rest }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = trim(self.rest);
        let rest = trim(rest.strip_prefix(b",").unwrap_or(rest));
        let (key, rest) = value(rest)?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let rest = trim(trim(rest).strip_prefix(b":")?);
        let (value, rest) = value(rest)?;
        self.rest = rest;
        Some((key, value))
    }
}

/// The first value of `bytes`, which must end there, and what follows.
fn value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.is_empty() || ends_bare(bytes[0]) && !matches!(bytes[0], b'"' | b'{' | b'[') {
        return None;
    }
    let (len, ended) = ValueScanner::default().advance(bytes);
    ended.then(|| bytes.split_at(len))
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(chunks: &[&str]) -> (usize, bool) {
        let mut scanner = ValueScanner::default();
        let mut total = 0;
        for chunk in chunks {
            let (len, ended) = scanner.advance(chunk.as_bytes());
            total += len;
            if ended {
                return (total, true);
            }
        }
        (total, false)
    }

    #[test]
    fn a_value_ends_with_its_bracket_whatever_its_strings_hold() {
        assert_eq!(scan(&[r#"{"a":"}\"]"},"#]), (12, true));
        assert_eq!(scan(&["[[],{}]x"]), (7, true));
        assert_eq!(scan(&[r#""a\\"b"#]), (5, true));
        assert_eq!(scan(&["12.5,"]), (4, true));
        assert_eq!(scan(&["null"]), (4, false));
    }

    #[test]
    fn an_escape_may_be_split_between_chunks() {
        assert_eq!(scan(&[r#"{"a":"\"#, r#""}"#, r#""}tail"#]), (11, true));
    }

    #[test]
    fn members_are_walked_in_order() {
        let object = br#" { "kind" : "Pod", "n":1,"metadata":{"a":[1]} } "#;
        let members: Vec<_> = Members::of(object).collect();
        assert_eq!(members.len(), 3);
        assert_eq!(members[0], (&b"kind"[..], &br#""Pod""#[..]));
        assert_eq!(members[2], (&b"metadata"[..], &br#"{"a":[1]}"#[..]));
        assert_eq!(Members::of(b"[1]").count(), 0);
        assert_eq!(Members::of(br#"{"a":}"#).count(), 0);
    }
}
