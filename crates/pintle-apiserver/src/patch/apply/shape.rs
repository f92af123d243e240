//! The schema of a kind as server-side apply sees it: scalars, granular or atomic maps, and lists
//! that are atomic, sets, or associative (keyed).

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::schema::builtin::{Field, FieldType, ListType, TypeRef, named};
use crate::schema::structural::{Node, Structural};

/// The source of a kind's schema.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// The tables of built-in kinds.
    Builtin(TypeRef),
    /// The schema of a CRD.
    Custom(&'a Structural),
    /// No schema: maps are granular and lists atomic.
    Open,
}

/// A position in a schema.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Field(&'a FieldType, Option<&'a Field>),
    Type(TypeRef),
    Custom(&'a Node, bool),
    Text,
    Open,
}

/// The type of a value at a position.
pub(super) enum Atom<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map { atomic: bool, of: Place<'a> },
}

/// The type of a scalar.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Scalar {
    Text,
    Number,
    Bool,
    /// A scalar of any type.
    Untyped,
    /// Any value.
    Any,
}

/// A list and how its items are identified.
pub(super) struct List<'a> {
    pub(super) kind: ListKind<'a>,
    pub(super) item: Place<'a>,
}

pub(super) enum ListKind<'a> {
    Atomic,
    Set,
    Keys(Vec<Cow<'a, str>>),
}

static METADATA: LazyLock<Option<TypeRef>> =
    LazyLock::new(|| named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));

impl<'a> Shape<'a> {
    pub(super) fn root(self) -> Place<'a> {
        match self {
            Self::Builtin(ty) => Place::Type(ty),
            Self::Custom(schema) => Place::Custom(schema.node(), true),
            Self::Open => Place::Open,
        }
    }
}

impl<'a> Place<'a> {
    /// Returns the type of `value` at this position. Without a schema, the value determines it.
    pub(super) fn atom(self, value: &Value) -> Atom<'a> {
        match self {
            Self::Text => Atom::Scalar(Scalar::Text),
            Self::Type(ty) => named_atom(ty, false),
            Self::Field(ty, field) => match ty {
                FieldType::String | FieldType::Bytes => Atom::Scalar(Scalar::Text),
                FieldType::Int32 | FieldType::Int64 | FieldType::Double => {
                    Atom::Scalar(Scalar::Number)
                }
                FieldType::Bool => Atom::Scalar(Scalar::Bool),
                FieldType::List(item) | FieldType::Wrapped(item) => Atom::List(List {
                    kind: match field.and_then(|field| field.list_type.map(|kind| (field, kind))) {
                        Some((_, ListType::Set)) => ListKind::Set,
                        Some((field, ListType::Map)) => {
                            let keys = field.list_map_keys.iter();
                            ListKind::Keys(keys.map(|key| Cow::Borrowed(*key)).collect())
                        }
                        _ => ListKind::Atomic,
                    },
                    item: Self::Field(item, None),
                }),
                FieldType::Map(_) => Atom::Map {
                    atomic: field.is_some_and(|field| field.atomic),
                    of: self,
                },
                FieldType::Named(ty) => named_atom(*ty, field.is_some_and(|field| field.atomic)),
            },
            Self::Custom(node, _) => custom_atom(self, node, value),
            Self::Open => match value {
                Value::Object(_) => Atom::Map {
                    atomic: false,
                    of: Self::Open,
                },
                Value::Array(_) => Atom::List(List {
                    kind: ListKind::Atomic,
                    item: Self::Open,
                }),
                _ => Atom::Scalar(Scalar::Any),
            },
        }
    }

    /// Returns the position of field `name`, and whether it is a declared field rather than a map
    /// key. Returns `None` if the schema has no such field.
    pub(super) fn field(self, name: &str) -> Option<(Place<'a>, bool)> {
        match self {
            Self::Type(ty) => {
                let field = ty.field(name)?;
                Some((Self::Field(&field.ty, Some(field)), true))
            }
            Self::Field(FieldType::Map(of), _) => Some((Self::Field(of, None), false)),
            Self::Field(FieldType::Named(ty), _) => Self::Type(*ty).field(name),
            Self::Custom(node, root) => {
                if root || node.embedded {
                    match name {
                        "apiVersion" | "kind" => return Some((Self::Text, true)),
                        "metadata" => return METADATA.map(|ty| (Self::Type(ty), true)),
                        _ => {}
                    }
                }
                if let Some(property) = node.properties.get(name) {
                    return Some((Self::Custom(property, false), true));
                }
                if let Some(of) = node.additional_schema() {
                    return Some((Self::Custom(of, false), false));
                }
                let open = node.preserve_unknown || node.additional.is_some();
                open.then_some((Self::Open, false))
            }
            Self::Open => Some((Self::Open, false)),
            _ => None,
        }
    }

    /// Returns the default of an item's key field.
    fn key_default(self, name: &str) -> Option<Value> {
        match self.field(name)?.0 {
            Self::Field(_, Some(field)) => serde_json::from_str(field.default?).ok(),
            Self::Custom(node, _) => node.default.clone(),
            _ => None,
        }
    }
}

fn named_atom<'a>(ty: TypeRef, atomic: bool) -> Atom<'a> {
    let known = ty.get();
    match known.leaf {
        Some(_) => Atom::Scalar(Scalar::Any),
        None => Atom::Map {
            atomic: atomic || known.atomic,
            of: Place::Type(ty),
        },
    }
}

fn custom_atom<'a>(place: Place<'a>, node: &'a Node, value: &Value) -> Atom<'a> {
    if node.int_or_string {
        return Atom::Scalar(Scalar::Untyped);
    }
    match node.type_name.as_str() {
        "object" => Atom::Map {
            atomic: node.map_type.as_deref() == Some("atomic"),
            of: place,
        },
        "array" => Atom::List(List {
            kind: match node.list_type.as_deref() {
                Some("set") => ListKind::Set,
                Some("map") => {
                    let keys = node.list_map_keys.iter();
                    ListKind::Keys(keys.map(|key| Cow::Borrowed(key.as_str())).collect())
                }
                _ => ListKind::Atomic,
            },
            item: node
                .items
                .as_deref()
                .map_or(Place::Open, |item| Place::Custom(item, false)),
        }),
        // Upstream types a string with a format as any scalar.
        "string" => Atom::Scalar(match node.format.as_str() {
            "" | "byte" => Scalar::Text,
            _ => Scalar::Untyped,
        }),
        "integer" | "number" => Atom::Scalar(Scalar::Number),
        "boolean" => Atom::Scalar(Scalar::Bool),
        _ => Place::Open.atom(value),
    }
}

impl List<'_> {
    /// Returns the path element that identifies an item.
    pub(super) fn step(&self, item: &Value) -> Result<String, String> {
        match &self.kind {
            ListKind::Atomic => Err("invalid indexing of non-associative list".into()),
            ListKind::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".into())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null".into(),
                ),
                other => Ok(format!("v:{other}")),
            },
            ListKind::Keys(keys) => {
                let Value::Object(map) = item else {
                    let what = if item.is_null() {
                        "a null element"
                    } else {
                        "non-map elements"
                    };
                    return Err(format!("associative list with keys may not have {what}"));
                };
                let mut id = Map::new();
                for key in keys {
                    let value = map
                        .get(&**key)
                        .cloned()
                        .or_else(|| self.item.key_default(key));
                    if let Some(value) = value {
                        id.insert(key.to_string(), value);
                    }
                }
                if id.is_empty() {
                    let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields [{}] \
                         (and doesn't have default values for any key fields)",
                        keys.join(" ")
                    ));
                }
                Ok(format!("k:{}", Value::Object(id)))
            }
        }
    }
}
