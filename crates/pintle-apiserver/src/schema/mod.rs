//! What the server knows about the shape of objects: how fields are typed, pruned, defaulted and
//! checked. Everything here is a pure function over [`serde_json::Value`]: no clock, no store, no
//! input or output.
//!
//! - [`builtin`]: tables of the kinds that need no definition.
//! - [`typed`]: their objects, read and written as a typed server would.
//! - [`defaults`]: what their fields hold when nobody says.
//! - [`prepare`]: what the server sets when they are created.
//! - [`rules`]: what no schema tells about them.
//! - [`faults`]: which fields a body names twice or nobody knows, as far as it is told.
//! - [`field`]: one fault of one field, worded as clients know it.
//! - [`structural`]: the schema a custom resource definition carries, and what it does to objects.

pub(crate) mod builtin;
pub(crate) mod defaults;
pub(crate) mod faults;
pub(crate) mod field;
pub(crate) mod prepare;
pub(crate) mod rules;
pub(crate) mod structural;
pub(crate) mod typed;

/// How many containers may stand in each other.
///
/// JSON readers in common use, the one of this crate among them, read no more: an object nested
/// deeper could be stored and then never be read again, and the recursive walks of this crate would
/// have no bound.
pub(crate) const MAX_DEPTH: usize = 127;

/// How deeply a value nests: a scalar counts as 0, `[]` as 1, `[[]]` and `[[1]]` as 2.
///
/// Counts without recursion, and stops counting beyond [`MAX_DEPTH`].
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Proves PW-50.
    #[test]
    fn the_deepest_value_allowed_is_the_deepest_that_is_read() {
        for leaf in [json!({}), json!([]), json!(1)] {
            let mut value = leaf;
            loop {
                let read = serde_json::from_str::<Value>(&value.to_string());
                assert_eq!(
                    depth(&value) <= MAX_DEPTH,
                    read.is_ok(),
                    "{}",
                    depth(&value)
                );
                if read.is_err() {
                    break;
                }
                value = json!([value]);
            }
        }
    }
}
