//! Objects that expressions build, objects that are computed on read, and the conversion of values
//! to JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json};

use crate::library::{MAX_STRING, time};
use crate::value::{EvalError, Key, Value};

/// An object that an expression built, such as `Object{spec: Object.spec{replicas: 3}}`.
#[derive(Debug, Clone)]
pub struct Message {
    pub(crate) name: Arc<str>,
    pub(crate) fields: BTreeMap<Arc<str>, Value>,
}

impl Message {
    /// Returns the name of its type: `Object.spec`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a field, or `None` if it is not set.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Returns the name of a `JSONPatch` field that should be a string but is not.
    pub(crate) fn misfit(&self) -> Option<&str> {
        if &*self.name != "JSONPatch" {
            return None;
        }
        let mut fields = self.fields.iter();
        let found =
            fields.find(|(name, value)| !matches!(value, Value::String(_)) && &***name != "value");
        found.map(|(name, _)| &**name)
    }
}

/// An object whose fields are computed when an expression reads them, such as `variables` of an
/// admission policy.
///
/// Implementations cache computed fields and bound their cost.
pub trait Lazy: fmt::Debug + Send + Sync {
    /// Returns a field, or `None` if there is no such field.
    fn get(self: Arc<Self>, name: &str) -> Option<Result<Value, EvalError>>;

    /// Returns whether there is such a field, without evaluating it.
    fn contains(&self, name: &str) -> bool;
}

impl Value {
    /// Converts the value to JSON.
    ///
    /// # Errors
    ///
    /// Fails for values that JSON cannot represent, such as types and maps with non-string keys,
    /// and for values that are too large.
    ///
    /// ```
    /// use pintle_cel::Value;
    ///
    /// let json = serde_json::json!({ "a": [1, "b", null] });
    /// assert_eq!(Value::from_json(&json).to_json(), Ok(json));
    /// ```
    pub fn to_json(&self) -> Result<Json, String> {
        self.check_size()?;
        self.json()
    }

    /// Rejects values that are huge when written out. Parts of a value can be shared, so even a
    /// small one can be.
    fn check_size(&self) -> Result<(), String> {
        if self.written_size(MAX_STRING) > MAX_STRING {
            return Err(format!("value exceeds {MAX_STRING} bytes"));
        }
        Ok(())
    }

    fn json(&self) -> Result<Json, String> {
        Ok(match self {
            Self::Null | Self::Optional(None) => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(n) => Json::from(*n),
            Self::Uint(n) => Json::from(*n),
            Self::Double(n) => {
                let number = serde_json::Number::from_f64(*n);
                Json::Number(number.ok_or_else(|| format!("unsupported value: {n}"))?)
            }
            Self::String(text) => Json::String(text.to_string()),
            Self::Bytes(bytes) => Json::String(base64(bytes)),
            Self::Duration(nanos) => Json::String(time::show_duration(*nanos)),
            Self::Timestamp(time) => Json::String(time.to_string()),
            Self::Optional(Some(value)) => value.json()?,
            Self::List(list) => {
                let items = list.items.iter().map(Self::json);
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(map) => {
                let mut object = JsonMap::new();
                for (key, value) in &map.entries {
                    let Key::String(name) = key else {
                        let key = key.value();
                        return Err(format!(
                            "map key is of type {}, not string",
                            key.type_name()
                        ));
                    };
                    object.insert(name.to_string(), value.json()?);
                }
                for (name, value) in &map.hidden {
                    object.insert(name.clone(), value.clone());
                }
                Json::Object(object)
            }
            Self::Message(message) => {
                let fields = message.fields.iter();
                let fields = fields.map(|(name, value)| Ok((name.to_string(), value.json()?)));
                Json::Object(fields.collect::<Result<_, String>>()?)
            }
            Self::Fault(why) => return Err(why.to_string()),
            Self::Type(_) | Self::Library(_) | Self::Lazy(_) => {
                return Err(format!(
                    "unsupported type conversion from {}",
                    self.type_name()
                ));
            }
        })
    }

    /// Checks that nested messages have the type of the field that they are in: `Object.spec` in
    /// field `spec` of an `Object`. Lists and maps in between do not count.
    ///
    /// # Errors
    ///
    /// Fails with one line for each message of another type, and for values that are too large.
    pub fn check_message_names(&self) -> Result<(), String> {
        self.check_size()?;
        let mut problems = Vec::new();
        if let Self::Message(message) = self {
            check_names(self, &message.name, &mut problems);
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }
}

fn check_names(value: &Value, path: &str, problems: &mut Vec<String>) {
    match value {
        Value::Message(message) => {
            if &*message.name != path {
                problems.push(format!(
                    "unexpected type name {:?}, expected {path:?}, which matches field name path \
                     from root Object type",
                    message.name
                ));
            }
            for (name, value) in &message.fields {
                check_names(value, &format!("{path}.{name}"), problems);
            }
        }
        Value::List(list) => {
            for item in &list.items {
                check_names(item, path, problems);
            }
        }
        Value::Map(map) => {
            for value in map.entries.values() {
                check_names(value, path, problems);
            }
        }
        _ => {}
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or_default());
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for i in 0..4 {
            if i > chunk.len() {
                text.push('=');
            } else {
                let index = (bits >> (18 - 6 * i)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}
