//! The canonical form of a state, and how two of them differ.
//!
//! Two runs of a correct controller end in states that differ in everything the server or the clock
//! chooses: UIDs, `resourceVersion`s, times, generated names, allocated addresses. The canonical
//! form replaces UIDs and generated names with the objects they refer to and drops the rest. What
//! remains are the decisions of the controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use serde_json::{Map, Value};

use crate::gateway::request::ResourceName;

/// The annotation that the competing writer changes.
pub(crate) const RIVAL: &str = "trials.pintle.dev/rival";
/// The annotation that the mutating webhook adds.
pub(crate) const DEFAULTED: &str = "trials.pintle.dev/defaulted";

/// All objects of the kinds that were written, as the server returns them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) lists: BTreeMap<ResourceName, Arc<Vec<Value>>>,
}

impl Snapshot {
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&ResourceName, &Value)> {
        self.lists
            .iter()
            .flat_map(|(resource, list)| list.iter().map(move |object| (resource, object)))
    }
}

/// The fields that are not compared, by kind.
pub(crate) type Ignored = Vec<(String, Vec<String>)>;

/// A state in canonical form: objects by `Kind namespace/name`. A generated name can stand for
/// several objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The objects.
    pub objects: BTreeMap<String, Vec<Value>>,
    /// The name of each object in tests and plans: `resource/namespace/name`.
    pub(crate) ids: BTreeMap<String, String>,
}

/// One difference between two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `Service default/web`.
    pub object: String,
    /// `spec.ports[0].port`; empty if the whole object is missing or extra.
    pub path: String,
    /// The value in the reference.
    pub want: Option<Value>,
    /// The value in this run.
    pub got: Option<Value>,
}

/// Which differences count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    /// All differences.
    Exact,
    /// All except those in volumes that were retained on purpose: which of them exist depends on
    /// the path.
    PathFree,
}

/// Returns the canonical form of a snapshot.
pub(crate) fn canonical(snapshot: &Snapshot, ignored: &Ignored) -> State {
    let mut names = Names::default();
    for (_, object) in snapshot.objects() {
        names.learn(object);
    }
    let mut state = State::default();
    for (resource, object) in snapshot.objects() {
        let mut object = object.clone();
        let kind = text(&object, "kind").to_owned();
        let meta = &object["metadata"];
        let (namespace, name) = (text(meta, "namespace"), text(meta, "name"));
        // The server's own Service. A snapshot has only kinds that were written, so some runs would
        // include it and others would not.
        if (namespace, name) == ("default", "kubernetes") {
            continue;
        }
        let shown = names.rewritten(name).unwrap_or_else(|| name.to_owned());
        let title = if namespace.is_empty() {
            format!("{kind} {shown}")
        } else {
            format!("{kind} {namespace}/{shown}")
        };
        let id = format!("{resource}/{namespace}/{name}");
        strip(&kind, &mut object);
        for (_, path) in ignored.iter().filter(|(of, _)| *of == kind || of == "*") {
            remove(&mut object, path);
        }
        names.rewrite(&mut object);
        state.ids.entry(title.clone()).or_insert(id);
        state.objects.entry(title).or_default().push(object);
    }
    for objects in state.objects.values_mut() {
        if objects.len() > 1 {
            objects.sort_by_cached_key(ToString::to_string);
        }
    }
    state
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Removes the fields that the server sets.
fn strip(kind: &str, object: &mut Value) {
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "deletionGracePeriodSeconds",
        ] {
            meta.remove(field);
        }
        if meta.contains_key("generateName") {
            meta.remove("name");
        }
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(RIVAL);
            annotations.remove(DEFAULTED);
            annotations.remove("deployment.kubernetes.io/revision");
            annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        for field in ["annotations", "labels", "finalizers", "ownerReferences"] {
            if meta.get(field).is_some_and(is_empty) {
                meta.remove(field);
            }
        }
    }
    if let Some(Value::Object(template)) = object.pointer_mut("/spec/template/metadata")
        && let Some(Value::Object(annotations)) = template.get_mut("annotations")
    {
        annotations.remove(DEFAULTED);
        if annotations.is_empty() {
            template.remove("annotations");
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        status.remove("observedGeneration");
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.remove("observedGeneration");
            }
            conditions.sort_by_cached_key(|condition| text(condition, "type").to_owned());
        }
    }
    if object["status"].is_null() || is_empty(&object["status"]) {
        object.as_object_mut().map(|object| object.remove("status"));
    }
    let allocated: &[&str] = match kind {
        "Service" => &["clusterIP", "clusterIPs", "healthCheckNodePort"],
        "PersistentVolumeClaim" => &["volumeName"],
        "Pod" => &["nodeName"],
        _ => &[],
    };
    if let Some(spec) = object["spec"].as_object_mut() {
        for field in allocated {
            spec.remove(*field);
        }
        if kind == "Service"
            && let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut)
        {
            for port in ports.iter_mut().filter_map(Value::as_object_mut) {
                port.remove("nodePort");
            }
        }
    }
    if kind == "Pod"
        && let Some(status) = object["status"].as_object_mut()
    {
        for field in ["podIP", "podIPs", "hostIP", "hostIPs"] {
            status.remove(field);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Removes the field at `path`; `*` matches every element or key.
fn remove(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match value {
        Value::Object(fields) if rest.is_empty() && first == "*" => fields.clear(),
        Value::Object(fields) if rest.is_empty() => {
            fields.remove(first);
        }
        Value::Object(fields) if first == "*" => {
            for value in fields.values_mut() {
                remove(value, rest);
            }
        }
        Value::Object(fields) => {
            if let Some(value) = fields.get_mut(first) {
                remove(value, rest);
            }
        }
        Value::Array(items) => {
            let rest = if first == "*" { rest } else { path };
            for item in items {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

/// The objects that names and UIDs refer to.
#[derive(Default)]
struct Names {
    /// From UID to `Kind namespace/name`.
    uids: BTreeMap<String, String>,
    /// From a generated name to its prefix and `*`.
    generated: BTreeMap<String, String>,
    /// From a current `resourceVersion` to its object.
    versions: BTreeMap<String, String>,
}

impl Names {
    fn learn(&mut self, object: &Value) {
        let meta = &object["metadata"];
        let name = text(meta, "name");
        let shown = if let Some(prefix) = meta["generateName"].as_str() {
            let shown = format!("{prefix}*");
            self.generated.insert(name.to_owned(), shown.clone());
            shown
        } else {
            name.to_owned()
        };
        let what = format!(
            "{} {}/{shown}",
            text(object, "kind"),
            text(meta, "namespace")
        );
        self.uids.insert(text(meta, "uid").to_owned(), what.clone());
        self.versions
            .insert(text(meta, "resourceVersion").to_owned(), what);
    }

    fn rewrite(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(new) = self.rewritten(text) {
                    *text = new;
                }
            }
            Value::Array(items) => {
                let mut generated = false;
                for item in &mut *items {
                    self.rewrite(item);
                    generated |= item.as_str().is_some_and(|text| text.contains('*'));
                }
                if generated {
                    items.sort_by_cached_key(ToString::to_string);
                }
            }
            Value::Object(fields) => self.rewrite_fields(fields),
            _ => {}
        }
    }

    fn rewrite_fields(&self, fields: &mut Map<String, Value>) {
        for (name, value) in fields.iter_mut() {
            self.rewrite(value);
            let lower = name.to_ascii_lowercase();
            if let Some(text) = value.as_str()
                && (lower.contains("version") || lower.contains("revision"))
                && let Some(what) = self.versions.get(text)
            {
                *value = format!("<resourceVersion of {what}>").into();
            }
        }
        let rewritten: Vec<(String, String)> = fields
            .keys()
            .filter_map(|key| Some((key.clone(), self.rewritten(key)?)))
            .collect();
        for (old, new) in rewritten {
            if let Some(value) = fields.remove(&old) {
                fields.insert(new, value);
            }
        }
    }

    fn rewritten(&self, text: &str) -> Option<String> {
        if is_time(text) {
            return Some("<time>".to_owned());
        }
        let mut out = None;
        if text.len() >= 36 && text.contains('-') {
            out = self.without_uids(text);
        }
        for (name, shown) in &self.generated {
            let current = out.as_deref().unwrap_or(text);
            if current.contains(name.as_str()) {
                out = Some(current.replace(name.as_str(), shown));
            }
        }
        out
    }

    fn without_uids(&self, text: &str) -> Option<String> {
        let bytes = text.as_bytes();
        let mut out = String::new();
        let (mut at, mut kept, mut found) = (0, 0, false);
        while at + 36 <= bytes.len() {
            if is_uid(&bytes[at..at + 36]) {
                let what = self.uids.get(&text[at..at + 36]);
                let what = what.map_or("a deleted object", String::as_str);
                let _ = write!(out, "{}<uid of {what}>", &text[kept..at]);
                at += 36;
                kept = at;
                found = true;
            } else {
                at += 1;
            }
        }
        found.then(|| out + &text[kept..])
    }
}

fn is_uid(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.len() <= 40
        && bytes[..19].iter().enumerate().all(|(i, byte)| match i {
            4 | 7 => *byte == b'-',
            10 => *byte == b'T',
            13 | 16 => *byte == b':',
            _ => byte.is_ascii_digit(),
        })
}

/// Masks times in a request body, so that the bodies of two runs can be compared.
pub(crate) fn comparable_body(body: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    Names::default().rewrite(&mut value);
    Some(value)
}

const RETAINED: [&str; 2] = ["PersistentVolumeClaim ", "PersistentVolume "];

/// Returns the differences between `got` and `want`.
pub(crate) fn differences(want: &State, got: &State, how: Compare) -> Vec<Difference> {
    let mut found = Vec::new();
    let titles: BTreeSet<&String> = want.objects.keys().chain(got.objects.keys()).collect();
    for title in titles {
        let none = Vec::new();
        let a = want.objects.get(title).unwrap_or(&none);
        let b = got.objects.get(title).unwrap_or(&none);
        if a == b {
            continue;
        }
        let retained = RETAINED.iter().any(|kind| title.starts_with(kind));
        if retained && how == Compare::PathFree && (a.is_empty() || b.is_empty()) {
            continue;
        }
        if a.len() == b.len() {
            for (a, b) in a.iter().zip(b) {
                compare(title, &mut String::new(), Some(a), Some(b), &mut found);
            }
        } else if a.is_empty() || b.is_empty() {
            found.push(Difference {
                object: title.clone(),
                path: String::new(),
                want: a.first().cloned(),
                got: b.first().cloned(),
            });
        } else {
            found.push(Difference {
                object: title.clone(),
                path: "(number of objects)".to_owned(),
                want: Some(a.len().into()),
                got: Some(b.len().into()),
            });
        }
    }
    found
}

fn compare(
    object: &str,
    path: &mut String,
    want: Option<&Value>,
    got: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    if want == got || found.len() > 50 {
        return;
    }
    let length = path.len();
    match (want, got) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                compare(object, path, a.get(key), b.get(key), found);
                path.truncate(length);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                let _ = write!(path, "[{i}]");
                compare(object, path, Some(a), Some(b), found);
                path.truncate(length);
            }
        }
        _ => found.push(Difference {
            object: object.to_owned(),
            path: path.clone(),
            want: want.cloned(),
            got: got.cloned(),
        }),
    }
}

impl Difference {
    /// Returns the difference in one line.
    pub fn describe(&self) -> String {
        let Self {
            object,
            path,
            want,
            got,
        } = self;
        if path.is_empty() {
            return match (want, got) {
                (Some(_), None) => format!("{object}: want it to exist, got nothing"),
                _ if got
                    .as_ref()
                    .is_some_and(|got| !got["metadata"]["deletionTimestamp"].is_null()) =>
                {
                    format!("{object}: want nothing, got an object stuck in deletion")
                }
                _ => format!("{object}: want nothing, got an extra object"),
            };
        }
        format!(
            "{object}  {path}: want {}, got {}",
            short(want.as_ref()),
            short(got.as_ref())
        )
    }
}

fn short(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    if text.chars().count() <= 120 {
        return text;
    }
    let cut: String = text.chars().take(117).collect();
    cut + "..."
}

#[cfg(test)]
mod tests;
