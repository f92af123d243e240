//! Parses the Go types of published modules: just enough of Go for the files that define them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// The type of a field, reduced to what its encodings distinguish.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ty {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    List(Box<Ty>),
    /// A list that protobuf encodes as a message.
    Wrapped(Box<Ty>),
    Map(Box<Ty>),
    /// A struct, by package and name.
    Named(String, String),
}

/// One field of a struct.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// The JSON name; empty for an inlined struct.
    pub(super) name: String,
    pub(super) ty: Ty,
    pub(super) pointer: bool,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    /// The protobuf number; 0 if it is not encoded.
    pub(super) number: u32,
}

/// A definition: `type Name …`.
#[derive(Debug, Clone)]
enum Definition {
    Struct(Vec<RawField>),
    Other(String),
}

#[derive(Debug, Clone)]
struct RawField {
    ty: String,
    tag: String,
    /// Index of the file that defines it: imports are per file.
    file: usize,
}

/// A package: its definitions, and the imports of each of its files.
#[derive(Debug, Default)]
struct Package {
    definitions: BTreeMap<String, (Definition, usize)>,
    imports: Vec<BTreeMap<String, String>>,
}

/// The modules on disk.
pub(super) struct Source {
    cache: PathBuf,
    version: String,
    packages: BTreeMap<String, Package>,
}

/// Types with their own encoding: leaves, whatever their Go fields are.
pub(super) const LEAVES: [(&str, &str); 11] = [
    ("k8s.io/apimachinery/pkg/api/resource", "Quantity"),
    ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "Time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "MicroTime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "Duration"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "FieldsV1"),
    ("k8s.io/apimachinery/pkg/runtime", "RawExtension"),
    (
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
        "JSON",
    ),
    (
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
        "JSONSchemaPropsOrArray",
    ),
    (
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
        "JSONSchemaPropsOrBool",
    ),
    (
        "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
        "JSONSchemaPropsOrStringArray",
    ),
];

impl Source {
    pub(super) fn new(cache: PathBuf, version: String) -> Self {
        Self {
            cache,
            version,
            packages: BTreeMap::new(),
        }
    }

    fn load(&mut self, package: &str) -> Result<()> {
        if self.packages.contains_key(package) {
            return Ok(());
        }
        let mut parts = package.splitn(3, '/');
        let (Some(domain), Some(module)) = (parts.next(), parts.next()) else {
            bail!("{package} is not in a known module");
        };
        let mut dir = self
            .cache
            .join(domain)
            .join(format!("{module}@{}", self.version));
        if let Some(rest) = parts.next() {
            dir.push(rest);
        }
        let entries = std::fs::read_dir(&dir).with_context(|| format!("{}", dir.display()))?;
        let mut files: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
        files.sort();
        let mut found = Package::default();
        for path in files {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_go = std::path::Path::new(&name)
                .extension()
                .is_some_and(|e| e == "go");
            let generated = ["_test.go", "generated", "zz_"]
                .iter()
                .any(|part| name.contains(part));
            if is_go && !generated {
                found.read(&std::fs::read_to_string(&path)?);
            }
        }
        self.packages.insert(package.to_owned(), found);
        Ok(())
    }

    /// Returns the fields of a struct, in order.
    pub(super) fn fields(&mut self, package: &str, name: &str) -> Result<Vec<Field>> {
        self.load(package)?;
        let found = self.packages[package].definitions.get(name).cloned();
        let Some((Definition::Struct(raw), _)) = found else {
            bail!("{package} has no struct {name}");
        };
        let mut fields = Vec::new();
        for field in raw {
            let json = tag(&field.tag, "json");
            let proto = tag(&field.tag, "protobuf");
            if json == Some("-") || (json.is_none() && proto.is_none()) {
                continue;
            }
            let mut options = json.unwrap_or_default().split(',');
            let json_name = options.next().unwrap_or_default().to_owned();
            let options: Vec<&str> = options.collect();
            let mut proto = proto.unwrap_or_default().split(',').skip(1);
            let number = proto.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            let single = proto.next() == Some("opt");
            let pointer = field.ty.starts_with('*');
            let bare = field.ty.trim_start_matches('*');
            let ty = self.resolve(package, bare, field.file)?;
            let ty = match ty {
                Ty::List(item) if single && !bare.starts_with('[') => Ty::Wrapped(item),
                ty => ty,
            };
            fields.push(Field {
                name: json_name,
                ty,
                pointer,
                omit_empty: options.contains(&"omitempty"),
                omit_zero: options.contains(&"omitzero"),
                number,
            });
        }
        Ok(fields)
    }

    fn resolve(&mut self, package: &str, ty: &str, file: usize) -> Result<Ty> {
        Ok(match ty {
            "string" => Ty::String,
            "int32" | "uint32" | "uint8" => Ty::Int32,
            "int64" | "int" | "uint64" => Ty::Int64,
            "bool" => Ty::Bool,
            "float64" => Ty::Double,
            "[]byte" => Ty::Bytes,
            _ if ty.starts_with("[]") => {
                let item = ty[2..].trim_start_matches('*');
                Ty::List(Box::new(self.resolve(package, item, file)?))
            }
            _ if ty.starts_with("map[") => {
                let (_, value) = ty[4..]
                    .split_once(']')
                    .context("map type without a value type")?;
                let value = self.resolve(package, value.trim_start_matches('*'), file)?;
                Ty::Map(Box::new(match value {
                    // A protobuf map cannot hold a list, so the list becomes a message.
                    Ty::List(item) => Ty::Wrapped(item),
                    value => value,
                }))
            }
            _ => match ty.split_once('.') {
                Some((alias, name)) => {
                    let imports = &self.packages[package].imports[file];
                    let found = imports.get(alias).cloned();
                    let other = found.with_context(|| format!("{package}: no import {alias}"))?;
                    self.named(&other, name)?
                }
                None => self.named(package, ty)?,
            },
        })
    }

    fn named(&mut self, package: &str, name: &str) -> Result<Ty> {
        if LEAVES.contains(&(package, name)) {
            return Ok(Ty::Named(package.into(), name.into()));
        }
        self.load(package)?;
        match self.packages[package].definitions.get(name).cloned() {
            Some((Definition::Struct(_), _)) => Ok(Ty::Named(package.into(), name.into())),
            Some((Definition::Other(ty), file)) => self.resolve(package, &ty, file),
            None => bail!("{package} has no type {name}"),
        }
    }
}

impl Package {
    fn read(&mut self, text: &str) {
        let file = self.imports.len();
        self.imports.push(BTreeMap::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("import (") {
                for line in lines.by_ref().take_while(|line| !line.starts_with(')')) {
                    self.import(line, file);
                }
            } else if let Some(line) = line.strip_prefix("import ") {
                self.import(line, file);
            } else if let Some(rest) = line.strip_prefix("type ") {
                let rest = rest.split("//").next().unwrap_or_default().trim();
                let Some((name, what)) = rest.split_once(' ') else {
                    continue;
                };
                let definition = if what.trim() == "struct {" {
                    let body = lines.by_ref().take_while(|line| *line != "}");
                    Definition::Struct(body.filter_map(|line| field(line, file)).collect())
                } else if what.trim().replace(' ', "") == "struct{}" {
                    Definition::Struct(Vec::new())
                } else if what.contains("struct") || what.contains("interface") {
                    continue;
                } else {
                    Definition::Other(what.trim_start_matches('=').trim().to_owned())
                };
                self.definitions.insert(name.to_owned(), (definition, file));
            }
        }
    }

    fn import(&mut self, line: &str, file: usize) {
        let line = line.trim();
        let Some((alias, path)) = line.split_once('"') else {
            return;
        };
        let path = path.trim_end_matches('"');
        let alias = match alias.trim() {
            "" => path.rsplit('/').next().unwrap_or_default(),
            alias => alias,
        };
        self.imports[file].insert(alias.to_owned(), path.to_owned());
    }
}

fn field(line: &str, file: usize) -> Option<RawField> {
    let line = line.trim();
    if line.is_empty() || line.starts_with("//") {
        return None;
    }
    let (head, tag) = line.split_once('`')?;
    let tag = tag.split('`').next()?.to_owned();
    let mut words = head.split_whitespace();
    let first = words.next()?.to_owned();
    // A struct without a name is embedded.
    let ty = words.next().map_or(first, str::to_owned);
    Some(RawField { ty, tag, file })
}

/// Returns the value of one entry of a struct tag, such as `json:"name,omitempty"`.
fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}
