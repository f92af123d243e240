//! Printers: the columns of each kind and the cells of an object, for `kubectl get`.

mod age;
mod builtin;
mod cluster;
mod core;
mod fields;
mod networking;
mod path;
mod pods;
mod storage;
mod workloads;

use pintle_clock::Clock;
use serde_json::{Value, json};

use crate::{meta::Tree, registry::Resource};

/// A column definition.
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
}

impl Column {
    fn new(name: &str, kind: &str, priority: i64) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority,
        }
    }

    fn json(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority})
    }
}

/// Returns the column definitions of a resource.
pub(crate) fn definitions(resource: &Resource) -> Vec<Value> {
    let columns = match &resource.custom {
        Some(custom) => custom_columns(&custom.version)
            .into_iter()
            .map(|(c, _)| c)
            .collect(),
        None => builtin::columns(&resource.group, &resource.plural),
    };
    columns.iter().map(Column::json).collect()
}

/// Returns the cells of a stored object.
pub(crate) fn cells(resource: &Resource, object: &Tree, clock: &Clock) -> Vec<Value> {
    let now = clock.now();
    let object = Value::Object(object.clone());
    match &resource.custom {
        None => builtin::cells(&resource.group, &resource.plural, &object, now),
        Some(custom) => custom_columns(&custom.version)
            .iter()
            .map(|(column, path)| custom_cell(column, path, &object, now))
            .collect(),
    }
}

/// Returns the column definitions and cells of a scale.
pub(crate) fn scale(scale: &Value, clock: &Clock) -> (Vec<Value>, Vec<Value>) {
    let name = Column {
        format: String::new(),
        ..Column::new("Name", "string", 0)
    };
    let columns = [
        name,
        Column::new("Desired", "integer", 0),
        Column::new("Available", "integer", 0),
        Column::new("Age", "string", 0),
    ];
    let number = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let cells = vec![
        scale["metadata"]["name"].clone(),
        number("spec").into(),
        number("status").into(),
        age::of(&scale["metadata"]["creationTimestamp"], clock.now()).into(),
    ];
    (columns.iter().map(Column::json).collect(), cells)
}

/// Returns the columns of a CRD version with their paths: always the name, and the age if it
/// defines none.
fn custom_columns(version: &Value) -> Vec<(Column, String)> {
    let mut columns = vec![(
        Column::new("Name", "string", 0),
        ".metadata.name".to_owned(),
    )];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match version["additionalPrinterColumns"]
        .as_array()
        .filter(|list| !list.is_empty())
    {
        None => columns.push((
            Column::new("Age", "date", 0),
            ".metadata.creationTimestamp".to_owned(),
        )),
        Some(list) => columns.extend(list.iter().map(|column| {
            let made = Column {
                name: text(&column["name"]),
                kind: text(&column["type"]),
                format: text(&column["format"]),
                description: match column["description"].as_str() {
                    Some(said) if !said.is_empty() => said.to_owned(),
                    _ => format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        text(&column["jsonPath"])
                    ),
                },
                priority: column["priority"].as_i64().unwrap_or(0),
            };
            (made, text(&column["jsonPath"]))
        })),
    }
    columns
}

fn custom_cell(column: &Column, at: &str, object: &Value, now: jiff::Timestamp) -> Value {
    let found = path::find(object, at);
    match (column.kind.as_str(), found.first()) {
        (_, None | Some(Value::Null)) => Value::Null,
        ("date", Some(value)) => age::of(value, now).into(),
        ("string", Some(_)) => {
            let texts: Vec<String> = found
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
                .collect();
            texts.join(",").into()
        }
        ("integer", Some(value)) => value.as_i64().map_or(Value::Null, Value::from),
        ("number", Some(value)) => value.as_f64().map_or(Value::Null, Value::from),
        ("boolean", Some(value)) => value.as_bool().map_or(Value::Null, Value::from),
        (_, Some(value)) => (*value).clone(),
    }
}
