//! The types of expressions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::decl::Decl;

/// The type of an expression.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Type {
    /// `bool`
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit float.
    Double,
    /// A Unicode string.
    String,
    /// A byte string.
    Bytes,
    /// The type of `null`.
    Null,
    /// A span of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// Anything: checked at run time.
    Dyn,
    /// The type of an expression that has an error.
    Error,
    /// A list of items.
    List(Arc<Type>),
    /// A map from keys to values.
    Map(Arc<Type>, Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// A variable of a function's signature.
    Param(u32),
    /// An object of a schema: its name, and its declaration.
    Object(Arc<str>, Arc<Decl>),
    /// An object with declared fields and without a schema.
    Record(Arc<Record>),
    /// A type of Kubernetes' libraries that has no fields, such as `kubernetes.Quantity`.
    Struct(&'static str),
    /// A type of Kubernetes' libraries that is opaque, such as `net.IP`.
    Opaque(&'static str),
}

/// An object type that no schema describes, such as the type of `request` in an admission policy.
#[derive(Debug, Clone)]
pub struct Record {
    name: Arc<str>,
    /// `None` if it has any field, of any type.
    fields: Option<BTreeMap<Arc<str>, Type>>,
}

impl Record {
    /// Creates an object type with these fields.
    ///
    /// ```
    /// use pintle_cel::{Env, Record, Type};
    ///
    /// let point = Record::new("Point", [("x", Type::Int), ("y", Type::Int)]);
    /// let env = Env::new().variable("p", point.into());
    /// assert!(env.compile("p.x + p.y").is_ok());
    /// let error = env.compile("p.z").unwrap_err();
    /// assert!(error.to_string().contains("undefined field 'z'"));
    /// ```
    #[must_use]
    pub fn new<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Type)>) -> Self {
        let fields = fields.into_iter();
        Self {
            name: name.into(),
            fields: Some(fields.map(|(name, ty)| (name.into(), ty)).collect()),
        }
    }

    /// Returns an object type with any field, of any type.
    pub(crate) fn open(name: &str) -> Self {
        Self {
            name: name.into(),
            fields: None,
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<Type> {
        match &self.fields {
            Some(fields) => fields.get(name).cloned(),
            None => Some(Type::Dyn),
        }
    }
}

impl From<Record> for Type {
    fn from(record: Record) -> Self {
        Self::Record(Arc::new(record))
    }
}

impl Type {
    /// Returns the type of a list of `item`.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// Returns the type of a map from `key` to `value`.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns the type of an optional `value`.
    #[must_use]
    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Returns the type of the variable `authorizer`.
    #[must_use]
    pub fn authorizer() -> Self {
        Self::Struct("kubernetes.authorization.Authorizer")
    }

    /// Returns the type of the variable `authorizer.requestResource`.
    #[must_use]
    pub fn resource_check() -> Self {
        Self::Struct("kubernetes.authorization.ResourceCheck")
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns true if values of this type have a constant size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool
            | Self::Double
            | Self::Duration
            | Self::Int
            | Self::Timestamp
            | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Returns the type inside an optional, and whether there was one.
    pub(crate) fn unwrap_optional(&self) -> (&Self, bool) {
        match self {
            Self::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// Returns the name that `type(x)` has.
    pub(crate) fn runtime_name(&self) -> String {
        match self {
            Self::List(_) => "list".into(),
            Self::Map(..) | Self::Object(..) => "map".into(),
            Self::Type(_) => "type".into(),
            Self::Optional(_) => "optional_type".into(),
            Self::Null => "null_type".into(),
            Self::Duration => "google.protobuf.Duration".into(),
            Self::Timestamp => "google.protobuf.Timestamp".into(),
            other => other.to_string(),
        }
    }

    /// Returns the type's name in Kubernetes' messages about the required type of an expression.
    ///
    /// ```
    /// use pintle_cel::Type;
    ///
    /// assert_eq!(Type::list(Type::Null).full_name(), "list(null_type)");
    /// ```
    #[must_use]
    pub fn full_name(&self) -> String {
        match self {
            Self::List(item) => format!("list({})", item.full_name()),
            Self::Map(key, value) => format!("map({}, {})", key.full_name(), value.full_name()),
            Self::Type(Some(of)) => format!("type({})", of.full_name()),
            Self::Optional(of) => format!("optional_type({})", of.full_name()),
            Self::Object(name, _) => name.to_string(),
            other => other.runtime_name(),
        }
    }

    /// Returns true if two types are exactly the same.
    #[must_use]
    pub fn is_exactly(&self, other: &Self) -> bool {
        self.same(other)
    }

    /// Deducts the number of parts of the type from `left`. Returns false if there are too many.
    pub(crate) fn has_at_most(&self, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match self {
            Self::List(a) | Self::Optional(a) | Self::Type(Some(a)) => a.has_at_most(left),
            Self::Map(a, b) => a.has_at_most(left) && b.has_at_most(left),
            _ => true,
        }
    }

    pub(crate) fn has_variables(&self) -> bool {
        match self {
            Self::Param(_) => true,
            Self::List(a) | Self::Optional(a) | Self::Type(Some(a)) => a.has_variables(),
            Self::Map(a, b) => a.has_variables() || b.has_variables(),
            _ => false,
        }
    }

    /// Returns true if two types are equal without substitutions.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool, Self::Bool)
            | (Self::Int, Self::Int)
            | (Self::Uint, Self::Uint)
            | (Self::Double, Self::Double)
            | (Self::String, Self::String)
            | (Self::Bytes, Self::Bytes)
            | (Self::Null, Self::Null)
            | (Self::Duration, Self::Duration)
            | (Self::Timestamp, Self::Timestamp)
            | (Self::Dyn, Self::Dyn)
            | (Self::Error, Self::Error)
            | (Self::Type(None), Self::Type(None)) => true,
            (Self::List(a), Self::List(b))
            | (Self::Optional(a), Self::Optional(b))
            | (Self::Type(Some(a)), Self::Type(Some(b))) => a.same(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.same(c) && b.same(d),
            (Self::Param(a), Self::Param(b)) => a == b,
            (Self::Object(a, _), Self::Object(b, _)) => a == b,
            (Self::Record(a), Self::Record(b)) => a.name == b.name,
            (Self::Struct(a), Self::Struct(b)) | (Self::Opaque(a), Self::Opaque(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Type(None) => f.write_str("type"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Param(n) => write!(f, "_var{n}"),
            Self::Object(name, _) => f.write_str(name),
            Self::Record(record) => f.write_str(&record.name),
            Self::Struct(name) | Self::Opaque(name) => f.write_str(name),
        }
    }
}

/// Formats the arguments of a call as messages show them.
pub(crate) fn signature(args: &[Type], member: bool) -> String {
    let mut out = String::new();
    let mut rest = args;
    if member && let Some((target, others)) = args.split_first() {
        out.push_str(&target.to_string());
        out.push('.');
        rest = others;
    }
    out.push('(');
    for (i, arg) in rest.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&arg.to_string());
    }
    out.push(')');
    out
}
