//! The two tables, as text: one line per type, field or resource.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::VERSION;
use super::go::{Field, LEAVES, Source, Ty};
use super::openapi::{Schemas, extras};

type Name = (String, String);

/// `io.k8s.api.core.v1.Pod` as package and name.
fn go_name(schema: &str) -> Option<Name> {
    let rest = schema.strip_prefix("io.k8s.")?;
    let (package, name) = rest.rsplit_once('.')?;
    Some((
        format!("k8s.io/{}", package.replace('.', "/")),
        name.to_owned(),
    ))
}

fn schema_name((package, name): &Name) -> String {
    let path = package.strip_prefix("k8s.io/").unwrap_or(package);
    format!("io.k8s.{}.{name}", path.replace('/', "."))
}

/// All types reachable from served kinds.
struct Types {
    fields: BTreeMap<Name, Vec<Field>>,
    /// The type that inlines this struct, if any.
    inlined_by: BTreeMap<Name, Name>,
}

impl Types {
    fn collect(source: &mut Source, schemas: &Schemas) -> Result<Self> {
        let mut types = Self {
            fields: BTreeMap::new(),
            inlined_by: BTreeMap::new(),
        };
        let mut open: Vec<Name> = schemas
            .all
            .keys()
            .filter_map(|name| go_name(name))
            .collect();
        let mut seen: BTreeSet<Name> = open.iter().cloned().collect();
        while let Some(name) = open.pop() {
            let leaf = LEAVES.contains(&(name.0.as_str(), name.1.as_str()));
            let opaque = name.1 == "Patch" || name.1 == "Info";
            let fields = match (leaf, opaque) {
                (false, false) => source
                    .fields(&name.0, &name.1)
                    .with_context(|| name.1.clone())?,
                _ => Vec::new(),
            };
            for field in &fields {
                let mut ty = &field.ty;
                while let Ty::List(item) | Ty::Wrapped(item) | Ty::Map(item) = ty {
                    ty = item;
                }
                if let Ty::Named(package, other) = ty {
                    let other = (package.clone(), other.clone());
                    if field.name.is_empty() {
                        types
                            .inlined_by
                            .entry(other.clone())
                            .or_insert_with(|| name.clone());
                    }
                    if seen.insert(other.clone()) {
                        open.push(other);
                    }
                }
            }
            types.fields.insert(name, fields);
        }
        Ok(types)
    }

    /// Returns the schema that specifies the fields of `name`: its own, or the schema of a type
    /// that inlines it.
    fn specified_in(&self, name: &Name, schemas: &Schemas) -> Option<String> {
        let mut name = name;
        loop {
            let schema = schema_name(name);
            if schemas.all.contains_key(&schema) {
                return Some(schema);
            }
            name = self.inlined_by.get(name)?;
        }
    }
}

/// Renders the table of types.
pub(super) fn types(source: &mut Source, schemas: &Schemas) -> Result<String> {
    let types = Types::collect(source, schemas)?;
    let packages: BTreeSet<&str> = types.fields.keys().map(|name| name.0.as_str()).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let short = |package: &str, name: &str| -> String {
        let index = packages
            .iter()
            .position(|p| *p == package)
            .unwrap_or_default();
        format!("{index}.{name}")
    };
    let mut out = String::new();
    writeln!(
        out,
        "# Kubernetes v{VERSION}. Written by `cargo xtask generate`."
    )?;
    for (index, package) in packages.iter().enumerate() {
        let path = package
            .strip_prefix("k8s.io/")
            .unwrap_or(package)
            .replace('/', ".");
        writeln!(out, "P\t{index}\tio.k8s.{path}")?;
    }
    for (name, fields) in &types.fields {
        let schema = schemas.all.get(&schema_name(name));
        write!(out, "T\t{}", short(&name.0, &name.1))?;
        out.push_str(&type_words(schema));
        out.push('\n');
        let specified_in = types.specified_in(name, schemas).unwrap_or_default();
        for field in fields {
            let ty = encode(&field.ty, &short);
            if field.name.is_empty() {
                ensure!(
                    matches!(field.ty, Ty::Named(..)),
                    "{} inlines a {ty}",
                    name.1
                );
                writeln!(out, "=\t{ty}\t{}", field.number)?;
                continue;
            }
            let property = schemas.property(&specified_in, &field.name);
            let mut flags = String::new();
            for (set, flag) in [
                (field.pointer, '*'),
                (field.omit_empty, 'o'),
                (field.omit_zero, 'z'),
                (schemas.required(&specified_in, &field.name), 'r'),
                (property.is_none(), 'x'),
            ] {
                if set {
                    flags.push(flag);
                }
            }
            if flags.is_empty() {
                flags.push('-');
            }
            write!(out, "{}\t{ty}\t{}\t{flags}", field.name, field.number)?;
            for word in property.map(extras).unwrap_or_default() {
                ensure!(
                    !word.contains(['\t', '\n']),
                    "{word:?} contains a separator of the table"
                );
                write!(out, "\t{word}")?;
            }
            out.push('\n');
        }
    }
    Ok(out)
}

/// Returns the properties of the type as a whole.
fn type_words(schema: Option<&Value>) -> String {
    let mut out = String::new();
    let Some(schema) = schema else {
        return "\t-".into();
    };
    let kinds = schema
        .get("x-kubernetes-group-version-kind")
        .and_then(Value::as_array);
    // Options and watch events exist in every group and are not kinds.
    if let Some([kind]) = kinds.map(Vec::as_slice) {
        let word = |key: &str| kind[key].as_str().unwrap_or_default();
        let _ = write!(
            out,
            "\tk={}/{}/{}",
            word("group"),
            word("version"),
            word("kind")
        );
    }
    if let Some(map_type) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        let _ = write!(out, "\tmt={map_type}");
    }
    if let Some(unions) = schema.get("x-kubernetes-unions") {
        let _ = write!(out, "\tun={unions}");
    }
    out
}

fn encode(ty: &Ty, short: &dyn Fn(&str, &str) -> String) -> String {
    match ty {
        Ty::String => "s".into(),
        Ty::Int32 => "i".into(),
        Ty::Int64 => "l".into(),
        Ty::Bool => "b".into(),
        Ty::Double => "d".into(),
        Ty::Bytes => "y".into(),
        Ty::List(item) => format!("[{}", encode(item, short)),
        Ty::Wrapped(item) => format!("w{}", encode(item, short)),
        Ty::Map(item) => format!("{{{}", encode(item, short)),
        Ty::Named(package, name) => format!("@{}", short(package, name)),
    }
}

/// Renders the table of resources.
pub(super) fn resources(lists: &[Value]) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "# Kubernetes v{VERSION}. Written by `cargo xtask generate`."
    )?;
    let words = |value: &Value| -> String {
        let items = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let joined = items.collect::<Vec<_>>().join(",");
        if joined.is_empty() {
            "-".into()
        } else {
            joined
        }
    };
    for list in lists {
        let name = list["groupVersion"]
            .as_str()
            .context("resource list without a name")?;
        writeln!(out, "G\t{name}")?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let text = |key: &str| match resource[key].as_str() {
                None | Some("") => "-",
                Some(text) => text,
            };
            let kind = match (resource["group"].as_str(), resource["version"].as_str()) {
                (None, None) => text("kind").to_owned(),
                (group, version) => format!(
                    "{}/{}/{}",
                    group.unwrap_or_default(),
                    version.unwrap_or_default(),
                    text("kind")
                ),
            };
            let scope = if resource["namespaced"] == true {
                'N'
            } else {
                'C'
            };
            writeln!(
                out,
                "{}\t{}\t{kind}\t{scope}\t{}\t{}\t{}\t{}",
                text("name"),
                text("singularName"),
                words(&resource["verbs"]),
                words(&resource["shortNames"]),
                words(&resource["categories"]),
                text("storageVersionHash"),
            )?;
        }
    }
    Ok(out)
}
