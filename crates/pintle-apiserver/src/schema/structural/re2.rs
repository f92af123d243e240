//! RE2 patterns, run by the `regex` crate.
//!
//! The two syntaxes agree almost everywhere. They differ in `\d`, `\w`, `\s` and `\b`, which are
//! ASCII in RE2 and Unicode in `regex`, and inside brackets, where `regex` has nested sets and set
//! operators that RE2 reads as plain characters.

use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

/// Compiles a pattern. The error is worded like that of Go's `regexp`.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)).map_err(|error| match error {
        regex::Error::Syntax(text) => {
            let reason = text.lines().last().unwrap_or_default();
            let reason = match reason.strip_prefix("error: ").unwrap_or(reason) {
                "unclosed group" => "missing closing )",
                "unclosed character class" => "missing closing ]",
                "unopened group" => "unexpected )",
                other => other,
            };
            format!("error parsing regexp: {reason}: `{pattern}`")
        }
        other => format!("error parsing regexp: {other}"),
    })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    let mut in_set = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, in_set, &mut out),
            '[' if in_set && chars.peek() == Some(&':') => out.push('['),
            '[' if in_set => out.push_str("\\["),
            '[' => {
                in_set = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                // `]` right after the opening bracket is a plain character.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ']' if in_set && out.ends_with(':') && posix_open(&out) => out.push(']'),
            ']' if in_set => {
                in_set = false;
                out.push(']');
            }
            '&' | '~' if in_set => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns true if `out` ends inside a `[:name:` that the next bracket closes.
fn posix_open(out: &str) -> bool {
    out.rfind("[:").is_some_and(|at| {
        let name = &out[at + 2..out.len() - 1];
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '^')
    })
}

fn escape(chars: &mut Peekable<Chars<'_>>, in_set: bool, out: &mut String) {
    match chars.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str("[\\t\\n\\x0c\\r ]"),
        Some('S') => out.push_str("[^\\t\\n\\x0c\\r ]"),
        Some('b') if !in_set => out.push_str("(?-u:\\b)"),
        Some('B') if !in_set => out.push_str("(?:\\B)"),
        Some('Q') => quoted(chars, out),
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => out.push('\\'),
    }
}

/// Translates `\Q…\E`, which quotes everything between the two.
fn quoted(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            break;
        }
        plain.push(c);
    }
    out.push_str(&regex::escape(&plain));
}

#[cfg(test)]
mod tests;
