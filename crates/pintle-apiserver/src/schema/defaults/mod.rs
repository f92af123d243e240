//! Default values of built-in kinds.
//!
//! Defaults come from three sources: literals in the published schemas, a table of literals that
//! the schemas mention only in prose (`literals`), and functions for fields that depend on others
//! (`computed`). They apply to every value of a type wherever it occurs, parents before children.

mod computed;
mod literals;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::builtin::{FieldType, TypeRef, named, types};

/// Sets defaults of one type that depend on other fields.
type Rule = fn(&mut Map<String, Value>);

/// The defaults of one type.
#[derive(Default)]
struct Defaults {
    literals: Vec<(&'static str, Value)>,
    rule: Option<Rule>,
}

/// Indexed by [`TypeRef::index`].
static ALL: LazyLock<Vec<Defaults>> = LazyLock::new(|| {
    let mut all: Vec<Defaults> = Vec::new();
    all.resize_with(types().count(), Defaults::default);
    for (name, fields) in literals::ALL {
        if let Some(ty) = named(name) {
            let parsed = fields
                .iter()
                .filter_map(|(field, literal)| Some((*field, serde_json::from_str(literal).ok()?)));
            all[ty.index()].literals.extend(parsed);
        }
    }
    for (name, rule) in computed::ALL {
        if let Some(ty) = named(name) {
            all[ty.index()].rule = Some(*rule);
        }
    }
    all
});

/// Applies defaults to an object that has been decoded by
/// [`canonicalize`](super::typed::canonicalize). Idempotent.
pub(crate) fn apply(object: &mut Value, ty: TypeRef) {
    if let Value::Object(map) = object {
        fill(map, ty);
    }
}

fn fill(map: &mut Map<String, Value>, ty: TypeRef) {
    let known = ty.get();
    if known.leaf.is_some() {
        return;
    }
    let defaults = ALL.get(ty.index());
    if let Some(rule) = defaults.and_then(|defaults| defaults.rule) {
        rule(map);
    }
    let literals = defaults.into_iter().flat_map(|defaults| &defaults.literals);
    for (name, literal) in known.defaults.iter().chain(literals) {
        let Some(field) = ty.field(name) else {
            continue;
        };
        if unset(map.get(*name), field.pointer) {
            map.insert((*name).to_owned(), literal.clone());
        }
    }
    for (name, value) in map.iter_mut() {
        if let Some(field) = ty.field(name) {
            below(value, &field.ty);
        }
    }
}

fn below(value: &mut Value, ty: &FieldType) {
    match (ty, value) {
        (FieldType::Named(ty), Value::Object(map)) => fill(map, *ty),
        (FieldType::List(item) | FieldType::Wrapped(item), Value::Array(items)) => {
            if matches!(**item, FieldType::Named(_)) {
                for value in items {
                    below(value, item);
                }
            }
        }
        (FieldType::Map(of), Value::Object(map)) => {
            if matches!(**of, FieldType::Named(_)) {
                for value in map.values_mut() {
                    below(value, of);
                }
            }
        }
        _ => {}
    }
}

/// Returns true if a field is unset: absent, null or, unless it is a `pointer`, zero or empty.
/// `false` counts as set.
fn unset(value: Option<&Value>, pointer: bool) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(_) if pointer => false,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Bool(_)) => false,
    }
}
