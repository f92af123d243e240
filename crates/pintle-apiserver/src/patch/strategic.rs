//! Strategic merge patch: a merge patch that knows which lists are keyed or sets.
//!
//! The type of a field determines how it merges ([`PatchStrategy`]): a list is replaced, or its
//! items merge by a key; a map merges, is replaced, or retains only the named keys. A patch can
//! override this with directives:
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: replace` | map, item | replaces with the patch as is |
//! | `$patch: delete` | map, item | empties the map, removes the item |
//! | `$retainKeys: [..]` | map | drops every other key |
//! | `$deleteFromPrimitiveList/f: [..]` | next to `f` | removes these values |
//! | `$setElementOrder/f: [..]` | next to `f` | sets the order of the items |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{PatchError, bounded, go_text};
use crate::schema::builtin::{FieldType, PatchStrategy, TypeRef};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch to an object of a built-in type.
pub(crate) fn apply(object: &mut Value, patch: Value, ty: TypeRef) -> Result<(), PatchError> {
    bounded(&patch)?;
    let Value::Object(patch) = patch else {
        let why = "a strategic merge patch must be an object";
        return Err(PatchError::Malformed(why.into()));
    };
    let original = match object {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let merged = Value::Object(merge_map(original, patch, Scope::Type(ty))?);
    bounded(&merged)?;
    *object = merged;
    Ok(())
}

/// The type of the map that is being merged.
#[derive(Clone, Copy)]
enum Scope<'a> {
    /// A value of this type.
    Type(TypeRef),
    /// A map with values of this type.
    Values(&'a FieldType),
    /// Unknown.
    Open,
}

/// How one field merges.
struct Rule<'a> {
    strategy: PatchStrategy,
    key: Option<&'a str>,
    below: Scope<'a>,
}

impl<'a> Scope<'a> {
    fn of(ty: &'a FieldType) -> Self {
        match ty {
            FieldType::Named(ty) if ty.get().leaf.is_none() => Self::Type(*ty),
            FieldType::List(item) | FieldType::Wrapped(item) => Self::of(item),
            FieldType::Map(value) => Self::Values(value),
            _ => Self::Open,
        }
    }

    fn rule(self, name: &str) -> Rule<'a> {
        let open = Rule {
            strategy: PatchStrategy::default(),
            key: None,
            below: Scope::Open,
        };
        match self {
            Self::Type(ty) => ty.field(name).map_or(open, |field| Rule {
                strategy: field.patch_strategy,
                key: field.patch_merge_key,
                below: Scope::of(&field.ty),
            }),
            Self::Values(ty) => Rule {
                below: Scope::of(ty),
                ..open
            },
            Self::Open => open,
        }
    }
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    scope: Scope<'_>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other, &patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    set_order(&mut original, &mut patch, scope)?;
    for (name, change) in patch {
        if let Some(name) = name.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(items)), Value::Array(gone)) =
                (original.get_mut(name), &change)
            {
                let gone: BTreeSet<String> = gone.iter().map(Value::to_string).collect();
                items.retain(|item| !gone.contains(&item.to_string()));
            }
            continue;
        }
        if change.is_null() {
            original.remove(&name);
            continue;
        }
        let rule = scope.rule(&name);
        let merged = match (original.remove(&name), change) {
            (Some(Value::Object(before)), Value::Object(change)) => {
                Some(Value::Object(if rule.strategy.replace {
                    change
                } else {
                    merge_map(before, change, rule.below)?
                }))
            }
            (Some(Value::Array(before)), Value::Array(change)) => {
                Some(Value::Array(if rule.strategy.merge {
                    merge_list(before, change, &rule)?
                } else {
                    change
                }))
            }
            (_, change) => plain(change),
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }
    Ok(original)
}

/// Returns a new value without nulls and directives; `None` if the value is itself a directive.
fn plain(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            Some(Value::Object(
                fields.filter_map(|(k, v)| Some((k, plain(v)?))).collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(plain).collect())),
        other => Some(other),
    }
}

fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let Value::Array(keys) = keys else {
        return Err(bad());
    };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    for (name, value) in &*patch {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(ORDER);
        if !value.is_null() && !directive && !keys.contains(name.as_str()) {
            return Err(bad());
        }
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// Merges lists that have a `$setElementOrder` directive and sorts them accordingly.
fn set_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    scope: Scope<'_>,
) -> Result<(), PatchError> {
    let names = patch
        .keys()
        .filter_map(|name| name.strip_prefix(ORDER).map(str::to_owned));
    for name in names.collect::<Vec<String>>() {
        let order = list(patch.remove(&format!("{ORDER}{name}")))?.unwrap_or_default();
        let rule = scope.rule(&name);
        let before = list(original.get(&name).cloned())?;
        let change = list(patch.get(&name).cloned())?;
        check_order(change.as_deref().unwrap_or_default(), &order, rule.key)?;
        let server_order = before.clone().unwrap_or_default();
        let merged = match (before, change) {
            (Some(before), None) => before,
            (None, Some(change)) => change.into_iter().filter_map(plain).collect(),
            (Some(before), Some(change)) if rule.strategy.merge => {
                merge_list(before, change, &rule)?
            }
            (Some(_), Some(change)) => change,
            (None, None) => continue,
        };
        original.insert(
            name.clone(),
            arrange(merged, &order, &server_order, rule.key)?.into(),
        );
        patch.remove(&name);
    }
    Ok(())
}

fn list(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(PatchError::Unmergeable(format!(
            "expected a []interface {{}}, but received a {}",
            go_kind(&other)
        ))),
    }
}

/// Checks that items in the patch appear in the order that the patch requests.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in change.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let id = identity(item, key)?;
        let mut ids = wanted.by_ref().map(|item| identity(item, key));
        if !ids.any(|other| other.is_ok_and(|other| other == id)) {
            return Err(PatchError::Unmergeable(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_text(&Value::Array(change.to_vec())),
                go_text(&Value::Array(order.to_vec())),
            )));
        }
    }
    Ok(())
}

/// Returns the identity of an item: its merge key, or the item itself.
fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    match key {
        None => Ok(item.to_string()),
        Some(key) => match item.get(key) {
            Some(value) => Ok(value.to_string()),
            None => Err(no_key(item, key)),
        },
    }
}

fn no_key(item: &Value, key: &str) -> PatchError {
    let shown = go_text(item);
    PatchError::Unmergeable(format!(
        "map: {shown} does not contain declared merge key: {key}"
    ))
}

fn merge_list(
    before: Vec<Value>,
    change: Vec<Value>,
    rule: &Rule<'_>,
) -> Result<Vec<Value>, PatchError> {
    same_kind(&before, &change)?;
    let maps = before
        .first()
        .or(change.first())
        .is_some_and(Value::is_object);
    if !maps {
        let mut seen = BTreeSet::new();
        let both = before.iter().chain(&change).cloned();
        let merged = both.filter(|item| seen.insert(item.to_string())).collect();
        return arrange(merged, &change, &before, None);
    }
    let Some(key) = rule.key else {
        return Err(PatchError::Unmergeable(
            "cannot merge lists without merge key".into(),
        ));
    };
    let (mut before, change) = special_items(before, change, key)?;
    // Index the first item of each key, so that merging is linear instead of quadratic.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (i, item) in before.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(value.to_string()).or_insert(i);
        }
    }
    let server_order = before.clone();
    for item in &change {
        let id = identity(item, Some(key))?;
        let Value::Object(item) = item.clone() else {
            continue;
        };
        if let Some(found) = places.get(&id).and_then(|at| before.get_mut(*at)) {
            let map = match found.take() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            *found = Value::Object(merge_map(map, item, rule.below)?);
        } else {
            places.insert(id, before.len());
            before.extend(plain(Value::Object(item)));
        }
    }
    arrange(before, &change, &server_order, Some(key))
}

/// Removes items with directives from the patch and applies those directives.
fn special_items(
    mut before: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut items = Vec::with_capacity(change.len());
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for item in change {
        match item.get(DIRECTIVE) {
            None => items.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                gone.insert(identity(&item, Some(key))?);
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unmergeable(why.into()));
            }
            Some(other) => {
                let map = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(other, &map));
            }
        }
    }
    if replace {
        return Ok((items, Vec::new()));
    }
    before.retain(|item| {
        item.get(key)
            .is_none_or(|value| !gone.contains(&value.to_string()))
    });
    Ok((before, items))
}

fn same_kind(before: &[Value], change: &[Value]) -> Result<(), PatchError> {
    let mut all = before.iter().chain(change);
    let Some(first) = all.next() else {
        return Ok(());
    };
    if first.is_array() {
        return Err(PatchError::Unprocessable(
            "lists of lists are not supported".into(),
        ));
    }
    let kind = go_kind(first);
    if all.any(|item| go_kind(item) != kind) {
        let shown = |items: &[Value]| go_text(&Value::Array(items.to_vec()));
        return Err(PatchError::Unmergeable(format!(
            "list element types are not identical: [{} {}]",
            shown(before),
            shown(change)
        )));
    }
    Ok(())
}

/// Sorts items of the patch in patch order and puts the others where the server had them.
fn arrange(
    items: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let places = |list: &[Value]| {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (i, item) in list.iter().enumerate() {
            if let Ok(id) = identity(item, key) {
                places.entry(id).or_insert(i);
            }
        }
        places
    };
    let (wanted, had) = (places(order), places(server_order));
    let mut ours: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut theirs: Vec<(Option<usize>, Value)> = Vec::new();
    for item in items {
        let id = identity(&item, key)?;
        let before = had.get(&id).copied();
        match wanted.get(&id) {
            Some(place) => ours.push((*place, before, item)),
            None => theirs.push((before, item)),
        }
    }
    ours.sort_by_key(|(place, _, _)| *place);
    theirs.sort_by_key(|(before, _)| *before);
    let mut merged = Vec::with_capacity(ours.len() + theirs.len());
    let mut theirs = theirs.into_iter().peekable();
    for (_, before, item) in ours {
        // Items that preceded this one on the server still do.
        while theirs
            .peek()
            .is_some_and(|(at, _)| at.is_some() && before.is_some() && *at < before)
        {
            merged.extend(theirs.next().map(|(_, item)| item));
        }
        merged.push(item);
    }
    merged.extend(theirs.map(|(_, item)| item));
    Ok(merged)
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    let directive = go_text(directive);
    let map = go_text(&Value::Object(map.clone()));
    PatchError::Unmergeable(format!("unknown patch type: {directive} in map: {map}"))
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
