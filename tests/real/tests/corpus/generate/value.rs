//! Values that satisfy a schema, and places in an object.

use serde_json::{Map, Value, json};

use super::text;

/// How deep optional fields are generated.
const DEPTH: usize = 5;

/// The maximum number of values in an object.
const MOST: usize = 150;

/// How much of an object is generated.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Extent {
    Required,
    All,
}

/// A step from a schema to one below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Property(String),
    Item,
    Key,
}

pub(super) struct Values<'a> {
    pub(super) schema: &'a Value,
}

impl Values<'_> {
    /// Returns an object for the schema of a kind.
    pub(super) fn root(&self, extent: Extent) -> Value {
        let mut budget = MOST;
        value(self.schema, extent, 0, &mut budget)
    }
}

/// Returns a value of a schema with only the required fields.
pub(super) fn smallest(schema: &Value) -> Value {
    value(schema, Extent::Required, 0, &mut MOST.clone())
}

/// Returns a value of a schema with optional fields.
pub(super) fn largest(schema: &Value) -> Value {
    value(schema, Extent::All, 2, &mut MOST.clone())
}

fn value(schema: &Value, extent: Extent, depth: usize, budget: &mut usize) -> Value {
    *budget = budget.saturating_sub(1);
    if let Some(options) = schema["enum"].as_array() {
        let some = options.iter().find(|it| !it.is_null() && **it != "");
        return some.or(options.first()).cloned().unwrap_or_default();
    }
    if !schema["default"].is_null() {
        return schema["default"].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return int_or_string(schema);
    }
    match schema["type"].as_str() {
        Some("boolean") => true.into(),
        Some("integer") => integer(schema).into(),
        Some("number") => json!(
            schema["minimum"]
                .as_f64()
                .unwrap_or(1.5)
                .max(1.5)
                .min(schema["maximum"].as_f64().unwrap_or(f64::MAX))
        ),
        Some("string") => text::valid(schema).into(),
        Some("array") => array(schema, extent, depth, budget),
        _ => object(schema, extent, depth, budget),
    }
}

fn int_or_string(schema: &Value) -> Value {
    if schema["pattern"].is_string() {
        text::valid(schema).into()
    } else {
        1.into()
    }
}

fn integer(schema: &Value) -> i64 {
    let bound = |name: &str| {
        let bound = &schema[name];
        #[allow(clippy::cast_possible_truncation, reason = "bounds of integers")]
        bound
            .as_i64()
            .or_else(|| bound.as_f64().map(|it| it as i64))
    };
    let exclusive = |name: &str| i64::from(schema[name] == true);
    let least = bound("minimum").map_or(i64::MIN, |it| it + exclusive("exclusiveMinimum"));
    let most = bound("maximum").map_or(i64::MAX, |it| it - exclusive("exclusiveMaximum"));
    let step = bound("multipleOf").filter(|it| *it > 0).unwrap_or(1);
    let near = 1_i64.max(least).min(most);
    near.checked_add((step - near.rem_euclid(step)) % step)
        .unwrap_or(near)
}

fn array(schema: &Value, extent: Extent, depth: usize, budget: &mut usize) -> Value {
    let least = schema["minItems"].as_u64().unwrap_or(0);
    let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
    let optional = u64::from(extent == Extent::All && depth < DEPTH && *budget > 0);
    let count = least.max(optional).min(most).min(20);
    let items = &schema["items"];
    let all = (0..count).map(|index| {
        let mut item = value(items, extent, depth + 1, budget);
        if index > 0 {
            vary(&mut item, index);
        }
        item
    });
    all.collect()
}

/// Makes the items of a set distinct.
fn vary(item: &mut Value, index: u64) {
    match item {
        Value::String(text) => text.push_str(&index.to_string()),
        Value::Number(_) => *item = (index + 1).into(),
        Value::Object(map) => {
            if let Some(text) = map.get_mut("name").filter(|it| it.is_string()) {
                vary(text, index);
            } else if let Some(text) = map.values_mut().find(|it| it.is_string()) {
                vary(text, index);
            }
        }
        _ => {}
    }
}

fn object(schema: &Value, extent: Extent, depth: usize, budget: &mut usize) -> Value {
    let mut map = Map::new();
    if schema["x-kubernetes-embedded-resource"] == true {
        map.insert("apiVersion".to_owned(), "v1".into());
        map.insert("kind".to_owned(), "ConfigMap".into());
        map.insert("metadata".to_owned(), json!({ "name": "a" }));
    }
    let mut wanted = names(&schema["required"]);
    let mut unwanted = Vec::new();
    for clauses in ["oneOf", "anyOf"] {
        let lists: Vec<Vec<String>> = schema[clauses]
            .as_array()
            .into_iter()
            .flatten()
            .map(|clause| names(&clause["required"]))
            .collect();
        if let Some((first, others)) = lists.split_first() {
            if clauses == "oneOf" {
                let other = others.iter().flatten().filter(|it| !first.contains(it));
                unwanted.extend(other.cloned());
            }
            wanted.extend(first.iter().cloned());
        }
    }
    for (name, property) in properties(schema) {
        let optional = extent == Extent::All
            && depth < DEPTH
            && *budget > 0
            && !unwanted.contains(name)
            && !(depth == 0 && matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
        if (optional || wanted.contains(name)) && !map.contains_key(name) && depth < 24 {
            map.insert(name.clone(), value(property, extent, depth + 1, budget));
        }
    }
    let values = &schema["additionalProperties"];
    let least = schema["minProperties"].as_u64().unwrap_or(0);
    let more = extent == Extent::All && depth < DEPTH && *budget > 0;
    if values.is_object() && (least > 0 || more) {
        map.insert("key".to_owned(), value(values, extent, depth + 1, budget));
    } else if (map.len() as u64) < least
        && let Some((name, property)) = properties(schema).find(|it| !map.contains_key(it.0))
    {
        map.insert(name.clone(), value(property, extent, depth + 1, budget));
    }
    map.into()
}

pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

pub(super) fn names(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|it| it.as_str().map(str::to_owned))
        .collect()
}

/// Returns the schema below another.
pub(super) fn below<'a>(schema: &'a Value, step: &Step) -> &'a Value {
    match step {
        Step::Property(name) => &schema["properties"][name.as_str()],
        Step::Item => &schema["items"],
        Step::Key => &schema["additionalProperties"],
    }
}

/// Returns the value at a place, creating missing parents.
pub(super) fn at<'v>(object: &'v mut Value, schema: &Value, path: &[Step]) -> &'v mut Value {
    let mut here = object;
    let mut schema = schema;
    for step in path {
        schema = below(schema, step);
        here = match step {
            Step::Property(name) => entry(here, name, schema),
            Step::Key => entry(here, "key", schema),
            Step::Item => {
                if !here.is_array() {
                    *here = json!([]);
                }
                if here == &json!([]) {
                    *here = json!([smallest(schema)]);
                }
                &mut here[0]
            }
        };
    }
    here
}

fn entry<'v>(here: &'v mut Value, name: &str, schema: &Value) -> &'v mut Value {
    if !here.is_object() {
        *here = json!({});
    }
    if here[name].is_null() {
        here[name] = smallest(schema);
    }
    &mut here[name]
}

/// Returns changed objects that may have fewer problems at a field, such as `spec.list[0].name`.
pub(super) fn repairs(schema: &Value, object: &Value, field: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let path = segments(field);
    // Add the field, drop it, or drop one of those above or below it.
    let mut with = object.clone();
    if let Some((place, last)) = resolve(&mut with, schema, &path) {
        *place = smallest(last);
        found.push(with);
    }
    for end in (1..=path.len()).rev() {
        let mut without = object.clone();
        if remove(&mut without, &path[..end]) {
            found.push(without);
        }
    }
    let mut here = object;
    for segment in &path {
        here = match segment.parse::<usize>() {
            Ok(index) if here.is_array() => &here[index],
            _ => &here[segment.as_str()],
        };
    }
    for name in here.as_object().into_iter().flat_map(Map::keys) {
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let mut without = object.clone();
        let below: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        if remove(&mut without, &below) {
            found.push(without);
        }
    }
    found
}

/// Splits `spec.list[0].name` into segments.
fn segments(field: &str) -> Vec<String> {
    if field == "<nil>" {
        return Vec::new();
    }
    let flat = field.replace('[', ".").replace(']', "");
    flat.split('.')
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the place of a field, if all above it exist, with its schema.
fn resolve<'v, 's>(
    object: &'v mut Value,
    schema: &'s Value,
    path: &[String],
) -> Option<(&'v mut Value, &'s Value)> {
    let (mut here, mut schema) = (object, schema);
    for (depth, segment) in path.iter().enumerate() {
        let last = depth + 1 == path.len();
        if here.is_array() {
            schema = &schema["items"];
            here = here.get_mut(segment.parse::<usize>().ok()?)?;
        } else {
            let known = schema["properties"].get(segment);
            schema = known.unwrap_or(&schema["additionalProperties"]);
            let map = here.as_object_mut()?;
            here = if last {
                map.entry(segment.clone()).or_insert(Value::Null)
            } else {
                map.get_mut(segment)?
            };
        }
    }
    schema.is_object().then_some((here, schema))
}

fn remove(object: &mut Value, path: &[String]) -> bool {
    let Some((last, above)) = path.split_last() else {
        return false;
    };
    let mut here = object;
    for segment in above {
        let next = match segment.parse::<usize>() {
            Ok(index) if here.is_array() => here.get_mut(index),
            _ => here.get_mut(segment.as_str()),
        };
        let Some(next) = next else { return false };
        here = next;
    }
    match here {
        Value::Object(map) => map.remove(last).is_some(),
        Value::Array(items) => match last.parse::<usize>() {
            Ok(index) if index < items.len() => {
                items.remove(index);
                true
            }
            _ => false,
        },
        _ => false,
    }
}
