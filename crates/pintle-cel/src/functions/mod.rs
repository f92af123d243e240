//! The declarations of all functions of Kubernetes 1.36.
//!
//! The table is text, one overload per line: function, overload, parameters and result. A dot
//! before the parameters marks a member function, whose first parameter is the target. Capital
//! letters are type variables. Overloads are in cel-go's order, because the first match determines
//! the type of an ambiguous call.

mod signatures;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use self::signatures::{COMPARE, EXTENSIONS, KUBERNETES, OPTIONAL, STANDARD, TYPED_LISTS};
use crate::types::{Record, Type};

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// The number of type variables.
    pub(crate) vars: usize,
}

/// Returns the overloads of a function.
pub(crate) fn find(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

static FUNCTIONS: LazyLock<BTreeMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: BTreeMap<&'static str, Vec<Overload>> = BTreeMap::new();
    for table in [
        STANDARD,
        COMPARE,
        OPTIONAL,
        EXTENSIONS,
        KUBERNETES,
        TYPED_LISTS,
    ] {
        for line in table.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(id)) = (words.next(), words.next()) else {
                continue;
            };
            let (Some(params), Some(result)) = (words.next(), words.next()) else {
                continue;
            };
            let mut vars = Vec::new();
            let (member, params) = match params.strip_prefix('.') {
                Some(rest) => (true, rest),
                None => (false, params),
            };
            let mut reader = Reader {
                text: params.as_bytes(),
                at: 1,
                vars: &mut vars,
            };
            let params = reader.list(b')');
            let mut reader = Reader {
                text: result.as_bytes(),
                at: 0,
                vars: &mut vars,
            };
            let result = reader.read();
            let overload = Overload {
                id,
                member,
                params,
                result,
                vars: vars.len(),
            };
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

/// A reader of types in the table.
struct Reader<'t, 'v> {
    text: &'t [u8],
    at: usize,
    vars: &'v mut Vec<u8>,
}

impl Reader<'_, '_> {
    fn list(&mut self, end: u8) -> Vec<Type> {
        let mut types = Vec::new();
        while let Some(&c) = self.text.get(self.at) {
            if c == end {
                self.at += 1;
                break;
            }
            if c == b',' {
                self.at += 1;
                continue;
            }
            types.push(self.read());
        }
        types
    }

    fn read(&mut self) -> Type {
        let start = self.at;
        let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'.' || *c == b'_';
        while self.text.get(self.at).is_some_and(word) {
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        if self.at == start {
            self.at += 1;
            return Type::Dyn;
        }
        if let [var] = name
            && var.is_ascii_uppercase()
        {
            let n = self
                .vars
                .iter()
                .position(|known| known == var)
                .unwrap_or_else(|| {
                    self.vars.push(*var);
                    self.vars.len() - 1
                });
            return Type::Param(u32::try_from(n).unwrap_or_default());
        }
        let mut inner = Vec::new();
        if self.text.get(self.at) == Some(&b'(') {
            self.at += 1;
            inner = self.list(b')');
        }
        let mut inner = inner.into_iter().map(Arc::new);
        let mut next = || inner.next().unwrap_or_else(|| Arc::new(Type::Dyn));
        match name {
            b"bool" => Type::Bool,
            b"int" => Type::Int,
            b"uint" => Type::Uint,
            b"double" => Type::Double,
            b"string" => Type::String,
            b"bytes" => Type::Bytes,
            b"null" => Type::Null,
            b"duration" => Type::Duration,
            b"timestamp" => Type::Timestamp,
            b"list" => Type::List(next()),
            b"map" => {
                let key = next();
                Type::Map(key, next())
            }
            b"optional" => Type::Optional(next()),
            b"type" => Type::Type(Some(next())),
            b"ip" => Type::Opaque("net.IP"),
            b"cidr" => Type::Opaque("net.CIDR"),
            b"url" => Type::Struct("kubernetes.URL"),
            b"quantity" => Type::Struct("kubernetes.Quantity"),
            b"format" => Type::Struct("kubernetes.NamedFormat"),
            b"semver" => Type::Struct("kubernetes.Semver"),
            b"authorizer" => Type::Struct("kubernetes.authorization.Authorizer"),
            b"pathcheck" => Type::Struct("kubernetes.authorization.PathCheck"),
            b"groupcheck" => Type::Struct("kubernetes.authorization.GroupCheck"),
            b"resourcecheck" => Type::Struct("kubernetes.authorization.ResourceCheck"),
            b"decision" => Type::Struct("kubernetes.authorization.Decision"),
            _ => Type::Dyn,
        }
    }
}

/// The function that only expressions with the types of patches may call.
pub(crate) const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// Returns the type of patches that a name stands for: `JSONPatch`, `Object`, or a field below it
/// such as `Object.spec`, which no schema describes.
pub(crate) fn patch_type(name: &str) -> Option<Record> {
    if name == "JSONPatch" {
        let texts = ["op", "from", "path"].map(|name| (name, Type::String));
        let fields = texts.into_iter().chain([("value", Type::Dyn)]);
        return Some(Record::new(name, fields));
    }
    let rest = name.strip_prefix("Object")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| Record::open(name))
}

/// Returns the type that an identifier names, such as `int`.
pub(crate) fn type_name(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}
