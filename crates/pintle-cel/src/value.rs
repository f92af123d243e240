//! Values during evaluation.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::decl::{Decl, DeclKind, ListType, keyword};
use crate::library::{
    self, authz::Step, format::Format, quantity::Quantity, semver::Semver, timestamp::Timestamp,
    url::Url,
};
pub use crate::message::{Lazy, Message};

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
    Quantity(Quantity),
    /// `kubernetes.Semver`
    Semver(Arc<Semver>),
    /// `kubernetes.NamedFormat`
    Format(&'static Format),
    /// The types of `authorizer`: who asks, what for, and the answer.
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
    /// Fields that expressions cannot see, but that count and compare.
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
            (DeclKind::Duration, Json::String(text)) => {
                match library::time::parse_schema_duration(text) {
                    Some(nanos) => Self::Duration(nanos),
                    None => fault(format!("Invalid duration {text}")),
                }
            }
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
        Value::Double(n) => library::go::float(*n),
        Value::String(text) => text.to_string(),
        Value::Type(name) => name.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// Counts the work of comparisons and copies, which costs do not cover.
#[derive(Debug)]
pub(crate) struct Work {
    left: u64,
}

impl Work {
    pub(crate) fn new(left: u64) -> Self {
        Self { left }
    }

    /// Uses up some work. Fails when none is left.
    pub(crate) fn spend(&mut self, amount: usize) -> Result<(), EvalError> {
        match self.left.checked_sub(amount as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(EvalError::CostLimit),
        }
    }
}

/// Compares two values for equality.
pub(crate) fn equal(a: &Value, b: &Value, work: &mut Work) -> Result<bool, EvalError> {
    work.spend(1)?;
    Ok(match (a, b) {
        (Value::Fault(why), _) | (_, Value::Fault(why)) => return Err(fail(&**why)),
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => compare_numbers(a, b) == Some(Ordering::Equal),
        (Value::String(a), Value::String(b)) => {
            work.spend(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            work.spend(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, work)?,
            (a, b) => a.is_none() && b.is_none(),
        },
        (Value::List(a), Value::List(b)) => equal_lists(a, b, work)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, work)?,
        (Value::Message(a), Value::Message(b)) => equal_messages(a, b, work)?,
        (Value::Library(a), Value::Library(b)) => match (a, b) {
            (Library::Ip(a), Library::Ip(b)) => a == b,
            (Library::Cidr(a, n), Library::Cidr(b, m)) => a == b && n == m,
            (Library::Url(a), Library::Url(b)) => a.text() == b.text(),
            (Library::Quantity(a), Library::Quantity(b)) => a == b,
            (Library::Semver(a), Library::Semver(b)) => a == b,
            (Library::Format(a), Library::Format(b)) => a.name == b.name,
            _ => false,
        },
        _ => false,
    })
}

/// A form of a scalar that can be a key, to find items without comparing all pairs.
fn scalar_key(value: &Value) -> String {
    match value {
        Value::Timestamp(time) => format!("t{}", time.as_nanosecond()),
        Value::Duration(nanos) => format!("d{nanos}"),
        Value::Bytes(bytes) => format!("b{bytes:?}"),
        Value::Int(n) => format!("n{n}"),
        Value::Uint(n) => format!("n{n}"),
        Value::Double(n) if n.fract() == 0.0 => format!("n{n:.0}"),
        other => format!("{}:{}", other.type_name(), show(other)),
    }
}

/// The key of an item in a list of type `map`.
pub(crate) fn item_key(item: &Value, keys: &[String]) -> String {
    let Value::Map(map) = item else {
        return scalar_key(item);
    };
    let mut out = String::new();
    for name in keys {
        let name = crate::decl::escape(name).unwrap_or_else(|| name.clone());
        match map.entries.get(&Key::String(name.into())) {
            Some(value) => {
                let part = scalar_key(value);
                let _ = write!(out, "{}:{part},", part.len());
            }
            None => out.push('-'),
        }
    }
    out
}

/// The key by which a list of type `set` or `map` finds an item.
pub(crate) fn list_key(item: &Value, list_type: &ListType) -> String {
    match list_type {
        ListType::Map(keys) => item_key(item, keys),
        _ => scalar_key(item),
    }
}

fn equal_lists(a: &List, b: &List, work: &mut Work) -> Result<bool, EvalError> {
    if a.items.len() != b.items.len() {
        return Ok(false);
    }
    work.spend(a.items.len())?;
    if a.list_type == ListType::Atomic {
        for (a, b) in a.items.iter().zip(&b.items) {
            if !equal(a, b, work)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    // Sets and lists of type `map` compare regardless of order.
    let mut known = BTreeMap::new();
    for item in &a.items {
        known.insert(list_key(item, &a.list_type), item);
    }
    for item in &b.items {
        match known.get(&list_key(item, &a.list_type)) {
            None => return Ok(false),
            Some(_) if a.list_type == ListType::Set => {}
            Some(same) => {
                if !equal(same, item, work)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

fn equal_maps(a: &Map, b: &Map, work: &mut Work) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    work.spend(a.len())?;
    for (key, value) in &a.entries {
        match b.get(&key.value())? {
            Some(other) => {
                if !equal(value, other, work)? {
                    return Ok(false);
                }
            }
            None => return Ok(false),
        }
    }
    for (name, value) in &a.hidden {
        let escaped = crate::decl::escape(name).unwrap_or_else(|| name.clone());
        // A field that is null on one side only.
        if b.field(&escaped.into()).is_some() {
            return Ok(false);
        }
        // A field that the schema does not know is only compared if both sides have it, as upstream.
        if b.hidden.get(name).is_some_and(|other| other != value) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_messages(a: &Message, b: &Message, work: &mut Work) -> Result<bool, EvalError> {
    if a.name != b.name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (name, value) in &a.fields {
        match b.fields.get(name) {
            Some(other) if equal(value, other, work)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

pub(crate) fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    fn with_float(n: i128, float: f64) -> Option<Ordering> {
        if float.is_nan() {
            return None;
        }
        if float >= 1.9e19 {
            return Some(Ordering::Less);
        }
        if float <= -1e19 {
            return Some(Ordering::Greater);
        }
        let whole = float.trunc() as i128;
        Some(n.cmp(&whole).then(0.0_f64.partial_cmp(&float.fract())?))
    }
    let wide = |value: &Value| match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(float), b) => Some(with_float(wide(b)?, *float)?.reverse()),
        (a, Value::Double(float)) => with_float(wide(a)?, *float),
        (a, b) => Some(wide(a)?.cmp(&wide(b)?)),
    }
}

/// Orders two values.
pub(crate) fn compare(a: &Value, b: &Value) -> Result<Ordering, EvalError> {
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => compare_numbers(a, b).ok_or_else(|| fail("NaN values cannot be ordered"))?,
        _ => return Err(no_such_overload()),
    })
}
