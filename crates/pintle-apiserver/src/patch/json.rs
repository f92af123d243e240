//! JSON patch (RFC 6902) with upstream's leniencies: `replace` of a missing field adds it, negative
//! indices count from the end of a list, and `test` against null passes for a missing field.

use serde_json::Value;

use super::{PatchError, bounded};
use crate::schema::{MAX_DEPTH, depth};

/// The maximum number of operations in a patch.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that all `copy` operations of a patch may add, and that `move`
/// operations may nest deeper. Without a limit, repeated copies grow exponentially.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Applies a list of operations atomically.
///
/// # Errors
///
/// Returns [`PatchError::Malformed`] if the patch is not a list of operations,
/// [`PatchError::Unprocessable`] if a `test` fails, a path is missing or an operation is unknown,
/// and [`PatchError::TooLarge`] if there are more than [`MAX_OPERATIONS`].
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
    };
    for operation in operations {
        work.step(operation).map_err(PatchError::Unprocessable)?;
    }
    *object = work.document;
    Ok(())
}

/// The partially patched document.
struct Work {
    document: Value,
    copied: usize,
}

impl Work {
    fn step(&mut self, operation: &Value) -> Result<(), String> {
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
                format!("{name} operation failed to decode {field}: {why}")
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
            other => Err(format!("Unexpected kind: {other}")),
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

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        fits(path, &value)?;
        let missing = || {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        };
        let (parent, key) = self.parent(path).ok_or_else(missing)?;
        insert(parent, key, value).map_err(|why| format!("error in add for path: '{path}': {why}"))
    }

    fn remove(&mut self, path: &str) -> Result<(), String> {
        let missing = || {
            format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(missing)?;
        let taken = take(parent, &key);
        taken
            .map(drop)
            .map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        fits(path, &value)?;
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                return Err("replace operation value must be object or array".into());
            }
            self.document = value;
            return Ok(());
        }
        let missing = |what: &str| {
            format!(
                "replace operation does not apply: doc is missing {what}: {path}: missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(|| missing("path"))?;
        match parent {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(items) => {
                let index = index(&key, items.len()).map_err(|_| missing("key"))?;
                *items.get_mut(index).ok_or_else(|| missing("key"))? = value;
            }
            _ => return Err(missing("path")),
        }
        Ok(())
    }

    fn relocate(&mut self, from: &str, path: &str) -> Result<(), String> {
        let missing = || {
            format!(
                "move operation does not apply: doc is missing from path: {from}: missing value"
            )
        };
        let (parent, key) = self.parent(from).ok_or_else(missing)?;
        let value =
            take(parent, &key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
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
        let (parent, key) = self.parent(path).ok_or_else(missing)?;
        insert(parent, key, value).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn test(&mut self, path: &str, wanted: &Value) -> Result<(), String> {
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            return if self.document == *wanted {
                Ok(())
            } else {
                Err(failed())
            };
        }
        let missing =
            || format!("test operation does not apply: is missing path: {path}: missing value");
        let (parent, key) = self.parent(path).ok_or_else(missing)?;
        let found = get(parent, &key);
        let found = found.map_err(|why| format!("error in test for path: '{path}': {why}"))?;
        if found.unwrap_or(&Value::Null) == wanted {
            Ok(())
        } else {
            Err(failed())
        }
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), String> {
        let missing = || {
            format!(
                "copy operation does not apply: doc is missing from path: {from}: missing value"
            )
        };
        let (parent, key) = self.parent(from).ok_or_else(missing)?;
        let found = get(parent, &key);
        let found = found.map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        let value = found.cloned().unwrap_or_default();
        self.account(&value)?;
        fits(path, &value)?;
        let missing = || {
            format!(
                "copy operation does not apply: doc is missing destination path: {path}: \
                 missing value"
            )
        };
        let (parent, key) = self.parent(path).ok_or_else(missing)?;
        insert(parent, key, value)
            .map_err(|why| format!("error while adding value during copy: {why}"))
    }

    fn account(&mut self, value: &Value) -> Result<(), String> {
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, \
                 exceeding the limit {MAX_COPIED}",
                self.copied
            ));
        }
        Ok(())
    }
}

/// Checks that the nesting stays within what can be decoded again.
fn fits(path: &str, value: &Value) -> Result<(), String> {
    if path.matches('/').count() + depth(value) > MAX_DEPTH {
        return Err(format!(
            "the patched object nests deeper than {MAX_DEPTH} levels"
        ));
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

fn insert(parent: &mut Value, key: String, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let place = index(&key, items.len() + 1)?;
            items.insert(place, value);
        }
        _ => return Err("unknown object type".into()),
    }
    Ok(())
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(map) => map
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let place = index(key, items.len())?;
            Ok(items.remove(place))
        }
        _ => Err("unknown object type".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::any_json;
    use proptest::prelude::*;
    use serde_json::json;

    /// Proves patch/json.
    #[test]
    fn operations_apply_in_order() {
        let mut object = json!({"a": {"b": [1, 2]}, "x/y": {"~": 1}});
        let patch = json!([
            {"op": "test", "path": "/a/b/0", "value": 1},
            {"op": "test", "path": "/nothing", "value": null},
            {"op": "add", "path": "/a/b/-", "value": 3},
            {"op": "remove", "path": "/a/b/0"},
            {"op": "replace", "path": "/a/b/-1", "value": 4},
            {"op": "replace", "path": "/fresh", "value": true},
            {"op": "copy", "from": "/a/b", "path": "/c"},
            {"op": "move", "from": "/a", "path": "/d"},
            {"op": "remove", "path": "/x~1y/~0"},
        ]);
        apply(&mut object, &patch).unwrap();
        let result = json!({"c": [2, 4], "d": {"b": [2, 4]}, "fresh": true, "x/y": {}});
        assert_eq!(object, result);
    }

    /// Proves patch/json.
    #[test]
    fn failed_patch_leaves_the_object_unchanged() {
        let before = json!({"a": 1, "l": []});
        let mut object = before.clone();
        for malformed in [json!({}), json!([1]), json!("x")] {
            let error = apply(&mut object, &malformed).unwrap_err();
            assert!(matches!(error, PatchError::Malformed(_)), "{error}");
        }
        let cases = [
            (
                json!({"op": "test", "path": "/a", "value": 2}),
                "testing value /a failed: test failed",
            ),
            (
                json!({"op": "remove", "path": "/b"}),
                "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
            ),
            (
                json!({"op": "add", "path": "/b/c", "value": 1}),
                "add operation does not apply: doc is missing path: \"/b/c\": missing value",
            ),
            (
                json!({"op": "add", "path": "/l/1", "value": 1}),
                "error in add for path: '/l/1': Unable to access invalid index: 1: \
                 invalid index referenced",
            ),
            (
                json!({"op": "twist", "path": "/a"}),
                "Unexpected kind: twist",
            ),
        ];
        for (operation, text) in cases {
            let fine = json!({"op": "add", "path": "/c", "value": 1});
            let error = apply(&mut object, &json!([fine, operation])).unwrap_err();
            assert_eq!(error, PatchError::Unprocessable(text.into()));
        }
        assert_eq!(object, before);
    }

    /// Proves wire/size-limits.
    #[test]
    fn number_of_operations_is_limited() {
        let test = json!({"op": "test", "path": "/a", "value": 1});
        let mut object = json!({"a": 1});
        apply(
            &mut object,
            &Value::from(vec![test.clone(); MAX_OPERATIONS]),
        )
        .unwrap();
        let error = apply(&mut object, &Value::from(vec![test; MAX_OPERATIONS + 1])).unwrap_err();
        assert!(matches!(error, PatchError::TooLarge(_)));
    }

    #[test]
    fn nesting_and_copied_bytes_are_limited() {
        let deeper = json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a/a"}]);
        let deeper: Value = (0..400).map(|i| deeper[i % 2].clone()).collect();
        let error = apply(&mut json!({"a": {}}), &deeper).unwrap_err();
        assert!(matches!(error, PatchError::Unprocessable(_)));
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let error = apply(&mut json!({"a": [1]}), &Value::from(vec![double; 40])).unwrap_err();
        assert!(matches!(error, PatchError::Unprocessable(_)));
    }

    proptest! {
        // Proves patch/json.
        #[test]
        fn arbitrary_patches_apply_or_change_nothing(
            mut object in any_json(),
            op in prop_oneof!["add", "remove", "replace", "move", "copy", "test", "other"],
            path in "(/[a-d0-2~-]{0,2}){0,3}",
            from in "(/[a-d0-2~-]{0,2}){0,3}",
            value in any_json(),
        ) {
            let patch = json!([{"op": op, "path": path, "from": from, "value": value}]);
            let before = object.clone();
            if apply(&mut object, &patch).is_err() {
                prop_assert_eq!(object, before);
            }
        }
    }
}
