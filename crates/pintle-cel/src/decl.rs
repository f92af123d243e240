//! The declared type of a value with a schema, and the sizes that cost estimates need.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::{parser::RESERVED, types::Type};

/// The size in bytes of the largest request that a server accepts, which bounds every value without
/// its own limit.
const MAX_REQUEST: i64 = 3 * 1024 * 1024;

/// The declaration of a schema: the type of values for expressions, and bounds on their size.
///
/// Built from an OpenAPI schema by [`Decl::from_schema`], following Kubernetes: schemas without a
/// type are visible to expressions only if they set `x-kubernetes-int-or-string`, as `dyn`; fields
/// without a CEL type are not visible at all.
#[derive(Debug)]
pub struct Decl {
    pub(crate) kind: DeclKind,
    /// The maximum number of items, entries or characters.
    pub(crate) max_elements: u64,
    /// The smallest size in JSON.
    min_serialized: i64,
    pub(crate) nullable: bool,
}

#[derive(Debug)]
pub(crate) enum DeclKind {
    /// `x-kubernetes-int-or-string`
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<Decl>,
        list_type: ListType,
    },
    Map(Arc<Decl>),
    Object(Object),
}

/// How a list compares and concatenates: `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    /// The names of the key fields.
    Map(Arc<[String]>),
}

#[derive(Debug)]
pub(crate) struct Object {
    /// Fields by escaped name.
    pub(crate) fields: BTreeMap<String, Arc<Decl>>,
    /// The escaped form of field names, where it differs.
    pub(crate) names: BTreeMap<String, String>,
    /// Whether the schema has properties. If not, keys are not escaped.
    pub(crate) has_properties: bool,
}

impl Decl {
    /// Reads the declaration of an OpenAPI schema. Returns `None` if its values are not visible to
    /// expressions.
    ///
    /// With `root`, the type, name and `generateName` of an object are visible even if the schema
    /// does not have them, as at the root of a resource.
    ///
    /// ```
    /// use pintle_cel::Decl;
    ///
    /// let schema = serde_json::json!({ "type": "array", "items": { "type": "string" } });
    /// let decl = Decl::from_schema(&schema, false).unwrap();
    /// assert_eq!(decl.cel_type().to_string(), "list(string)");
    /// ```
    #[must_use]
    pub fn from_schema(schema: &Json, root: bool) -> Option<Arc<Self>> {
        Decls::default().of(schema.as_object()?, root)
    }

    /// Returns the type of values, with a name for objects that messages can show.
    #[must_use]
    pub fn cel_type(self: &Arc<Self>) -> Type {
        self.named("selfType")
    }

    pub(crate) fn named(self: &Arc<Self>, name: &str) -> Type {
        match &self.kind {
            DeclKind::IntOrString => Type::Dyn,
            DeclKind::Bool => Type::Bool,
            DeclKind::Int => Type::Int,
            DeclKind::Double => Type::Double,
            DeclKind::String => Type::String,
            DeclKind::Bytes => Type::Bytes,
            DeclKind::Duration => Type::Duration,
            DeclKind::Date | DeclKind::DateTime => Type::Timestamp,
            DeclKind::List { items, .. } => Type::list(items.named(&format!("{name}.@idx"))),
            DeclKind::Map(values) => {
                Type::map(Type::String, values.named(&format!("{name}.@elem")))
            }
            DeclKind::Object(_) => Type::Object(name.into(), self.clone()),
        }
    }

    /// Returns the type of an object's field.
    pub(crate) fn field_type(&self, object: &str, field: &str) -> Option<Type> {
        match &self.kind {
            DeclKind::Object(decl) => {
                let found = decl.fields.get(field);
                let found = found.or_else(|| decl.fields.get(&keyword(field)?));
                Some(found?.named(&format!("{object}.{field}")))
            }
            _ => None,
        }
    }

    /// Returns the declaration of an object's property. `name` is not escaped.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::Object(object) => object.fields.get(&escape(name)?),
            _ => None,
        }
    }

    /// Returns the declaration of a list's items or a map's values.
    #[must_use]
    pub fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List { items, .. } => Some(items),
            DeclKind::Map(values) => Some(values),
            _ => None,
        }
    }

    /// Returns how many such values fit into the largest request: the number of times a rule may
    /// run if no schema above it has a limit.
    #[must_use]
    pub fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_REQUEST / (self.min_serialized.saturating_add(1)).max(1))
            .unwrap_or_default()
    }

    /// Returns the maximum size of the value at a path below this one.
    pub(crate) fn size_at(&self, path: &[String]) -> Option<u64> {
        let mut here = self;
        for name in path {
            here = match (name.as_str(), &here.kind) {
                ("@items" | "@values", DeclKind::List { items, .. }) => items,
                ("@items" | "@values", DeclKind::Map(values)) => values,
                // Keys are strings without a declared length.
                ("@keys", DeclKind::Map(_)) => &MAP_KEY,
                (name, DeclKind::Object(object)) => object.fields.get(name)?,
                _ => return None,
            };
        }
        Some(here.max_elements)
    }
}

/// A reader of the declarations of nested schemas, which reads each of them once.
///
/// A CRD may have rules at every level of its schema. Each needs the declaration of everything
/// below it, which is shared with the levels above.
///
/// ```
/// use pintle_cel::Decls;
/// use serde_json::json;
///
/// let schema = json!({ "type": "array", "items": { "type": "string" } });
/// let mut decls = Decls::default();
/// let items = decls.of(schema["items"].as_object().unwrap(), false).unwrap();
/// let list = decls.of(schema.as_object().unwrap(), false).unwrap();
/// assert!(std::sync::Arc::ptr_eq(list.element().unwrap(), &items));
/// ```
#[derive(Debug, Default)]
pub struct Decls<'a> {
    /// By the schema's address, which is unique for as long as the schemas are borrowed.
    known: BTreeMap<(usize, bool), Option<Arc<Decl>>>,
    schemas: PhantomData<&'a Json>,
}

impl<'a> Decls<'a> {
    /// Returns the declaration of a schema, as [`Decl::from_schema`] does.
    pub fn of(&mut self, schema: &'a Map<String, Json>, root: bool) -> Option<Arc<Decl>> {
        let key = (std::ptr::from_ref(schema).addr(), root);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let decl = self.read(schema, root).map(Arc::new);
        self.known.insert(key, decl.clone());
        decl
    }

    /// Returns the declaration of a schema below another one.
    fn below(&mut self, schema: &'a Json) -> Option<Arc<Decl>> {
        let schema = schema.as_object()?;
        self.of(schema, flag(schema, "x-kubernetes-embedded-resource"))
    }

    fn read(&mut self, schema: &'a Map<String, Json>, root: bool) -> Option<Decl> {
        let simple = |kind, max_elements: i64, min_serialized| {
            Some(Decl {
                kind,
                max_elements: u64::try_from(max_elements).unwrap_or_default(),
                min_serialized,
                nullable: flag(schema, "nullable"),
            })
        };
        let max_length = bound(schema, "maxLength");
        if flag(schema, "x-kubernetes-int-or-string") {
            let max = max_length.map_or(MAX_REQUEST - 2, |max| max.saturating_mul(4));
            return simple(DeclKind::IntOrString, max, 1);
        }
        match text(schema, "type") {
            "array" => {
                let items = self.below(schema.get("items")?)?;
                let max = bound(schema, "maxItems")
                    .unwrap_or((MAX_REQUEST - 2) / (items.min_serialized + 1));
                let list_type = match text(schema, "x-kubernetes-list-type") {
                    "set" => ListType::Set,
                    "map" => {
                        let keys = schema.get("x-kubernetes-list-map-keys");
                        let keys = keys.and_then(Json::as_array).into_iter().flatten();
                        let keys = keys.filter_map(Json::as_str).map(str::to_owned);
                        ListType::Map(keys.collect())
                    }
                    _ => ListType::Atomic,
                };
                simple(DeclKind::List { items, list_type }, max, 2)
            }
            "object" => {
                if let Some(values) = schema.get("additionalProperties").filter(|v| v.is_object()) {
                    let values = self.below(values)?;
                    let max = bound(schema, "maxProperties")
                        .unwrap_or((MAX_REQUEST - 2) / (values.min_serialized + 6));
                    return simple(DeclKind::Map(values), max, 2);
                }
                let (object, size) = self.object(schema, root);
                simple(DeclKind::Object(object), 0, size)
            }
            "string" => match text(schema, "format") {
                "byte" => simple(DeclKind::Bytes, max_length.unwrap_or(MAX_REQUEST - 2), 2),
                "duration" => simple(DeclKind::Duration, 32, 3),
                "date" => simple(DeclKind::Date, 12, 12),
                "date-time" => simple(DeclKind::DateTime, 32, 21),
                _ => {
                    let max = match (max_length, schema.get("enum").and_then(Json::as_array)) {
                        (Some(max), _) => max.saturating_mul(4),
                        (None, Some(allowed)) if !allowed.is_empty() => {
                            let texts = allowed.iter().filter_map(Json::as_str);
                            let longest = texts.map(str::len).max().unwrap_or_default();
                            i64::try_from(longest).unwrap_or(i64::MAX)
                        }
                        _ => MAX_REQUEST - 2,
                    };
                    simple(DeclKind::String, max, 2)
                }
            },
            "boolean" => simple(DeclKind::Bool, 0, 4),
            "number" => simple(DeclKind::Double, 0, 1),
            "integer" => simple(DeclKind::Int, 0, 1),
            _ => None,
        }
    }

    fn object(&mut self, schema: &'a Map<String, Json>, root: bool) -> (Object, i64) {
        let required = schema.get("required").and_then(Json::as_array);
        let required: BTreeSet<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        let properties = schema.get("properties").and_then(Json::as_object);
        let mut found: BTreeMap<&str, (Arc<Decl>, bool)> = BTreeMap::new();
        for (name, property) in properties.into_iter().flatten() {
            if let Some(decl) = self.below(property) {
                let has_default = property
                    .get("default")
                    .is_some_and(|value| !value.is_null());
                found.insert(name, (decl, has_default));
            }
        }
        if root && !declares_type_and_meta(schema) {
            // Restrictions on the metadata do not change what is visible.
            for (name, decl) in type_and_meta() {
                found.insert(name, (decl, false));
            }
        }
        let mut size = 2;
        let mut object = Object {
            fields: BTreeMap::new(),
            names: BTreeMap::new(),
            has_properties: root || properties.is_some(),
        };
        for (name, (decl, has_default)) in found {
            if required.contains(name) && !has_default {
                let length = i64::try_from(name.len()).unwrap_or(i64::MAX);
                size = length
                    .saturating_add(decl.min_serialized + 4)
                    .saturating_add(size);
            }
            if let Some(escaped) = escape(name) {
                if escaped != name {
                    object.names.insert(name.to_owned(), escaped.clone());
                }
                object.fields.insert(escaped, decl);
            }
        }
        (object, size)
    }
}

/// Returns true if a schema declares everything that rules at the root of a resource may always
/// use. As upstream, the schema then decides what else of the metadata they see.
fn declares_type_and_meta(schema: &Map<String, Json>) -> bool {
    let text = |schema: &Json, name: &str| schema[name]["type"] == "string";
    schema.get("properties").is_some_and(|properties| {
        let metadata = &properties["metadata"];
        let names = &metadata["properties"];
        text(properties, "kind")
            && text(properties, "apiVersion")
            && metadata["type"] == "object"
            && text(names, "name")
            && text(names, "generateName")
    })
}

/// Returns the fields that rules at the root of a resource may always use.
fn type_and_meta() -> [(&'static str, Arc<Decl>); 3] {
    let decl = |kind, max_elements| {
        Arc::new(Decl {
            kind,
            max_elements,
            min_serialized: 2,
            nullable: false,
        })
    };
    let text = decl(DeclKind::String, (MAX_REQUEST - 2).unsigned_abs());
    let names = ["generateName", "name"].map(|name| (name.to_owned(), text.clone()));
    let metadata = Object {
        fields: names.into(),
        names: BTreeMap::new(),
        has_properties: true,
    };
    let metadata = decl(DeclKind::Object(metadata), 0);
    [
        ("apiVersion", text.clone()),
        ("kind", text),
        ("metadata", metadata),
    ]
}

static MAP_KEY: Decl = Decl {
    kind: DeclKind::String,
    max_elements: 0,
    min_serialized: 2,
    nullable: false,
};

fn flag(schema: &Map<String, Json>, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or_default()
}

fn text<'s>(schema: &'s Map<String, Json>, name: &str) -> &'s str {
    schema.get(name).and_then(Json::as_str).unwrap_or_default()
}

fn bound(schema: &Map<String, Json>, name: &str) -> Option<i64> {
    schema
        .get(name)
        .and_then(Json::as_i64)
        .map(|value| value.max(0))
}

/// Returns true for a name that a variable can have: an identifier that is not a keyword.
///
/// ```
/// assert!(pintle_cel::is_identifier("maxReplicas"));
/// assert!(!pintle_cel::is_identifier("2x") && !pintle_cel::is_identifier("namespace"));
/// ```
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let is_word = name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit());
    !name.is_empty() && is_word && !is_keyword(name)
}

fn is_keyword(name: &str) -> bool {
    matches!(name, "true" | "false" | "null" | "in") || RESERVED.contains(&name)
}

/// Returns the escaped form of a field name that is a keyword. Expressions may use either form.
pub(crate) fn keyword(name: &str) -> Option<String> {
    is_keyword(name).then(|| format!("__{name}__"))
}

/// Escapes a field name to an identifier, or returns `None` if that is impossible.
///
/// ```
/// assert_eq!(pintle_cel::escape("a-b").as_deref(), Some("a__dash__b"));
/// assert_eq!(pintle_cel::escape("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(pintle_cel::escape("0"), None);
/// ```
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(escaped) = keyword(name) {
        return Some(escaped);
    }
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.peek() == Some(&'_') => {
                chars.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}
