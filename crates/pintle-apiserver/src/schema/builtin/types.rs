//! The Go types of built-in kinds, with their JSON and protobuf encodings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

static TABLE: &str = include_str!("../tables/types.txt");

/// A reference to a type; cheap to copy and compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeRef(usize);

/// A type and its JSON and protobuf encodings.
#[derive(Debug)]
pub(crate) struct Type {
    /// The short name: `Pod`.
    pub name: &'static str,
    /// The package as OpenAPI names it: `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Group, version and kind of a top-level type.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    /// Set for types with a custom encoding, whose fields are opaque.
    pub leaf: Option<Leaf>,
    /// True if server-side apply treats the type as one value.
    pub atomic: bool,
    /// Unions in OpenAPI form.
    pub unions: Option<&'static str>,
    /// True if OpenAPI lists the type; false if it is only ever inlined into others.
    pub public: bool,
    /// JSON fields, sorted by name.
    pub fields: Vec<Field>,
    /// Default literals from the published schemas, except zero values that the field has anyway.
    pub defaults: Vec<(&'static str, serde_json::Value)>,
    /// Protobuf fields, sorted by number.
    pub numbers: Vec<(u32, ProtoTarget)>,
}

/// Where a protobuf field is decoded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtoTarget {
    /// The field at this index of [`Type::fields`].
    Field(usize),
    /// A message whose fields are inlined in JSON.
    Inline(TypeRef),
}

/// A field of a type.
#[derive(Debug, Clone)]
// Independent properties of the encoding.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// The type.
    pub ty: FieldType,
    /// True if absent and zero are distinct.
    pub pointer: bool,
    /// True if an encoder omits an empty value (`omitempty`; structs are never empty).
    pub omit_empty: bool,
    /// True if an encoder omits a zero value, including structs (`omitzero`).
    pub omit_zero: bool,
    /// True if OpenAPI lists the field as required.
    pub required: bool,
    /// How server-side apply treats the list.
    pub list_type: Option<ListType>,
    /// The keys of a list of type `map`.
    pub list_map_keys: Vec<&'static str>,
    /// True if server-side apply treats the map or struct as one value.
    pub atomic: bool,
    /// How a strategic merge patch treats the field.
    pub patch_strategy: PatchStrategy,
    /// The merge key of a strategic merge patch.
    pub patch_merge_key: Option<&'static str>,
    /// The enum of allowed values, if there is one.
    pub allowed: Vec<&'static str>,
    /// The enum of allowed values for list items, if there is one.
    pub allowed_items: Vec<&'static str>,
    /// The OpenAPI default as JSON, including zero values.
    pub default: Option<&'static str>,
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldType {
    /// A string.
    String,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A boolean.
    Bool,
    /// A floating-point number.
    Double,
    /// Bytes, encoded in base64.
    Bytes,
    /// A list.
    List(Box<FieldType>),
    /// A list that is a separate message in protobuf.
    Wrapped(Box<FieldType>),
    /// A map with string keys.
    Map(Box<FieldType>),
    /// Another type.
    Named(TypeRef),
}

/// Types with a custom encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// A quantity: `500m`, `1Gi`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// A timestamp in seconds.
    Time,
    /// A timestamp in microseconds.
    MicroTime,
    /// A duration: `1h0m0s`.
    Duration,
    /// Any object.
    RawExtension,
    /// A set of fields (`FieldsV1`).
    Fields,
    /// Any JSON.
    Json,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrStringArray,
    /// The body of a patch.
    Patch,
}

/// How server-side apply treats a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListType {
    /// As one value.
    Atomic,
    /// As a set of unique values.
    Set,
    /// As items identified by keys.
    Map,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PatchStrategy {
    /// A list is merged instead of replaced.
    pub merge: bool,
    /// A map is replaced instead of merged.
    pub replace: bool,
    /// `$retainKeys` selects the fields of the map that stay.
    pub retain_keys: bool,
}

impl FieldType {
    /// Returns the type it refers to, if it is [`Named`](Self::Named).
    pub(crate) fn named(&self) -> Option<TypeRef> {
        match self {
            Self::Named(ty) => Some(*ty),
            _ => None,
        }
    }
}

impl TypeRef {
    /// Returns the type, parsing it on first use.
    pub(crate) fn get(self) -> &'static Type {
        let entry = &table().entries[self.0];
        entry.parsed.get_or_init(|| table().parse(entry))
    }

    /// Returns the field called `name`.
    pub(crate) fn field(self, name: &str) -> Option<&'static Field> {
        let fields = &self.get().fields;
        let at = fields
            .binary_search_by_key(&name, |field| field.name)
            .ok()?;
        fields.get(at)
    }

    /// Returns the index in the table, unique per type.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// Returns the OpenAPI name: `io.k8s.api.core.v1.Pod`.
    pub(crate) fn schema_name(self) -> String {
        let ty = self.get();
        format!("{}.{}", ty.package, ty.name)
    }
}

impl fmt::Debug for TypeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(table().entries[self.0].name)
    }
}

/// Looks up the type of a kind.
pub(crate) fn kind(group: &str, version: &str, kind: &str) -> Option<TypeRef> {
    let table = table();
    let at = table
        .kinds
        .binary_search_by_key(&(group, version, kind), |(name, _)| *name)
        .ok()?;
    Some(table.kinds[at].1)
}

/// Looks up a type by its OpenAPI name.
pub(crate) fn named(name: &str) -> Option<TypeRef> {
    let (package, name) = name.rsplit_once('.')?;
    let table = table();
    let package = table.packages.iter().position(|known| *known == package)?;
    table.find(&format!("{package}.{name}"))
}

/// Iterates over all types in the order of the table.
pub(crate) fn types() -> impl Iterator<Item = TypeRef> {
    (0..table().entries.len()).map(TypeRef)
}

type Kind = (&'static str, &'static str, &'static str);

/// The indexed table.
struct Table {
    packages: Vec<&'static str>,
    entries: Vec<Entry>,
    /// Maps `9.Pod` to an index in `entries`.
    names: BTreeMap<&'static str, usize>,
    kinds: Vec<(Kind, TypeRef)>,
}

/// The lines of one type.
struct Entry {
    name: &'static str,
    head: &'static str,
    body: &'static str,
    parsed: OnceLock<Type>,
}

fn table() -> &'static Table {
    static PARSED: LazyLock<Table> = LazyLock::new(|| Table::index(TABLE));
    &PARSED
}

impl Table {
    fn index(text: &'static str) -> Self {
        let mut table = Self {
            packages: Vec::new(),
            entries: Vec::new(),
            names: BTreeMap::new(),
            kinds: Vec::new(),
        };
        let mut parts = text.split("\nT\t");
        for line in parts.next().unwrap_or_default().lines() {
            if let Some(package) = line.strip_prefix("P\t") {
                table
                    .packages
                    .extend(package.split_once('\t').map(|(_, name)| name));
            }
        }
        for part in parts {
            let (head, body) = part.split_once('\n').unwrap_or((part, ""));
            let mut words = head.split('\t');
            let name = words.next().unwrap_or_default();
            let at = TypeRef(table.entries.len());
            for word in words {
                if let Some(kind) = word.strip_prefix("k=") {
                    let mut parts = kind.splitn(3, '/');
                    let mut part = || parts.next().unwrap_or_default();
                    table.kinds.push(((part(), part(), part()), at));
                }
            }
            table.names.insert(name, at.0);
            let head = head.get(name.len()..).unwrap_or_default();
            table.entries.push(Entry {
                name,
                head,
                body,
                parsed: OnceLock::new(),
            });
        }
        table.kinds.sort_unstable();
        table
    }

    fn find(&self, name: &str) -> Option<TypeRef> {
        self.names.get(name).map(|at| TypeRef(*at))
    }

    fn parse(&self, entry: &Entry) -> Type {
        let (package, name) = entry.name.split_once('.').unwrap_or_default();
        let package = package
            .parse()
            .ok()
            .and_then(|at: usize| self.packages.get(at));
        let mut ty = Type {
            name,
            package: package.copied().unwrap_or_default(),
            kind: None,
            leaf: leaf(name),
            atomic: false,
            unions: None,
            public: true,
            fields: Vec::new(),
            defaults: Vec::new(),
            numbers: Vec::new(),
        };
        for word in entry.head.split('\t') {
            match word.split_once('=') {
                Some(("k", kind)) => {
                    let mut parts = kind.splitn(3, '/');
                    let mut part = || parts.next().unwrap_or_default();
                    ty.kind = Some((part(), part(), part()));
                }
                Some(("mt", map_type)) => ty.atomic = map_type == "atomic",
                Some(("un", unions)) => ty.unions = Some(unions),
                _ if word == "-" => ty.public = false,
                _ => {}
            }
        }
        let mut numbered: Vec<(u32, &'static str)> = Vec::new();
        for line in entry.body.lines() {
            let mut words = line.split('\t');
            let mut word = || words.next().unwrap_or_default();
            let (name, spelled, number) = (word(), word(), word().parse().unwrap_or(0));
            let field_type = self.field_type(spelled);
            if name == "=" {
                if let Some(FieldType::Named(inline)) = field_type {
                    ty.fields.extend(inline.get().fields.iter().cloned());
                    if number != 0 {
                        ty.numbers.push((number, ProtoTarget::Inline(inline)));
                    }
                }
            } else if let Some(field_type) = field_type {
                ty.fields.push(field(name, field_type, words));
                numbered.push((number, name));
            }
        }
        ty.fields.sort_by_key(|field| field.name);
        for (number, name) in numbered.into_iter().filter(|(number, _)| *number != 0) {
            if let Ok(at) = ty.fields.binary_search_by_key(&name, |field| field.name) {
                ty.numbers.push((number, ProtoTarget::Field(at)));
            }
        }
        ty.numbers.sort_by_key(|(number, _)| *number);
        for field in &ty.fields {
            let literal = field.default.filter(|literal| {
                field.pointer || !matches!(*literal, "\"\"" | "0" | "false" | "{}")
            });
            // A nil struct pointer is not allocated to hold its defaults.
            let scalar = field.ty.named().is_none();
            let parsed = literal
                .filter(|_| scalar)
                .and_then(|l| serde_json::from_str(l).ok());
            ty.defaults.extend(parsed.map(|value| (field.name, value)));
        }
        ty
    }

    fn field_type(&self, spelled: &str) -> Option<FieldType> {
        let mut rest = spelled.chars();
        let first = rest.next()?;
        let inner = || self.field_type(rest.as_str()).map(Box::new);
        Some(match first {
            's' => FieldType::String,
            'i' => FieldType::Int32,
            'l' => FieldType::Int64,
            'b' => FieldType::Bool,
            'd' => FieldType::Double,
            'y' => FieldType::Bytes,
            '[' => FieldType::List(inner()?),
            'w' => FieldType::Wrapped(inner()?),
            '{' => FieldType::Map(inner()?),
            '@' => FieldType::Named(self.find(rest.as_str())?),
            _ => return None,
        })
    }
}

fn leaf(name: &str) -> Option<Leaf> {
    Some(match name {
        "Quantity" => Leaf::Quantity,
        "IntOrString" => Leaf::IntOrString,
        "Time" => Leaf::Time,
        "MicroTime" => Leaf::MicroTime,
        "Duration" => Leaf::Duration,
        "RawExtension" => Leaf::RawExtension,
        "FieldsV1" => Leaf::Fields,
        "JSON" => Leaf::Json,
        "JSONSchemaPropsOrArray" => Leaf::SchemaOrArray,
        "JSONSchemaPropsOrBool" => Leaf::SchemaOrBool,
        "JSONSchemaPropsOrStringArray" => Leaf::SchemaOrStringArray,
        "Patch" => Leaf::Patch,
        _ => return None,
    })
}

fn field(name: &'static str, ty: FieldType, mut words: std::str::Split<'static, char>) -> Field {
    let flags = words.next().unwrap_or_default();
    let mut field = Field {
        name,
        ty,
        pointer: flags.contains('*'),
        omit_empty: flags.contains('o'),
        omit_zero: flags.contains('z'),
        required: flags.contains('r'),
        list_type: None,
        list_map_keys: Vec::new(),
        atomic: false,
        patch_strategy: PatchStrategy::default(),
        patch_merge_key: None,
        allowed: Vec::new(),
        allowed_items: Vec::new(),
        default: None,
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "lt" => {
                field.list_type = match value {
                    "set" => Some(ListType::Set),
                    "map" => Some(ListType::Map),
                    _ => Some(ListType::Atomic),
                };
            }
            "lk" => field.list_map_keys = value.split(',').collect(),
            "mt" => field.atomic = value == "atomic",
            "ps" => {
                let has = |name| value.split(',').any(|word| word == name);
                field.patch_strategy = PatchStrategy {
                    merge: has("merge"),
                    replace: has("replace"),
                    retain_keys: has("retainKeys"),
                };
            }
            "pk" => field.patch_merge_key = Some(value),
            "en" => field.allowed = value.split(',').collect(),
            "ie" => field.allowed_items = value.split(',').collect(),
            "df" => field.default = Some(value),
            _ => {}
        }
    }
    field
}

#[cfg(test)]
mod tests;
