//! Regular expressions: RE2's syntax on the `regex` crate, which is linear in time too.

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::Native;
use crate::eval::Context;
use crate::value::{EvalError, Evaluated, Value, fail, no_such_overload};

/// The size of a compiled pattern, in bytes. Go has a similar limit on repetition.
const MAX_SIZE: usize = 12 * 1024 * 1024;

/// The number of patterns that one evaluation keeps compiled.
const MAX_PATTERNS: usize = 64;

/// Compiles a pattern with RE2's meaning. The error is worded like that of Go's `regexp`.
///
/// The two syntaxes agree almost everywhere. They differ in `\d`, `\w`, `\s` and `\b`, which are
/// ASCII in RE2 and Unicode in `regex`, and inside brackets, where `regex` has nested sets and set
/// operators that RE2 reads as plain characters.
///
/// # Errors
///
/// Fails if the pattern is not valid or its compiled form is too large.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(&translate(pattern))
        .size_limit(MAX_SIZE)
        .build();
    built.map_err(|error| match error {
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
        regex::Error::CompiledTooBig(_) => {
            format!("error parsing regexp: expression too large: `{pattern}`")
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
        let name = out.get(at + 2..out.len() - 1).unwrap_or_default();
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

fn cached(context: &mut Context, pattern: &Arc<str>) -> Result<Regex, EvalError> {
    if let Some(known) = context.patterns.get(pattern) {
        return Ok(known.clone());
    }
    // Compiling takes time in proportion to the pattern, which costs do not cover in a loop.
    context.work.spend(1_000 + 100 * pattern.len())?;
    let regex = compile(pattern).map_err(fail)?;
    if context.patterns.len() < MAX_PATTERNS {
        context.patterns.insert(pattern.clone(), regex.clone());
    }
    Ok(regex)
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "matches" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                Ok(Value::Bool(cached(context, pattern)?.is_match(text)))
            }
            _ => Err(no_such_overload()),
        },
        "find" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = illegal(cached(context, pattern))?;
                Ok(regex.find(text).map_or("", |found| found.as_str()).into())
            }
            _ => Err(no_such_overload()),
        },
        "findAll" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => find_all(context, text, pattern, -1),
            [
                Value::String(text),
                Value::String(pattern),
                Value::Int(limit),
            ] => find_all(context, text, pattern, *limit),
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

fn illegal(compiled: Result<Regex, EvalError>) -> Result<Regex, EvalError> {
    compiled.map_err(|error| match error {
        EvalError::Failed(why) => fail(format!("Illegal regex: {why}")),
        other => other,
    })
}

fn find_all(context: &mut Context, text: &str, pattern: &Arc<str>, limit: i64) -> Evaluated {
    let regex = illegal(cached(context, pattern))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found: Vec<Value> = regex
        .find_iter(text)
        .take(limit)
        .map(|found| found.as_str().into())
        .collect();
    context.work.spend(found.len())?;
    Ok(Value::list(found))
}
