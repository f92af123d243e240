//! Adds a context to the content of a kubeconfig and removes it again.
//!
//! The cluster, user and context carry an extension that marks them, as minikube's do. Only marked
//! entries are ever replaced or removed. Everything else is preserved except comments, which
//! kubectl does not preserve either.
//!
//! The extension of the context also holds its [`Origin`]: which context was current before, and
//! whether the file was created for it. A process that crashes leaves its context behind, so the
//! next one has to find this information in the file. Contexts of several clusters form a chain of
//! previous contexts; removing one relinks the chain, so they can be removed in any order.

use serde_json::{Map, Value, json};

/// The extension that marks our entries.
pub(super) const MARK: &str = "pintle.dev/cluster";
/// The lists of a kubeconfig, and the field that holds the content of their entries.
pub(super) const LISTS: [(&str, &str); 3] = [
    ("clusters", "cluster"),
    ("users", "user"),
    ("contexts", "context"),
];

/// Why the content of a kubeconfig cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Invalid(String),
    Taken { name: String, list: &'static str },
    InUse { url: String },
}

pub(super) fn user_name(context: &str) -> String {
    format!("{context}-admin")
}

/// The state of the file before one of our contexts was added. Stored in the extension of the
/// context.
#[derive(Debug, Default, PartialEq, Eq)]
struct Origin {
    /// The context that was current, if any.
    previous: Option<String>,
    /// There was no file.
    created: bool,
}

impl Origin {
    /// Returns the origin of a context, or `None` if the context is not ours.
    fn read(entry: &Value) -> Option<Self> {
        let mark = mark(&entry["context"])?;
        Some(Self {
            previous: mark["previous"].as_str().map(str::to_owned),
            created: mark["created"] == true,
        })
    }

    fn write(&self, entry: &mut Value) {
        let extensions = entry["context"]["extensions"].as_array_mut();
        let mut extensions = extensions.into_iter().flatten();
        let mark = extensions.find(|extension| extension["name"] == MARK);
        if let Some(Value::Object(mark)) = mark.map(|mark| &mut mark["extension"]) {
            mark.remove("previous");
            mark.remove("created");
            if let Some(previous) = &self.previous {
                mark.insert("previous".to_owned(), previous.as_str().into());
            }
            if self.created {
                mark.insert("created".to_owned(), true.into());
            }
        }
    }
}

/// Returns the URL of the cluster that an earlier merge under this name added.
pub(super) fn merged_url<'a>(config: Option<&'a Value>, context: &str) -> Option<&'a str> {
    let clusters = config?["clusters"].as_array()?;
    let named = clusters.iter().find(|cluster| cluster["name"] == context)?;
    mark(&named["cluster"])?;
    named["cluster"]["server"].as_str()
}

/// Adds our entries and makes the context current. Returns the previous context.
pub(super) fn merge(
    config: &mut Option<Value>,
    context: &str,
    mut ours: [Value; 3],
) -> Result<Option<String>, Unusable> {
    let created = config.is_none();
    let config = config.get_or_insert_default();
    if config.is_null() {
        *config = json!({"apiVersion": "v1", "kind": "Config", "preferences": {}});
    }
    let root = root(config)?;
    // An entry of the same name is replaced, but its previous context must not be lost.
    let replaced = unlink(root, context).unwrap_or_default();
    let current = root.get("current-context").and_then(Value::as_str);
    let current = current.filter(|name| !name.is_empty() && *name != context);
    let origin = Origin {
        previous: current.map(str::to_owned),
        created: created || replaced.created,
    };
    origin.write(&mut ours[2]);
    for ((list, holds), entry) in LISTS.into_iter().zip(ours) {
        let entries = root.entry(list).or_insert(Value::Null);
        if entries.is_null() {
            *entries = json!([]);
        }
        let Value::Array(entries) = entries else {
            return Err(Unusable::Invalid(format!("{list} is not a list")));
        };
        let old = entries.iter_mut().find(|old| old["name"] == entry["name"]);
        match old {
            Some(old) if mark(&old[holds]).is_none() => {
                let name = entry["name"].as_str().unwrap_or_default().to_owned();
                return Err(Unusable::Taken { name, list });
            }
            Some(old) => *old = entry,
            None => entries.push(entry),
        }
    }
    root.insert("current-context".into(), context.into());
    Ok(origin.previous)
}

/// Removes our entries if they still refer to `url`, and the file if it was created for them and
/// holds nothing else.
pub(super) fn unmerge(config: &mut Option<Value>, context: &str, url: &str) {
    let Some(root) = config.as_mut().filter(|it| leads_to(it, context, url)) else {
        return;
    };
    let Value::Object(root) = root else {
        return;
    };
    let origin = unlink(root, context).unwrap_or_default();
    let user = user_name(context);
    for ((list, holds), name) in LISTS.into_iter().zip([context, &user, context]) {
        if let Some(Value::Array(entries)) = root.get_mut(list) {
            entries.retain(|entry| entry["name"] != name || mark(&entry[holds]).is_none());
        }
    }
    if !origin.created {
        return;
    }
    if is_blank(root) {
        *config = None;
    } else if let Some((mut other, entry)) = our_contexts(root).next() {
        // The last of our contexts to be removed deletes the file.
        other.created = true;
        other.write(entry);
    }
}

/// Removes a context from the chain: contexts that follow it inherit its previous context. Returns
/// the origin of the context, or `None` if it is not ours.
fn unlink(root: &mut Map<String, Value>, context: &str) -> Option<Origin> {
    let mut ours = our_contexts(root);
    let (origin, _) = ours.find(|(_, entry)| entry["name"] == context)?;
    drop(ours);
    for (mut other, entry) in our_contexts(root) {
        if other.previous.as_deref() == Some(context) {
            other.previous.clone_from(&origin.previous);
            other.write(entry);
        }
    }
    let current = root.get_mut("current-context");
    if let Some(current) = current.filter(|current| **current == context) {
        *current = origin.previous.as_deref().unwrap_or_default().into();
    }
    Some(origin)
}

fn our_contexts(root: &mut Map<String, Value>) -> impl Iterator<Item = (Origin, &mut Value)> {
    let contexts = root.get_mut("contexts").and_then(Value::as_array_mut);
    let contexts = contexts.into_iter().flatten();
    contexts.filter_map(|entry| Some((Origin::read(entry)?, entry)))
}

/// Returns true if the kubeconfig contains nothing but its type.
fn is_blank(root: &Map<String, Value>) -> bool {
    root.iter().all(|(field, value)| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() || matches!(&**field, "apiVersion" | "kind"),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    })
}

/// Returns the top-level fields of a kubeconfig.
fn root(config: &mut Value) -> Result<&mut Map<String, Value>, Unusable> {
    let Value::Object(root) = config else {
        return Err(Unusable::Invalid("not a mapping".to_owned()));
    };
    match root.get("kind").unwrap_or(&Value::Null) {
        Value::Null => Ok(root),
        kind if kind == "Config" => Ok(root),
        kind => Err(Unusable::Invalid(format!(
            "kind is {kind} instead of \"Config\""
        ))),
    }
}

/// Returns our extension of an entry, or `None` if the entry is not ours.
fn mark(holder: &Value) -> Option<&Value> {
    let mut extensions = holder["extensions"].as_array().into_iter().flatten();
    let mark = extensions.find(|extension| extension["name"] == MARK)?;
    Some(&mark["extension"])
}

/// Returns true if the cluster with that name is ours and has this URL.
fn leads_to(config: &Value, name: &str, url: &str) -> bool {
    let clusters = config["clusters"].as_array().into_iter().flatten();
    let mut named = clusters.filter(|cluster| cluster["name"] == name);
    named.any(|named| named["cluster"]["server"] == url && mark(&named["cluster"]).is_some())
}

#[cfg(test)]
mod tests;
