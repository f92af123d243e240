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

pub(crate) mod field;
pub(crate) mod field_paths;
pub(crate) mod prepare;
pub(crate) mod rules;
pub(crate) mod structural;
pub(crate) mod typed;

/// The maximum nesting of an object, counted in containers.
///
/// `serde_json` refuses to read anything deeper: such an object could be stored but never decoded
/// again. The limit also bounds the recursive walks of this crate.
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Proves errors/depth.
    #[test]
    fn depth_limit_is_what_serde_json_reads() {
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
