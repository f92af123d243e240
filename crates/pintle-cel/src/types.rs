//! The types of expressions.

use std::cell::Cell;
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

/// The fields of an object type that no schema describes, such as `request` of an admission policy.
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

    /// An object type with any field, of any type.
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
    /// A list of `item`.
    #[must_use]
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// A map from `key` to `value`.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional `value`.
    #[must_use]
    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// The type of the variable `authorizer`.
    #[must_use]
    pub fn authorizer() -> Self {
        Self::Struct("kubernetes.authorization.Authorizer")
    }

    /// The type of the variable `authorizer.requestResource`.
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

    /// Takes the parts of the type from `left`. Returns false if there are too many.
    fn has_at_most(&self, left: &mut usize) -> bool {
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

    fn has_variables(&self) -> bool {
        match self {
            Self::Param(_) => true,
            Self::List(a) | Self::Optional(a) | Self::Type(Some(a)) => a.has_variables(),
            Self::Map(a, b) => a.has_variables() || b.has_variables(),
            _ => false,
        }
    }

    /// Exact equality, without looking at substitutions.
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

/// The maximum number of parts of a type. `{x: x}` has twice as many as `x`, so without a limit a
/// short expression could have a type of exponential size.
const MAX_PARTS: usize = 1_000;

/// The maximum number of parts of types that are compared and copied for one expression.
const MAX_COMPARED: usize = 3_000_000;

/// Substitutions of type variables, found while expressions are checked.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    compared: Cell<usize>,
    too_large: Cell<bool>,
    vars: Vec<Option<Type>>,
    /// Changed variables and their former values, so that a failed attempt can be undone.
    trail: Vec<(usize, Option<Type>)>,
}

impl Mapping {
    /// Creates a variable.
    pub(crate) fn fresh(&mut self) -> Type {
        Type::Param(self.reserve(1))
    }

    /// Creates `count` variables and returns the number of the first.
    pub(crate) fn reserve(&mut self, count: usize) -> u32 {
        let first = self.vars.len();
        self.vars.resize(first + count, None);
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(n) => self.vars.get(*n as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, var: &Type, to: Type) {
        if let Type::Param(n) = var
            && let Some(slot) = self.vars.get_mut(*n as usize)
        {
            self.trail.push((*n as usize, slot.take()));
            *slot = Some(to);
        }
    }

    fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            if let Some((n, was)) = self.trail.pop() {
                self.vars[n] = was;
            }
        }
    }

    /// Unifies two lists of types, or changes nothing.
    pub(crate) fn assignable_all(&mut self, a: &[Type], b: &[Type]) -> bool {
        let mark = self.trail.len();
        let fits = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.unify(a, b));
        if fits {
            self.trail.clear();
        } else {
            self.undo(mark);
        }
        fits
    }

    /// Unifies two types, or changes nothing.
    pub(crate) fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        let mark = self.trail.len();
        let fits = self.unify(a, b);
        if fits {
            self.trail.clear();
        } else {
            self.undo(mark);
        }
        fits
    }

    /// Returns true if types were too large to be checked.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.too_large.get()
    }

    /// Returns a type, or `Error` if it is too large.
    pub(crate) fn limited(&self, ty: Type) -> Type {
        if ty.has_at_most(&mut { MAX_PARTS }) {
            ty
        } else {
            self.too_large.set(true);
            Type::Error
        }
    }

    /// Counts a comparison. Returns false if there were too many.
    fn compares(&self) -> bool {
        let compared = self.compared.get() + 1;
        self.compared.set(compared);
        if compared > MAX_COMPARED {
            self.too_large.set(true);
        }
        compared <= MAX_COMPARED
    }

    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        if !self.compares() {
            return false;
        }
        if matches!(b, Type::Param(_)) {
            let (valid, bound) = self.substitutes(a, b);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if matches!(a, Type::Param(_)) {
            return self.substitutes(b, a).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Struct(_)
                    | Type::Object(..)
                    | Type::Record(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.unify(a, b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            _ => a.same(b),
        }
    }

    /// Returns whether variable `var` can stand for `ty`, and whether it was bound already.
    fn substitutes(&mut self, ty: &Type, var: &Type) -> (bool, bool) {
        if ty.same(var) {
            return (true, true);
        }
        if let Some(bound) = self.find(var).cloned() {
            if ty.same(&bound) {
                return (true, true);
            }
            if self.unify(ty, &bound) {
                let general = most_general(ty, &bound).clone();
                if self.not_within(var, &general) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(var, ty) {
            self.bind(var, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Returns true if a variable does not occur in a type.
    fn not_within(&self, var: &Type, ty: &Type) -> bool {
        if !self.compares() || var.same(ty) {
            return false;
        }
        match ty {
            Type::Param(_) => self
                .find(ty)
                .is_none_or(|bound| self.not_within(var, bound)),
            Type::List(a) | Type::Optional(a) | Type::Type(Some(a)) => self.not_within(var, a),
            Type::Map(a, b) => self.not_within(var, a) && self.not_within(var, b),
            _ => true,
        }
    }

    /// Replaces bound variables, and with `free_to_dyn` the free ones by `dyn`.
    pub(crate) fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        let substituted = self.substituted(ty, free_to_dyn, &mut { MAX_PARTS });
        substituted.unwrap_or_else(|| {
            self.too_large.set(true);
            Type::Error
        })
    }

    /// Takes the parts of the result from `left`. Returns `None` if there are too many.
    fn substituted(&self, ty: &Type, free_to_dyn: bool, left: &mut usize) -> Option<Type> {
        *left = left.checked_sub(1)?;
        if !self.compares() {
            return None;
        }
        let mut below = |ty: &Arc<Type>| {
            if ty.has_variables() {
                Some(Arc::new(self.substituted(ty, free_to_dyn, &mut *left)?))
            } else {
                // Shared, because many expressions can have the same large type.
                ty.has_at_most(left).then(|| Arc::clone(ty))
            }
        };
        Some(match ty {
            Type::Param(_) => match self.find(ty) {
                Some(bound) => self.substituted(bound, free_to_dyn, left)?,
                None if free_to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(a) => Type::List(below(a)?),
            Type::Optional(a) => Type::Optional(below(a)?),
            Type::Map(a, b) => Type::Map(below(a)?, below(b)?),
            Type::Type(Some(a)) => Type::Type(Some(below(a)?)),
            other => other.clone(),
        })
    }
}

/// Returns the more general of two types that unify.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if less_specific(a, b) { a } else { b }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Param(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            less_specific(a, b)
        }
        (Type::Map(a, b), Type::Map(c, d)) => less_specific(a, c) && less_specific(b, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a.same(b),
    }
}

/// Renumbers the variables of a signature, so that each use has its own.
pub(crate) fn instantiate(ty: &Type, first: u32) -> Type {
    let below = |ty: &Arc<Type>| Arc::new(instantiate(ty, first));
    match ty {
        Type::Param(n) => Type::Param(first + n),
        Type::List(a) => Type::List(below(a)),
        Type::Optional(a) => Type::Optional(below(a)),
        Type::Map(a, b) => Type::Map(below(a), below(b)),
        Type::Type(Some(a)) => Type::Type(Some(below(a))),
        other => other.clone(),
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
