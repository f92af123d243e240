//! Values from JSON, with or without a schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::{Key, List, Map, Value};
use crate::decl::{Decl, DeclKind};
use crate::go;
use crate::library::{self, timestamp::Timestamp};

impl Value {
    /// Converts JSON without a schema: objects become maps, numbers integers or floats.
    ///
    /// ```
    /// use pintle_cel::Value;
    ///
    /// let value = Value::from_json(&serde_json::json!({ "a": [1, 2] }));
    /// assert!(matches!(value, Value::Map(_)));
    /// ```
    #[must_use]
    pub fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Self::Int(n),
                (None, Some(n)) => Self::Uint(n),
                (None, None) => Self::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => text.as_str().into(),
            Json::Array(items) => Self::list(items.iter().map(Self::from_json).collect()),
            Json::Object(map) => {
                let entries = map.iter();
                let entries =
                    entries.map(|(k, v)| (Key::String(k.as_str().into()), Self::from_json(v)));
                Self::Map(Arc::new(Map {
                    entries: entries.collect(),
                    hidden: BTreeMap::new(),
                }))
            }
        }
    }

    /// Converts JSON that a schema declares. Data that does not fit becomes a [`Value::Fault`],
    /// which is an error only for expressions that read it.
    #[must_use]
    pub fn declared(json: &Json, decl: &Decl) -> Self {
        let fault = |why: String| Self::Fault(why.into());
        if json.is_null() {
            return if decl.nullable {
                Self::Null
            } else {
                fault("invalid data, got null for schema with nullable=false".into())
            };
        }
        let wrong = |wanted: &str| fault(format!("invalid data, expected {wanted}"));
        match (&decl.kind, json) {
            (DeclKind::IntOrString | DeclKind::Int, Json::Number(n)) => match n.as_i64() {
                Some(n) => Self::Int(n),
                None => wrong("int, got float64"),
            },
            (DeclKind::IntOrString | DeclKind::String, Json::String(text)) => text.as_str().into(),
            (DeclKind::IntOrString, _) => {
                wrong("XIntOrString value to be either a string or integer")
            }
            (DeclKind::Bool, Json::Bool(value)) => Self::Bool(*value),
            (DeclKind::Double, Json::Number(n)) => Self::Double(n.as_f64().unwrap_or(f64::NAN)),
            (DeclKind::Bytes, Json::String(text)) => match library::format::base64(text) {
                Some(bytes) => Self::Bytes(bytes.into()),
                None => fault(format!("Invalid byte formatted string {text}")),
            },
            (DeclKind::Duration, Json::String(text)) => match go::parse_loose_duration(text) {
                Some(nanos) => Self::Duration(nanos),
                None => fault(format!("Invalid duration {text}")),
            },
            (DeclKind::Date, Json::String(text)) => match Timestamp::parse_date(text) {
                Some(time) => Self::Timestamp(time),
                None => fault(format!("Invalid date formatted string {text}")),
            },
            (DeclKind::DateTime, Json::String(text)) => {
                match library::time::parse_date_time(text) {
                    Some(time) => Self::Timestamp(time),
                    None => fault(format!("Invalid date-time formatted string {text}")),
                }
            }
            (DeclKind::List { items, list_type }, Json::Array(values)) => {
                let items = values
                    .iter()
                    .map(|value| Self::declared(value, items))
                    .collect();
                Self::List(Arc::new(List {
                    items,
                    list_type: list_type.clone(),
                }))
            }
            (DeclKind::Map(values), Json::Object(map)) => {
                let entries = map.iter();
                let entries = entries
                    .map(|(k, v)| (Key::String(k.as_str().into()), Self::declared(v, values)));
                Self::Map(Arc::new(Map {
                    entries: entries.collect(),
                    hidden: BTreeMap::new(),
                }))
            }
            (DeclKind::Object(object), Json::Object(map)) => {
                let mut entries = BTreeMap::new();
                let mut hidden = BTreeMap::new();
                for (name, value) in map {
                    let escaped = object.names.get(name).unwrap_or(name);
                    match object.fields.get(escaped) {
                        // A field that is null is treated as absent.
                        Some(decl) if object.has_properties && !value.is_null() => {
                            let key = Key::String(escaped.as_str().into());
                            entries.insert(key, Self::declared(value, decl));
                        }
                        _ => {
                            hidden.insert(name.clone(), value.clone());
                        }
                    }
                }
                Self::Map(Arc::new(Map { entries, hidden }))
            }
            (kind, _) => wrong(match kind {
                DeclKind::Int => "int",
                DeclKind::Bool => "bool",
                DeclKind::Double => "float",
                DeclKind::List { .. } => "an array for the provided schema with type=array",
                DeclKind::Map(_) | DeclKind::Object(_) => {
                    "a map for the provided schema with type=object"
                }
                _ => "string",
            }),
        }
    }
}
