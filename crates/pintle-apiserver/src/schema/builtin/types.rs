//! The types of built-in kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

static TABLE: &str = include_str!("../tables/types.txt");

/// A type, by reference: cheap to copy and to compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeRef(usize);

/// One type: what its JSON holds, and how its protobuf message spells it.
#[derive(Debug)]
pub(crate) struct Type {
    /// The short name: `Pod`.
    pub name: &'static str,
    /// The package in OpenAPI's spelling: `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Group, version and kind, if it is one that can stand alone.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    /// Set for the types that encode themselves: they have no fields to look at.
    pub leaf: Option<Leaf>,
    /// Whether the whole is one value to server-side apply.
    pub atomic: bool,
    /// Unions, as OpenAPI spells them.
    pub unions: Option<&'static str>,
    /// Whether it is a type of OpenAPI: false if its fields only ever stand inside others.
    pub public: bool,
    /// The fields of its JSON, sorted by name.
    pub fields: Vec<Field>,
    /// Literals its fields default to, as the published schemas tell them; zero values that a
    /// field holds anyway are not among them.
    pub defaults: Vec<(&'static str, serde_json::Value)>,
    /// The fields of its protobuf message, sorted by number.
    pub numbers: Vec<(u32, ProtoTarget)>,
}

/// Where a protobuf field goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtoTarget {
    /// To the field at this place in [`Type::fields`].
    Field(usize),
    /// A message whose fields stand inline in JSON.
    Inline(TypeRef),
}

/// One field of a type.
#[derive(Debug, Clone)]
// Each is a fact of its own about how the field is encoded.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The type.
    pub ty: FieldType,
    /// True if absent and zero are told apart.
    pub pointer: bool,
    /// True if an encoder leaves an empty value out (structs are never empty).
    pub omit_empty: bool,
    /// True if an encoder leaves a zero value out, structs included.
    pub omit_zero: bool,
    /// True if OpenAPI lists it as required.
    pub required: bool,
    /// How server-side apply sees the list.
    pub list_type: Option<ListType>,
    /// What tells items of a list of type map apart.
    pub list_map_keys: Vec<&'static str>,
    /// Whether the map or struct is one value to server-side apply.
    pub atomic: bool,
    /// How strategic merge patches treat it.
    pub patch_strategy: PatchStrategy,
    /// What tells items apart in a strategic merge patch.
    pub patch_merge_key: Option<&'static str>,
    /// The values allowed, if they are listed.
    pub allowed: Vec<&'static str>,
    /// The values allowed for each item of a list, if they are listed.
    pub allowed_items: Vec<&'static str>,
    /// The default OpenAPI tells, as JSON: zero values included.
    pub default: Option<&'static str>,
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldType {
    /// Text.
    String,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// True or false.
    Bool,
    /// A number.
    Double,
    /// Bytes, in base64.
    Bytes,
    /// A list.
    List(Box<FieldType>),
    /// A list that is a message of its own in protobuf.
    Wrapped(Box<FieldType>),
    /// A map from text.
    Map(Box<FieldType>),
    /// Another type.
    Named(TypeRef),
}

/// The types that encode themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// An amount: `500m`, `1Gi`.
    Quantity,
    /// A number or a text.
    IntOrString,
    /// A moment, to the second.
    Time,
    /// A moment, to the microsecond.
    MicroTime,
    /// A span: `1h0m0s`.
    Duration,
    /// Any object.
    RawExtension,
    /// A set of fields.
    Fields,
    /// Any JSON.
    Json,
    /// A schema, or a list of them.
    SchemaOrArray,
    /// A schema, or true or false.
    SchemaOrBool,
    /// A schema, or a list of names.
    SchemaOrStringArray,
    /// Whatever a patch holds.
    Patch,
}

/// How server-side apply sees a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One value.
    Atomic,
    /// Each value once.
    Set,
    /// Items by key.
    Map,
}

/// How strategic merge patches treat a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PatchStrategy {
    /// A list is merged instead of replaced.
    pub merge: bool,
    /// A map is replaced instead of merged.
    pub replace: bool,
    /// `$retainKeys` says which fields of the map stay.
    pub retain_keys: bool,
}

impl FieldType {
    /// The type it names.
    pub(crate) fn named(&self) -> Option<TypeRef> {
        match self {
            Self::Named(ty) => Some(*ty),
            _ => None,
        }
    }
}

impl TypeRef {
    /// The type itself.
    pub(crate) fn get(self) -> &'static Type {
        let entry = &table().entries[self.0];
        entry.parsed.get_or_init(|| table().parse(entry))
    }

    /// The field of that name.
    pub(crate) fn field(self, name: &str) -> Option<&'static Field> {
        let fields = &self.get().fields;
        let at = fields
            .binary_search_by_key(&name, |field| field.name)
            .ok()?;
        fields.get(at)
    }

    /// Its place in the table: a small number, different for each type.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// The name OpenAPI knows it by: `io.k8s.api.core.v1.Pod`.
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

/// The type of a kind.
pub(crate) fn kind(group: &str, version: &str, kind: &str) -> Option<TypeRef> {
    let table = table();
    let at = table
        .kinds
        .binary_search_by_key(&(group, version, kind), |(name, _)| *name)
        .ok()?;
    Some(table.kinds[at].1)
}

/// A type by the name OpenAPI knows it by.
pub(crate) fn named(name: &str) -> Option<TypeRef> {
    let (package, name) = name.rsplit_once('.')?;
    let table = table();
    let package = table.packages.iter().position(|known| *known == package)?;
    table.find(&format!("{package}.{name}"))
}

/// Every type, in the order of the table.
pub(crate) fn types() -> impl Iterator<Item = TypeRef> {
    (0..table().entries.len()).map(TypeRef)
}

type Kind = (&'static str, &'static str, &'static str);

/// The table, indexed by line.
struct Table {
    packages: Vec<&'static str>,
    entries: Vec<Entry>,
    /// `9.Pod` → place in `entries`.
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
            // A struct behind a pointer is not made to hold its own defaults.
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
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        for ty in types() {
            let lines = table().entries[ty.0].body.lines().count();
            let parsed = ty.get();
            assert!(
                parsed.fields.len() >= lines.saturating_sub(1),
                "{ty:?} lost fields"
            );
            assert!(parsed.fields.is_sorted_by_key(|field| field.name));
            assert!(!parsed.package.is_empty(), "{ty:?} has no package");
        }
    }

    /// Proves patch/merge-keys.
    #[test]
    fn merge_keys_and_list_map_keys_are_kept_apart() {
        let container = named("io.k8s.api.core.v1.Container").unwrap();
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.patch_merge_key, Some("containerPort"));
        assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
        assert!(ports.patch_strategy.merge);
        assert_eq!(ports.list_type, Some(ListType::Map));
    }

    #[test]
    fn inlined_fields_stand_in_their_holder() {
        let volume = named("io.k8s.api.core.v1.Volume").unwrap();
        assert!(volume.field("name").is_some());
        assert!(volume.field("emptyDir").is_some());
        let inline = volume
            .get()
            .numbers
            .iter()
            .find(|(number, _)| *number == 2)
            .unwrap();
        assert!(matches!(inline.1, ProtoTarget::Inline(ty) if ty.get().name == "VolumeSource"));
    }

    #[test]
    fn kinds_are_found() {
        let pod = kind("", "v1", "Pod").unwrap();
        assert_eq!(pod.schema_name(), "io.k8s.api.core.v1.Pod");
        assert_eq!(pod.get().kind, Some(("", "v1", "Pod")));
        assert!(kind("", "v2", "Pod").is_none());
    }
}
