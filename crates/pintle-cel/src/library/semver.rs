//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Native;
use crate::value::{EvalError, Evaluated, Library, Value, fail, no_such_overload};

/// A semantic version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Pre>,
}

/// One part of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    Number(u64),
    Text(String),
}

/// Parses a version. With `normalize`, a `v` prefix, missing parts and leading zeros are accepted.
pub(crate) fn parse(text: &str, normalize: bool) -> Result<Semver, String> {
    if !normalize {
        return strict(text);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
            *part = if digit {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".to_owned());
    }
    strict(&parts.join("."))
}

fn strict(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let &[major, minor, rest] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".into());
    };
    let number = |name: &str, part: &str| {
        if part.is_empty() || !part.bytes().all(|c| c.is_ascii_digit()) {
            let part = crate::go::quote(part);
            return Err(format!(
                "Invalid character(s) found in {name} number {part}"
            ));
        }
        if part.len() > 1 && part.starts_with('0') {
            let part = crate::go::quote(part);
            return Err(format!(
                "{}{} number must not contain leading zeroes {part}",
                name[..1].to_uppercase(),
                &name[1..]
            ));
        }
        part.parse::<u64>().map_err(|error| error.to_string())
    };
    let major = number("major", major)?;
    let minor = number("minor", minor)?;
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (rest, None),
    };
    let (patch, pre) = match rest.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (rest, None),
    };
    let patch = number("patch", patch)?;
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    let mut found = Vec::new();
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if !plain(part) {
            return Err(if part.is_empty() {
                "Prerelease is empty".into()
            } else {
                format!(
                    "Invalid character(s) found in prerelease {}",
                    crate::go::quote(part)
                )
            });
        }
        if part.bytes().all(|c| c.is_ascii_digit()) {
            if part.len() > 1 && part.starts_with('0') {
                let part = crate::go::quote(part);
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {part}"
                ));
            }
            found.push(Pre::Number(
                part.parse().map_err(|_| "value out of range".to_owned())?,
            ));
        } else {
            found.push(Pre::Text(part.to_owned()));
        }
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if !plain(part) {
            return Err(if part.is_empty() {
                "Build meta data is empty".into()
            } else {
                format!(
                    "Invalid character(s) found in build meta data {}",
                    crate::go::quote(part)
                )
            });
        }
    }
    Ok(Semver {
        numbers: [major, minor, patch],
        pre: found,
    })
}

impl Semver {
    fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                // A pre-release comes before the release.
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.pre.cmp(&other.pre),
            }
        })
    }
}

pub(crate) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "semver" => |_, args| {
            let parsed = read(args)?.map_err(fail)?;
            Ok(Value::Library(Library::Semver(Arc::new(parsed))))
        },
        "isSemver" => |_, args| Ok(Value::Bool(read(args)?.is_ok())),
        "major" => |_, args| number(args, 0),
        "minor" => |_, args| number(args, 1),
        "patch" => |_, args| number(args, 2),
        "isGreaterThan" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Greater)),
        "isLessThan" => |_, args| Ok(Value::Bool(order(args)? == Ordering::Less)),
        "compareTo" => |_, args| Ok(Value::Int(order(args)? as i64)),
        _ => return None,
    })
}

fn read(args: &[Value]) -> Result<Result<Semver, String>, EvalError> {
    match args {
        [Value::String(text)] => Ok(parse(text, false)),
        [Value::String(text), Value::Bool(normalize)] => Ok(parse(text, *normalize)),
        _ => Err(no_such_overload()),
    }
}

fn number(args: &[Value], i: usize) -> Evaluated {
    match args {
        [Value::Library(Library::Semver(version))] => Ok(Value::Int(
            i64::try_from(version.numbers[i]).unwrap_or(i64::MAX),
        )),
        _ => Err(no_such_overload()),
    }
}

fn order(args: &[Value]) -> Result<Ordering, EvalError> {
    match args {
        [
            Value::Library(Library::Semver(a)),
            Value::Library(Library::Semver(b)),
        ] => Ok(a.order(b)),
        _ => Err(no_such_overload()),
    }
}
