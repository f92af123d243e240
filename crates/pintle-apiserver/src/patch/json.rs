//! JSON patch (RFC 6902) with upstream's leniencies: `replace` of a missing field adds it, negative
//! indices count from the end of a list, and `test` against null passes for a missing field.

use serde_json::Value;

use super::{PatchError, bounded};
use crate::schema::{MAX_DEPTH, depth};

/// The maximum number of operations in a patch.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that the `copy` operations of a patch may add, including values that
/// `move` operations nest deeper. Without a limit, repeated copies grow exponentially.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The maximum number of list items that all operations of a patch may shift. Without a limit, a
/// few insertions at the start of a long list could take minutes.
const MAX_SHIFTED: usize = 50_000_000;

/// Applies a list of operations atomically.
///
/// # Errors
///
/// Returns [`PatchError::Malformed`] if the patch is not a list of operations,
/// [`PatchError::Unprocessable`] if a `test` fails, a path is missing or an operation is unknown,
/// [`PatchError::TooDeep`] if the result could not be decoded again, and [`PatchError::TooLarge`]
/// if there are more than [`MAX_OPERATIONS`] or they shift more than [`MAX_SHIFTED`] list items.
pub(crate) fn apply(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let malformed = || {
        PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            super::json_kind(patch)
        ))
    };
    let operations = patch.as_array().ok_or_else(malformed)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    if !operations.iter().all(Value::is_object) {
        return Err(malformed());
    }
    bounded(patch)?;
    let mut work = Work {
        document: object.clone(),
        copied: 0,
        shifted: 0,
    };
    for operation in operations {
        work.step(operation)?;
    }
    *object = work.document;
    Ok(())
}

/// The partially patched document.
struct Work {
    document: Value,
    copied: usize,
    shifted: usize,
}

impl Work {
    fn step(&mut self, operation: &Value) -> Result<(), PatchError> {
        let name = operation
            .get("op")
            .and_then(Value::as_str)
            .unwrap_or("unknown");
        let word = |field: &str| operation.get(field).and_then(Value::as_str);
        let path = |field: &str| {
            let missing = || match field {
                "from" => "operation, missing from field: missing value",
                _ => "operation missing path field: missing value",
            };
            word(field).ok_or_else(|| {
                let why = missing();
                refused(format!("{name} operation failed to decode {field}: {why}"))
            })
        };
        let value = || operation.get("value").cloned().unwrap_or_default();
        match name {
            "add" => self.add(path("path")?, value()),
            "remove" => self.remove(path("path")?),
            "replace" => self.replace(path("path")?, value()),
            "move" => {
                let from = path("from")?;
                self.relocate(from, path("path")?)
            }
            "test" => self.test(path("path")?, &value()),
            "copy" => {
                let from = path("from")?;
                self.copy(from, path("path")?)
            }
            other => Err(refused(format!("Unexpected kind: {other}"))),
        }
    }

    /// Returns the container that a path leads into, and the key in it.
    fn parent(&mut self, path: &str) -> Option<(&mut Value, String)> {
        let mut keys = path.split('/').skip(1).map(unescape);
        let mut key = keys.next()?;
        let mut at = &mut self.document;
        for next in keys {
            at = match at {
                Value::Object(map) => map.get_mut(&key)?,
                Value::Array(items) => {
                    let index = index(&key, items.len()).ok()?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
            key = next;
        }
        matches!(at, Value::Object(_) | Value::Array(_)).then_some((at, key))
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        fits(path, &value)?;
        let missing = || {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        };
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing()))?;
        let shifted = insert(parent, key, value)
            .map_err(|why| refused(format!("error in add for path: '{path}': {why}")))?;
        self.shift(shifted)
    }

    fn remove(&mut self, path: &str) -> Result<(), PatchError> {
        let missing = || {
            format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing()))?;
        let (_, shifted) = take(parent, &key)
            .map_err(|why| refused(format!("error in remove for path: '{path}': {why}")))?;
        self.shift(shifted)
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        fits(path, &value)?;
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                let why = "replace operation value must be object or array";
                return Err(refused(why.to_owned()));
            }
            self.document = value;
            return Ok(());
        }
        let missing = |what: &str| {
            format!(
                "replace operation does not apply: doc is missing {what}: {path}: missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing("path")))?;
        match parent {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(items) => {
                let index = index(&key, items.len()).map_err(|_| refused(missing("key")))?;
                *items
                    .get_mut(index)
                    .ok_or_else(|| refused(missing("key")))? = value;
            }
            _ => return Err(refused(missing("path"))),
        }
        Ok(())
    }

    fn relocate(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let missing = || {
            format!(
                "move operation does not apply: doc is missing from path: {from}: missing value"
            )
        };
        let (parent, key) = self.parent(from).ok_or_else(|| refused(missing()))?;
        let (value, shifted) = take(parent, &key)
            .map_err(|why| refused(format!("error in move for path: '{key}': {why}")))?;
        self.shift(shifted)?;
        if path.matches('/').count() > from.matches('/').count() {
            self.account(&value)?;
            fits(path, &value)?;
        }
        let missing = || {
            format!(
                "move operation does not apply: doc is missing destination path: {path}: \
                 missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing()))?;
        let shifted = insert(parent, key, value)
            .map_err(|why| refused(format!("error in move for path: '{path}': {why}")))?;
        self.shift(shifted)
    }

    fn test(&mut self, path: &str, wanted: &Value) -> Result<(), PatchError> {
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            return if self.document == *wanted {
                Ok(())
            } else {
                Err(refused(failed()))
            };
        }
        let missing =
            || format!("test operation does not apply: is missing path: {path}: missing value");
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing()))?;
        let found = get(parent, &key);
        let found =
            found.map_err(|why| refused(format!("error in test for path: '{path}': {why}")))?;
        if found.unwrap_or(&Value::Null) == wanted {
            Ok(())
        } else {
            Err(refused(failed()))
        }
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), PatchError> {
        let missing = || {
            format!(
                "copy operation does not apply: doc is missing from path: {from}: missing value"
            )
        };
        let (parent, key) = self.parent(from).ok_or_else(|| refused(missing()))?;
        let found = get(parent, &key);
        let found =
            found.map_err(|why| refused(format!("error in copy for from: '{from}': {why}")))?;
        let value = found.cloned().unwrap_or_default();
        self.account(&value)?;
        fits(path, &value)?;
        let missing = || {
            format!(
                "copy operation does not apply: doc is missing destination path: {path}: \
                 missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(|| refused(missing()))?;
        let shifted = insert(parent, key, value)
            .map_err(|why| refused(format!("error while adding value during copy: {why}")))?;
        self.shift(shifted)
    }

    fn shift(&mut self, items: usize) -> Result<(), PatchError> {
        self.shifted += items;
        if self.shifted > MAX_SHIFTED {
            return Err(PatchError::TooLarge(format!(
                "a JSON patch may shift at most {MAX_SHIFTED} list items"
            )));
        }
        Ok(())
    }

    fn account(&mut self, value: &Value) -> Result<(), PatchError> {
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED {
            return Err(refused(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, \
                 exceeding the limit {MAX_COPIED}",
                self.copied
            )));
        }
        Ok(())
    }
}

/// Returns the error for an operation that does not apply.
fn refused(why: String) -> PatchError {
    PatchError::Unprocessable(why)
}

/// Checks that the nesting stays within what can be decoded again.
fn fits(path: &str, value: &Value) -> Result<(), PatchError> {
    if path.matches('/').count() + depth(value) > MAX_DEPTH {
        return Err(PatchError::TooDeep);
    }
    Ok(())
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// Resolves an index into a list of `length`. Negative indices count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key
        .parse()
        .map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let invalid = || format!("Unable to access invalid index: {number}: invalid index referenced");
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let place = if number < 0 { number + length } else { number };
    if place < 0 || place >= length {
        return Err(invalid());
    }
    usize::try_from(place).map_err(|_| invalid())
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Array(items) => Ok(items.get(index(key, items.len())?)),
        other => Ok(other.get(key)),
    }
}

/// Adds a value to an object or list, and returns how many items it shifted.
fn insert(parent: &mut Value, key: String, value: Value) -> Result<usize, String> {
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let place = index(&key, items.len() + 1)?;
            items.insert(place, value);
            return Ok(items.len() - place);
        }
        _ => return Err("unknown object type".into()),
    }
    Ok(0)
}

/// Removes a value from an object or list, and returns it with the number of items it shifted.
fn take(parent: &mut Value, key: &str) -> Result<(Value, usize), String> {
    match parent {
        Value::Object(map) => map
            .remove(key)
            .map(|value| (value, 0))
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let place = index(key, items.len())?;
            let value = items.remove(place);
            Ok((value, items.len() - place))
        }
        _ => Err("unknown object type".into()),
    }
}

#[cfg(test)]
mod tests;
