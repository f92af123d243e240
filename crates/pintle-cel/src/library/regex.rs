//! Regular expressions.

use std::sync::Arc;

use regex::Regex;

use super::Native;
use crate::eval::Context;
use crate::re2::Pattern;
use crate::value::{EvalError, Evaluated, Value, fail, no_such_overload};

/// The maximum number of compiled patterns that one evaluation retains.
const MAX_PATTERNS: usize = 64;

fn cached(context: &mut Context, pattern: &Arc<str>) -> Result<Regex, EvalError> {
    if let Some(known) = context.patterns.get(pattern) {
        return Ok(known.clone());
    }
    // Compiling takes time in proportion to the compiled size, which costs do not cover in a loop.
    // It is charged even if another evaluation has compiled the pattern, so that the result does
    // not depend on what ran before.
    let parsed = Pattern::parse(pattern.clone()).map_err(fail)?;
    context.work.spend(1_000 + parsed.size() / 4)?;
    let regex = parsed.compiled().map_err(fail)?;
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
