//! Decoding of built-in kinds as a typed server would do it.
//!
//! kube-apiserver decodes a body into a Go struct and encodes it again: unknown fields are dropped,
//! values of the wrong type are rejected, empty `omitempty` fields disappear and required ones
//! appear. [`canonicalize`] has the same effect on JSON, driven by the tables in
//! [`builtin`](super::builtin).

pub(crate) mod quantity;
mod time;

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    sync::{LazyLock, OnceLock},
};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::builtin::{Field, FieldType, Leaf, Type, TypeRef, named, types};
use super::field_paths::FieldPaths;

pub(crate) use self::time::{micro_time, second_time};

/// A value does not fit the type of its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TypeError(String);

/// Converts `object` to what an encoder would write for this type. Returns the paths of unknown
/// fields, ordered by name.
pub(crate) fn canonicalize(object: &mut Value, ty: TypeRef) -> Result<Vec<String>, TypeError> {
    let mut walk = Walk::default();
    walk.named(object, ty, "")?;
    Ok(walk.unknown.into_vec())
}

/// Like [`canonicalize`], for the result of a strategic merge. Errors are worded like those of
/// upstream's conversion from unstructured maps, which have no paths.
pub(crate) fn restore(object: &mut Value, ty: TypeRef) -> Result<Vec<String>, TypeError> {
    let mut walk = Walk {
        restoring: true,
        ..Walk::default()
    };
    walk.named(object, ty, "")?;
    Ok(walk.unknown.into_vec())
}

/// Returns the zero value of a type as an encoder writes it.
pub(crate) fn zero(ty: TypeRef) -> Value {
    match ty.get().leaf {
        Some(Leaf::Quantity) => "0".into(),
        Some(Leaf::IntOrString) => 0.into(),
        Some(Leaf::Duration) => "0s".into(),
        Some(_) => Value::Null,
        None => {
            let always = ty.get().fields.iter().filter(|field| always(field));
            Value::Object(
                always
                    .map(|field| (field.name.to_owned(), empty(field)))
                    .collect(),
            )
        }
    }
}

/// Returns the cached zero value of a type.
pub(crate) fn zero_ref(ty: TypeRef) -> &'static Value {
    static ALL: LazyLock<Vec<OnceLock<Value>>> =
        LazyLock::new(|| types().map(|_| OnceLock::new()).collect());
    static NULL: Value = Value::Null;
    ALL.get(ty.index())
        .map_or(&NULL, |one| one.get_or_init(|| zero(ty)))
}

/// Returns true if an encoder never omits the field.
fn always(field: &Field) -> bool {
    if field.omit_zero {
        return false;
    }
    // Scalars, lists and maps can be empty; a struct never is.
    let never_empty = !field.pointer && field.ty.named().is_some();
    !field.omit_empty || never_empty
}

/// Returns what an encoder writes for an unset field.
fn empty(field: &Field) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match &field.ty {
        FieldType::String => "".into(),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => 0.into(),
        FieldType::Bool => false.into(),
        // Clients with generated models reject null where a list or map is required.
        FieldType::List(_) | FieldType::Wrapped(_) if field.required => Value::Array(Vec::new()),
        FieldType::Map(_) if field.required => Value::Object(Map::new()),
        FieldType::Bytes | FieldType::List(_) | FieldType::Wrapped(_) | FieldType::Map(_) => {
            Value::Null
        }
        FieldType::Named(ty) => zero(*ty),
    }
}

/// Returns true for values that an encoder omits from an `omitempty` field.
fn is_empty(value: &Value, ty: &FieldType) -> bool {
    match (ty, value) {
        (FieldType::Named(_), _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::Bool(set)) => !set,
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
        (_, Value::Null) => true,
    }
}

/// Returns true for a list that is invalid when empty but defaulted when absent, and so must not be
/// dropped before validation.
fn is_invalid_when_empty(ty: &Type, field: &Field) -> bool {
    (ty.name, field.name) == ("HPAScalingRules", "policies")
}

enum Step {
    Name(&'static str),
    /// A map key, which error messages of `encoding/json` leave out.
    Key(String),
    Index(usize),
}

/// The Go kind of the expected type.
#[derive(Clone, Copy)]
enum Shape {
    Struct,
    Map,
    Slice,
    Scalar,
    /// A type with its own `UnmarshalJSON`.
    Leaf,
}

#[derive(Default)]
struct Walk {
    path: Vec<Step>,
    unknown: FieldPaths,
    /// Words errors as [`restore`] does.
    restoring: bool,
    /// Nonzero inside types with a custom decoder, where unknown fields are dropped silently.
    quiet: usize,
}

impl Walk {
    /// Records an unknown field by its full path.
    fn record(&mut self, name: &str) {
        if self.unknown.is_full() {
            return;
        }
        let steps: Vec<Cow<'_, str>> = self
            .path
            .iter()
            .map(|step| match step {
                Step::Name(name) => Cow::Borrowed(*name),
                Step::Key(name) => Cow::Borrowed(name.as_str()),
                Step::Index(index) => Cow::Owned(format!("[{index}]")),
            })
            .collect();
        let pieces = steps.iter().enumerate().flat_map(|(i, step)| {
            let item = matches!(self.path.get(i), Some(Step::Index(_)));
            let dot = if i == 0 || item { "" } else { "." };
            [dot, step.as_ref()]
        });
        let dot = if steps.is_empty() { "" } else { "." };
        self.unknown.add(pieces.chain([dot, name]));
    }

    /// Returns the path without indices and keys, as type errors show it.
    fn field_path(&self) -> String {
        let names = self.path.iter().filter_map(|step| match step {
            Step::Name(name) => Some(*name),
            Step::Key(_) | Step::Index(_) => None,
        });
        names.collect::<Vec<_>>().join(".")
    }

    fn wrong(&self, found: &Value, owner: &str, wanted: &str, shape: Shape) -> TypeError {
        if self.restoring {
            return TypeError(unrestorable(found, wanted, shape));
        }
        let found = match found {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(n) if wanted.starts_with("int") => format!("number {n}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let path = self.field_path();
        TypeError(if path.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {wanted}")
        } else {
            format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type \
                 {wanted}"
            )
        })
    }

    fn named(&mut self, value: &mut Value, ty: TypeRef, owner: &str) -> Result<(), TypeError> {
        let ty = ty.get();
        if let Some(leaf) = ty.leaf {
            return self.leaf(value, leaf, ty, owner);
        }
        match value {
            Value::Object(map) => self.fields(map, ty),
            other => Err(self.wrong(other, owner, &go_name(ty), Shape::Struct)),
        }
    }

    fn fields(&mut self, map: &mut Map<String, Value>, ty: &'static Type) -> Result<(), TypeError> {
        let mut failed = None;
        map.retain(|name, value| {
            if failed.is_some() {
                return true;
            }
            let at = ty
                .fields
                .binary_search_by_key(&name.as_str(), |field| field.name);
            let Some(field) = at.ok().and_then(|at| ty.fields.get(at)) else {
                if self.quiet == 0 {
                    self.record(name);
                }
                return false;
            };
            if value.is_null() {
                return false;
            }
            self.path.push(Step::Name(field.name));
            let read = self.value(value, &field.ty, ty.name);
            self.path.pop();
            if let Err(error) = read {
                failed = Some(error);
                return true;
            }
            let gone = match field {
                Field {
                    omit_zero: true, ..
                } => value.is_null(),
                Field {
                    omit_empty: true,
                    pointer: false,
                    ..
                } => is_empty(value, &field.ty),
                _ => false,
            };
            !gone || is_invalid_when_empty(ty, field)
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for field in ty.fields.iter().filter(|field| always(field)) {
            if !map.contains_key(field.name) {
                map.insert(field.name.to_owned(), empty(field));
            }
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, ty: &FieldType, owner: &str) -> Result<(), TypeError> {
        match (ty, &mut *value) {
            (FieldType::String, Value::String(_))
            | (FieldType::Bool, Value::Bool(_))
            | (FieldType::Double, Value::Number(_)) => Ok(()),
            (FieldType::Int64, Value::Number(n)) if n.is_i64() => Ok(()),
            (FieldType::Int32, Value::Number(n))
                if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
            {
                Ok(())
            }
            (FieldType::Bytes, Value::String(text)) => {
                *text = bytes(text).map_err(|TypeError(why)| {
                    let prefix = if self.restoring {
                        "error decoding from json: "
                    } else {
                        ""
                    };
                    TypeError(format!("{prefix}{why}"))
                })?;
                Ok(())
            }
            (FieldType::List(item) | FieldType::Wrapped(item), Value::Array(items)) => {
                for (i, value) in items.iter_mut().enumerate() {
                    self.path.push(Step::Index(i));
                    self.element(value, item, owner)?;
                    self.path.pop();
                }
                Ok(())
            }
            (FieldType::Map(of), Value::Object(map)) => {
                for (name, value) in map.iter_mut() {
                    self.path.push(Step::Key(name.clone()));
                    self.element(value, of, owner)?;
                    self.path.pop();
                }
                Ok(())
            }
            (FieldType::Named(ty), value) => self.named(value, *ty, owner),
            (ty, value) => {
                let shape = match ty {
                    FieldType::Map(_) => Shape::Map,
                    FieldType::List(_) | FieldType::Wrapped(_) | FieldType::Bytes => Shape::Slice,
                    _ => Shape::Scalar,
                };
                Err(self.wrong(value, owner, &go_type(ty), shape))
            }
        }
    }

    /// Decodes an item of a list or map, where null means the zero value.
    fn element(&mut self, value: &mut Value, ty: &FieldType, owner: &str) -> Result<(), TypeError> {
        if value.is_null() {
            *value = match ty {
                FieldType::String => "".into(),
                FieldType::Int32 | FieldType::Int64 | FieldType::Double => 0.into(),
                FieldType::Bool => false.into(),
                FieldType::Named(ty) => zero(*ty),
                _ => Value::Null,
            };
            return Ok(());
        }
        self.value(value, ty, owner)
    }

    fn leaf(
        &mut self,
        value: &mut Value,
        leaf: Leaf,
        ty: &'static Type,
        owner: &str,
    ) -> Result<(), TypeError> {
        match (leaf, &mut *value) {
            (Leaf::Quantity, Value::String(text)) => {
                let amount = quantity::canonical(text);
                *text = amount.map_err(|error| TypeError(error.to_string()))?;
            }
            (Leaf::Quantity, Value::Number(number)) => {
                let amount = quantity::canonical(&number.to_string());
                *value = amount.map_err(|error| TypeError(error.to_string()))?.into();
            }
            (Leaf::IntOrString | Leaf::Duration, Value::String(_))
            | (Leaf::SchemaOrBool, Value::Bool(_))
            | (Leaf::RawExtension | Leaf::Fields | Leaf::Json | Leaf::Patch, _) => {}
            (Leaf::IntOrString, Value::Number(n))
                if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
            (Leaf::IntOrString, found) => {
                return Err(self.wrong(found, owner, "int32", Shape::Leaf));
            }
            (Leaf::Time, Value::String(text)) if text.is_empty() => *value = Value::Null,
            (Leaf::Time, Value::String(text)) => *text = time::read(text)?.seconds(),
            (Leaf::MicroTime, Value::String(text)) => *text = time::read_micros(text)?.micros(),
            (Leaf::SchemaOrArray | Leaf::SchemaOrStringArray, Value::Array(items)) => {
                for item in items.iter_mut().filter(|item| item.is_object()) {
                    self.schema(item)?;
                }
            }
            (
                Leaf::SchemaOrArray | Leaf::SchemaOrBool | Leaf::SchemaOrStringArray,
                value @ Value::Object(_),
            ) => self.schema(value)?,
            (Leaf::Time | Leaf::MicroTime, found) if self.restoring => {
                return Err(self.wrong(found, owner, "string", Shape::Leaf));
            }
            (_, found) => return Err(self.wrong(found, owner, &go_name(ty), Shape::Leaf)),
        }
        Ok(())
    }

    fn schema(&mut self, value: &mut Value) -> Result<(), TypeError> {
        const NAME: &str =
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let Some(ty) = named(NAME) else { return Ok(()) };
        self.quiet += 1;
        let read = self.named(value, ty, "");
        self.quiet -= 1;
        read
    }
}

/// Returns upstream's conversion error for a value of the wrong type. For scalars it depends on
/// whether Go's reflection could convert the value.
fn unrestorable(found: &Value, wanted: &str, shape: Shape) -> String {
    let kind = match found {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match shape {
        Shape::Struct => format!("cannot restore struct from: {kind}"),
        Shape::Map => format!("cannot restore map from {kind}"),
        Shape::Slice => format!("cannot restore slice from {kind}"),
        Shape::Scalar => {
            let convertible = match wanted {
                "string" => kind == "int64",
                "bool" => false,
                _ => found.is_number(),
            };
            if convertible {
                format!("cannot convert {kind} to {wanted}")
            } else {
                format!("unrecognized type: {wanted}")
            }
        }
        Shape::Leaf => {
            let found = crate::patch::json_kind(found);
            format!("json: cannot unmarshal {found} into Go value of type {wanted}")
        }
    }
}

/// Returns the Go name of a type: `v1.Container`.
fn go_name(ty: &Type) -> String {
    let package = ty.package.rsplit('.').next().unwrap_or_default();
    format!("{package}.{}", ty.name)
}

fn go_type(ty: &FieldType) -> String {
    match ty {
        FieldType::String => "string".into(),
        FieldType::Int32 => "int32".into(),
        FieldType::Int64 => "int64".into(),
        FieldType::Bool => "bool".into(),
        FieldType::Double => "float64".into(),
        FieldType::Bytes => "[]uint8".into(),
        FieldType::List(item) | FieldType::Wrapped(item) => format!("[]{}", go_type(item)),
        FieldType::Map(value) => format!("map[string]{}", go_type(value)),
        FieldType::Named(ty) => go_name(ty.get()),
    }
}

/// Re-encodes base64 as an encoder would write it.
fn bytes(text: &str) -> Result<String, TypeError> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let decoded = LENIENT.decode(&plain).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => at,
            _ => plain.len().saturating_sub(plain.len() % 4),
        };
        TypeError(format!("illegal base64 data at input byte {at}"))
    })?;
    Ok(base64::engine::general_purpose::STANDARD.encode(decoded))
}
