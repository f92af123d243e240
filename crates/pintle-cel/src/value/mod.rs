//! Values during evaluation.

mod compare;
mod json;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value as Json;

pub(crate) use self::compare::{Work, compare, equal, list_key};
use crate::decl::{ListType, keyword};
use crate::go;
use crate::library::{authz::Step, format::Format, semver::Semver, timestamp::Timestamp, url::Url};
pub use crate::message::{Lazy, Message};
use crate::quantity::Quantity;

/// A value of an expression.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Value {
    /// `null`
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A float.
    Double(f64),
    /// A string.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(Arc<List>),
    /// A map or an object.
    Map(Arc<Map>),
    /// A type, by its name at run time.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Value>>),
    /// A value of one of Kubernetes' libraries.
    Library(Library),
    /// An object that an expression built.
    Message(Arc<Message>),
    /// An object whose fields are computed when they are read.
    Lazy(Arc<dyn Lazy>),
    /// Data that does not fit its schema. Reading it is an error.
    Fault(Arc<str>),
}

/// A value of one of Kubernetes' libraries.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Library {
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`: an address and the length of its prefix.
    Cidr(IpAddr, u8),
    /// `kubernetes.URL`
    Url(Arc<Url>),
    /// `kubernetes.Quantity`
    Quantity(Arc<Quantity>),
    /// `kubernetes.Semver`
    Semver(Arc<Semver>),
    /// `kubernetes.NamedFormat`
    Format(&'static Format),
    /// The types of `authorizer`: the steps of a check, and the decision.
    Authz(Arc<Step>),
}

/// A list and how it compares.
#[derive(Debug, Clone)]
pub struct List {
    pub(crate) items: Vec<Value>,
    pub(crate) list_type: ListType,
}

/// A map, or an object with a schema.
#[derive(Debug, Clone, Default)]
pub struct Map {
    pub(crate) entries: BTreeMap<Key, Value>,
    /// Fields that expressions cannot see, but that count towards size and equality.
    pub(crate) hidden: BTreeMap<String, Json>,
}

/// The key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

/// Why evaluation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvalError {
    /// The expression failed, as with a missing key or a division by zero.
    Failed(String),
    /// The expression used up its budget.
    CostLimit,
}

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::error::Error for EvalError {}

pub(crate) type Evaluated = Result<Value, EvalError>;

pub(crate) fn fail(why: impl Into<String>) -> EvalError {
    EvalError::Failed(why.into())
}

pub(crate) fn no_such_overload() -> EvalError {
    fail("no such overload")
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl Value {
    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(List {
            items,
            list_type: ListType::Atomic,
        }))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Message(message) => &message.name,
            Self::Lazy(_) => "kubernetes.variables",
            Self::Fault(_) => "error",
            Self::Library(library) => match library {
                Library::Ip(_) => "net.IP",
                Library::Cidr(..) => "net.CIDR",
                Library::Url(_) => "kubernetes.URL",
                Library::Quantity(_) => "kubernetes.Quantity",
                Library::Semver(_) => "kubernetes.Semver",
                Library::Format(_) => "kubernetes.NamedFormat",
                Library::Authz(step) => step.type_name(),
            },
        }
    }

    /// Returns the size that costs are computed from.
    pub(crate) fn cost_size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.items.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(value)) => return value.cost_size(),
            Self::Library(Library::Ip(ip)) => {
                if ip.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Library(Library::Cidr(_, bits)) => usize::from(*bits).div_ceil(8),
            _ => 1,
        };
        size as u64
    }

    /// Returns the approximate size of the value when it is written out, in bytes. Stops counting
    /// beyond `most`.
    pub(crate) fn written_size(&self, most: usize) -> usize {
        /// The overhead of every value, so that many small values also add up to a large size.
        const EACH: usize = 16;
        fn json(value: &Json) -> usize {
            EACH + match value {
                Json::String(text) => text.len(),
                Json::Array(items) => items.iter().map(json).sum(),
                Json::Object(map) => map
                    .iter()
                    .map(|(name, value)| name.len() + json(value))
                    .sum(),
                _ => 0,
            }
        }
        let mut size: usize = 0;
        let mut open = vec![self];
        while let Some(value) = open.pop() {
            size += EACH;
            match value {
                Self::String(text) => size += text.len(),
                Self::Bytes(bytes) => size += bytes.len(),
                Self::Optional(Some(inner)) => open.push(inner),
                Self::Message(message) => open.extend(message.fields.values()),
                Self::List(list) => {
                    // Items that no longer fit need not be visited.
                    if list.items.len() > most {
                        return list.items.len();
                    }
                    open.extend(&list.items);
                }
                Self::Map(map) => {
                    size += map.hidden.values().map(json).sum::<usize>();
                    for (key, value) in &map.entries {
                        if let Key::String(name) = key {
                            size += name.len();
                        }
                        open.push(value);
                    }
                }
                _ => {}
            }
            if size > most {
                break;
            }
        }
        size
    }

    /// Returns the value, or the error that it stands for.
    pub(crate) fn read(self) -> Evaluated {
        match self {
            Self::Fault(why) => Err(fail(&*why)),
            value => Ok(value),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(n) | Self::Duration(n) => *n == 0,
            Self::Uint(n) => *n == 0,
            Self::Timestamp(time) => time.is_zero(),
            Self::Double(n) => *n == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.items.is_empty(),
            Self::Map(map) => map.len() == 0,
            Self::Message(message) => message.fields.is_empty(),
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

impl List {
    /// Returns the items.
    #[must_use]
    pub fn items(&self) -> &[Value] {
        &self.items
    }
}

impl Map {
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.hidden.len()
    }

    /// Finds a field, which may be a keyword that is not escaped.
    pub(crate) fn field(&self, name: &Arc<str>) -> Option<&Value> {
        let found = self.entries.get(&Key::String(name.clone()));
        found.or_else(|| self.entries.get(&Key::String(keyword(name)?.into())))
    }

    /// Finds an entry. Numbers match across types.
    pub(crate) fn get(&self, key: &Value) -> Result<Option<&Value>, EvalError> {
        let number = |n: i128| {
            let signed = i64::try_from(n)
                .ok()
                .and_then(|n| self.entries.get(&Key::Int(n)));
            signed.or_else(|| self.entries.get(&Key::Uint(u64::try_from(n).ok()?)))
        };
        Ok(match key {
            Value::String(text) => self.field(text),
            Value::Int(n) => number((*n).into()),
            Value::Uint(n) => number((*n).into()),
            Value::Double(n) if n.fract() == 0.0 && n.abs() < 1e19 => number(*n as i128),
            Value::Double(_) => None,
            Value::Bool(value) => self.entries.get(&Key::Bool(*value)),
            _ => return Err(no_such_overload()),
        })
    }
}

impl Key {
    pub(crate) fn of(value: &Value) -> Result<Self, EvalError> {
        Ok(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(n) => Self::Int(*n),
            Value::Uint(n) => Self::Uint(*n),
            Value::String(text) => Self::String(text.clone()),
            other => return Err(fail(format!("unsupported key type: {}", other.type_name()))),
        })
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(n) => Value::Int(*n),
            Self::Uint(n) => Value::Uint(*n),
            Self::String(text) => Value::String(text.clone()),
        }
    }
}

/// Formats a value as error messages do.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Double(n) => go::float(*n),
        Value::String(text) => text.to_string(),
        Value::Type(name) => name.to_string(),
        other => other.type_name().to_owned(),
    }
}
