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

/// How deeply an object may nest.
///
/// JSON readers in common use stop here; an object nested deeper could be stored and then never be
/// read again, and the recursive walks of this crate would have no bound.
pub(crate) const MAX_DEPTH: usize = 128;

/// How deeply a value nests: a scalar counts as 1, `[[]]` as 2.
///
/// Counts without recursion, and stops counting beyond [`MAX_DEPTH`].
pub(crate) fn depth(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    let mut deepest = 0;
    let mut open: Vec<(&Value, usize)> = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        if deepest > MAX_DEPTH {
            break;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, level + 1))),
            _ => {}
        }
    }
    deepest
}
