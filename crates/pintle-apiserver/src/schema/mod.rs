//! Schemas: how fields are typed, pruned, defaulted and validated.
//!
//! Everything here is a pure function over [`serde_json::Value`], without clock, store or I/O.
//!
//! - [`builtin`]: tables of built-in kinds.
//! - [`typed`]: decoding built-in kinds as a typed server would.
//! - [`defaults`]: default values of built-in kinds.
//! - [`field`]: field errors with Kubernetes' wording.
//! - [`field_paths`]: bounded reports of unknown and duplicate fields.
//! - [`structural`]: schemas of custom resources.

pub(crate) mod builtin;
pub(crate) mod defaults;
pub(crate) mod field;
pub(crate) mod field_paths;
pub(crate) mod structural;
pub(crate) mod typed;

/// The maximum nesting of an object, counted in containers.
///
/// `serde_json` cannot decode anything deeper, so such an object could be stored but never read
/// again. The limit also bounds the recursive walks in this crate.
pub(crate) const MAX_DEPTH: usize = 127;

/// Returns the nesting of a value: 0 for a scalar, 1 for `[]`, 2 for `[[]]` and `[[1]]`.
///
/// Does not recurse, and stops counting beyond [`MAX_DEPTH`].
pub(crate) fn depth(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    fn is_container(value: &Value) -> bool {
        matches!(value, Value::Array(_) | Value::Object(_))
    }
    let mut deepest = 0;
    let mut open: Vec<(&Value, usize)> = Vec::new();
    open.extend(is_container(value).then_some((value, 1)));
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        if deepest > MAX_DEPTH {
            break;
        }
        let below = |value: &&Value| is_container(value);
        match value {
            Value::Array(items) => {
                open.extend(items.iter().filter(below).map(|item| (item, level + 1)));
            }
            Value::Object(map) => {
                open.extend(map.values().filter(below).map(|item| (item, level + 1)));
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
