//! Walks a schema and derives, for every constraint, a change that violates it.
//!
//! Whether the result is really invalid does not matter: both servers get the same object.

use serde_json::{Value, json};

use super::value::{Step, at, below, largest, names, properties, smallest};

/// The maximum number of violations of one schema, and how deep it is walked.
const MOST: usize = 6_000;
const DEPTH: usize = 14;

/// The longest string and list that a violation uses.
const LONGEST: u64 = 5_000;
const MOST_ITEMS: u64 = 300;

/// A change to one field.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    path: Vec<Step>,
    kind: &'static str,
    detail: String,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    Set(Value),
    Remove(String),
    Insert(String, Value),
    /// Repeats the items of a list until it has that many.
    Repeat(u64),
}

impl Violation {
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(super) fn label(&self) -> String {
        let mut place = String::new();
        for step in &self.path {
            match step {
                Step::Property(name) => {
                    place.push('.');
                    place.push_str(name);
                }
                Step::Item => place.push_str("[]"),
                Step::Key => place.push_str("{}"),
            }
        }
        format!("{}{}{place}", self.kind, self.detail).replace(' ', "_")
    }

    pub(super) fn apply(&self, object: &Value, schema: &Value) -> Value {
        let mut object = object.clone();
        let here = at(&mut object, schema, &self.path);
        match &self.change {
            Change::Set(value) => *here = value.clone(),
            Change::Remove(name) => {
                if let Some(map) = here.as_object_mut() {
                    map.remove(name);
                }
            }
            Change::Insert(name, value) => {
                if let Some(map) = here.as_object_mut() {
                    map.insert(name.clone(), value.clone());
                }
            }
            Change::Repeat(count) => {
                if let Some(items) = here.as_array_mut()
                    && let Some(first) = items.first().cloned()
                {
                    while (items.len() as u64) < *count {
                        items.push(first.clone());
                    }
                }
            }
        }
        object
    }
}

pub(super) fn violations(schema: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found);
    found
}

fn walk(schema: &Value, path: &mut Vec<Step>, found: &mut Vec<Violation>) {
    if path.len() > DEPTH || found.len() > MOST {
        return;
    }
    let mut add = |kind, detail: String, change| {
        found.push(Violation {
            path: path.clone(),
            kind,
            detail,
            change,
        });
    };
    let none = String::new;
    let set = Change::Set;
    let kind = schema["type"].as_str().unwrap_or_default();
    if !path.is_empty() {
        let wrong = match kind {
            "string" => json!(12),
            "integer" | "number" | "object" => json!("text"),
            "boolean" => json!("yes"),
            "array" => json!({ "a": 1 }),
            _ => json!(true),
        };
        add("type", none(), set(wrong));
        add("null", none(), set(Value::Null));
    }
    if schema["enum"].is_array() {
        add("enum", none(), set(json!("not-an-option")));
    }
    scalars(schema, &mut add);
    let items = &schema["items"];
    if items.is_object() {
        if schema["minItems"].as_u64().is_some_and(|it| it > 0) {
            add("min-items", none(), set(json!([])));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|it| *it < MOST_ITEMS) {
            let item = smallest(items);
            add("max-items", none(), set(json!([item])));
            add("max-items", "+1".to_owned(), Change::Repeat(most + 1));
        }
        if matches!(
            schema["x-kubernetes-list-type"].as_str(),
            Some("set" | "map")
        ) {
            let item = smallest(items);
            add("unique", none(), set(json!([item, item])));
            let item = largest(items);
            add("unique", "-all".to_owned(), set(json!([item, item])));
        }
    }
    if kind == "object" {
        for name in names(&schema["required"]) {
            add("required", format!("-{name}"), Change::Remove(name));
        }
        add(
            "unknown",
            none(),
            Change::Insert("unknownField".to_owned(), json!({ "a": [1] })),
        );
        if schema["minProperties"].is_u64() {
            add("min-properties", none(), set(json!({})));
        }
        if let Some(most) = schema["maxProperties"]
            .as_u64()
            .filter(|it| *it < MOST_ITEMS)
        {
            let value = smallest(&schema["additionalProperties"]);
            let many = (0..=most).map(|index| (format!("key{index}"), value.clone()));
            add("max-properties", none(), set(many.collect()));
        }
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add("embedded", none(), set(json!({})));
        add(
            "embedded",
            "-name".to_owned(),
            set(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "A b", "x": 1 }, "data": { "a": "b" },
            })),
        );
        add(
            "embedded",
            "-type".to_owned(),
            set(json!({ "apiVersion": "", "kind": 3 })),
        );
    }
    for clauses in ["oneOf", "anyOf"] {
        for (index, clause) in schema[clauses].as_array().into_iter().flatten().enumerate() {
            let mut value = smallest(schema);
            for name in names(&clause["required"]) {
                if value.is_object() {
                    value[name.as_str()] = smallest(&schema["properties"][name.as_str()]);
                }
            }
            add("clause", format!("-{clauses}-{index}"), set(value));
        }
    }
    rules(schema, &mut add);
    let mut each = |step: Step, schema: &Value| {
        path.push(step);
        walk(schema, path, found);
        path.pop();
    };
    let top = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata");
    let root = each_is_root(schema);
    for (name, property) in properties(schema) {
        if !(root && top(name)) {
            each(Step::Property(name.clone()), property);
        }
    }
    for step in [Step::Item, Step::Key] {
        let schema = below(schema, &step);
        if schema.is_object() {
            each(step, schema);
        }
    }
}

/// Returns whether a schema is that of a kind.
fn each_is_root(schema: &Value) -> bool {
    ["apiVersion", "kind", "metadata"]
        .iter()
        .all(|name| schema["properties"].get(name).is_some())
}

fn scalars(schema: &Value, add: &mut impl FnMut(&'static str, String, Change)) {
    let none = String::new;
    let set = Change::Set;
    if schema["pattern"].is_string() {
        for (index, text) in ["!", "", "A b", "-a-"].into_iter().enumerate() {
            add("pattern", format!("-{index}"), set(text.into()));
        }
    }
    if schema["format"].is_string() && schema["type"] == "string" {
        add("format", none(), set("neither".into()));
        add("format", "-empty".to_owned(), set("".into()));
    }
    if schema["format"] == "int32" {
        add("format", "-range".to_owned(), set(json!(3_000_000_000_i64)));
    }
    if matches!(schema["type"].as_str(), Some("integer" | "number")) {
        add("fraction", none(), set(json!(1.5)));
        add("fraction", "-large".to_owned(), set(json!(1e19)));
        for (name, by) in [("minimum", -1.0), ("maximum", 1.0)] {
            if let Some(bound) = schema[name].as_f64() {
                #[allow(clippy::cast_possible_truncation, reason = "small bounds")]
                let beyond = (bound + by) as i64;
                add(name, none(), set(beyond.into()));
                if schema[format!("exclusive{}{}", name[..1].to_uppercase(), &name[1..])] == true {
                    add(name, "-exclusive".to_owned(), set(schema[name].clone()));
                }
            }
        }
        if schema["multipleOf"].is_number() {
            add("multiple", none(), set(json!(7)));
        }
    }
    if schema["type"] == "string" {
        if schema["minLength"].as_u64().is_some_and(|it| it > 0) {
            add("min-length", none(), set("".into()));
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|it| *it < LONGEST) {
            let length = usize::try_from(most + 1).unwrap_or(1);
            add("max-length", none(), set("ä".repeat(length).into()));
        }
    }
    if schema["x-kubernetes-int-or-string"] == true {
        add("int-or-string", none(), set("10%".into()));
        add("int-or-string", "-float".to_owned(), set(json!(1.5)));
    }
}

/// Values that rules may reject: with and without each field that a rule mentions, and unusual
/// scalars.
fn rules(schema: &Value, add: &mut impl FnMut(&'static str, String, Change)) {
    let rules: Vec<&str> = schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["rule"].as_str())
        .collect();
    if rules.is_empty() {
        return;
    }
    let mut set = |detail: &str, value: Value| {
        add("rule", format!("-{detail}"), Change::Set(value));
    };
    match schema["type"].as_str() {
        Some("object") => {
            set("smallest", smallest(schema));
            set("largest", largest(schema));
            for (name, property) in properties(schema) {
                if !rules.iter().any(|rule| rule.contains(name.as_str())) {
                    continue;
                }
                let (mut with, mut without) = (smallest(schema), largest(schema));
                if let (Some(with), Some(without)) = (with.as_object_mut(), without.as_object_mut())
                {
                    with.insert(name.clone(), largest(property));
                    without.remove(name);
                }
                set(&format!("with-{name}"), with.clone());
                set(&format!("without-{name}"), without);
                for (index, option) in others(property).into_iter().enumerate() {
                    with[name.as_str()] = option;
                    set(&format!("with-{name}-{index}"), with.clone());
                }
            }
        }
        Some("array") => {
            let item = smallest(&schema["items"]);
            set("empty", json!([]));
            set("two", json!([item, item]));
            set("largest", json!([largest(&schema["items"])]));
        }
        _ => {
            for (index, option) in others(schema).into_iter().enumerate() {
                set(&index.to_string(), option);
            }
        }
    }
}

/// Other values of a scalar.
fn others(schema: &Value) -> Vec<Value> {
    if let Some(options) = schema["enum"].as_array() {
        return options.iter().skip(1).take(4).cloned().collect();
    }
    match schema["type"].as_str() {
        Some("string") => [
            "",
            "b",
            "10.0.0.1",
            "2001:db8::/32",
            "https://example.com/b?c=d",
            "1h",
        ]
        .map(Value::from)
        .to_vec(),
        Some("integer") => [0, -1, 7, 65_536].map(Value::from).to_vec(),
        Some("boolean") => vec![false.into()],
        Some("array") => vec![json!([])],
        Some("object") => vec![json!({})],
        _ => vec![json!("b"), json!(0)],
    }
}
