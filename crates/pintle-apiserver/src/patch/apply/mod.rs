//! Server-side apply, and who manages which field.
//!
//! Every write leaves its mark: an entry in `metadata.managedFields` with the fields its manager
//! has. Two kinds of managers:
//!
//! - those that **apply** say all they want. What they said last time and not now goes, unless
//!   somebody else has it too; what somebody else has with another value is a conflict.
//! - those that **update** have what they changed. They take it from everybody.
//!
//! [`update`] is called for creates, updates and all other patches; [`apply`] for apply patches.
//! Both are pure: the time is handed in.

mod managed;
mod prune;
pub(crate) mod scale;
mod set;
mod shape;
mod versions;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use self::managed::{Entry, Id, Managed};
pub(crate) use self::set::FieldSet;
pub(crate) use self::shape::Shape;
pub(crate) use self::versions::Other;
use self::versions::{Seen, forget_unknown};
use self::walk::Changes;
use crate::schema::typed;

/// The annotation clients that merge on their own keep their last configuration in.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who had what was there before anybody applied.
const BEFORE: &str = "before-first-apply";

/// Who writes, how and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// The name of the manager.
    pub manager: &'a str,
    /// The version the request speaks: `apps/v1`.
    pub api_version: &'a str,
    /// The subresource written through; empty for none.
    pub subresource: &'a str,
    /// The time, as objects hold it.
    pub now: &'a str,
    /// Fields this way of writing cannot change, and so never has.
    pub reset: &'a FieldSet,
    /// The other versions objects of the kind are written in.
    pub others: &'a [Other<'a>],
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// Others have fields with other values: 409.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration says what it may not say: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration is not of the kind's shape. A kube-apiserver answers 500 without a reason
    /// here, though the fault is the client's.
    #[error("{0}")]
    Untyped(String),
}

/// One field somebody else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Who has it, as messages name them: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// The message of the cause.
    pub(crate) fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.field
        );
    }
    let mut lines = Vec::new();
    let mut last = "";
    for conflict in conflicts {
        if conflict.manager != last {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = &conflict.manager;
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

/// Fields nobody has: they are the object's identity, or the server's own.
static NOBODYS: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// An object before anything is said about it.
fn nothing(shape: Shape<'_>) -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    match shape {
        Shape::Builtin(ty) => typed::zero_ref(ty),
        _ => &EMPTY,
    }
}

/// The same, of the kind and version a configuration names.
fn nothing_named(config: &Value, shape: Shape<'_>) -> Value {
    let mut empty = nothing(shape).clone();
    for name in ["apiVersion", "kind"] {
        if let (Some(value), Value::Object(map)) = (config.get(name), &mut empty) {
            map.insert(name.into(), value.clone());
        }
    }
    empty
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Whether two objects are the same if nobody asks who manages them.
fn same_but_managers(a: &Value, b: &Value) -> bool {
    fn rest<'a>(object: &'a Value, but: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let members = object.as_object().into_iter().flatten();
        members.filter(move |(name, _)| *name != but)
    }
    let (x, y) = (&a["metadata"], &b["metadata"]);
    rest(a, "metadata").eq(rest(b, "metadata"))
        && rest(x, "managedFields").eq(rest(y, "managedFields"))
}

/// Marks `new` with who manages its fields, after a create (`live` is nothing) or an update by any
/// way but apply. A list of managers that comes with `new` counts, unless it was written through a
/// subresource; `[]` and `[{}]` forget everybody.
pub(crate) fn update(live: Option<&Value>, new: &mut Value, shape: Shape<'_>, write: &Write<'_>) {
    let stored = || {
        live.and_then(|live| Managed::read(managed::list(live)))
            .unwrap_or_default()
    };
    let sent = managed::list(new);
    let managed = if write.subresource.is_empty() {
        if managed::is_reset(sent) {
            Managed::default()
        } else {
            let sent = Managed::read(sent).filter(|sent| !sent.entries.is_empty());
            sent.unwrap_or_else(stored)
        }
    } else {
        stored()
    };
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // An object nobody is tracked for stays so until somebody applies.
    let tracked = live.is_none() || !managed.entries.is_empty();
    let marked = if tracked {
        after_update(
            live.unwrap_or_else(|| nothing(shape)),
            new,
            shape,
            managed,
            write,
        )
    } else {
        managed
    };
    marked.write(new);
}

fn after_update(
    before: &Value,
    after: &Value,
    shape: Shape<'_>,
    mut managed: Managed,
    write: &Write<'_>,
) -> Managed {
    forget_unknown(&mut managed, shape, write);
    let seen = Seen::new(before, after, shape, &managed, write);
    for entry in managed.entries.values_mut() {
        let changes = seen.by(entry);
        for gone in [&changes.added, &changes.modified, &changes.removed] {
            entry.fields.remove(gone);
        }
    }
    managed.entries.retain(|_, entry| !entry.fields.is_empty());
    let mut own = seen.here.modified;
    own.add(seen.here.added);
    own.remove(&NOBODYS);
    if !own.is_empty() {
        let id = Id {
            manager: if write.manager.is_empty() {
                "unknown"
            } else {
                write.manager
            }
            .to_owned(),
            applies: false,
            api_version: write.api_version.to_owned(),
            subresource: write.subresource.to_owned(),
        };
        if let Some(before) = managed.entries.remove(&id) {
            own.add(before.fields);
        }
        let entry = Entry {
            api_version: write.api_version.to_owned(),
            // A scale says who set it, not when.
            time: (write.subresource != "scale").then(|| write.now.to_owned()),
            fields: own,
        };
        managed.entries.insert(id, entry);
    }
    managed.cap();
    managed
}

fn filtered(changes: Changes, reset: &FieldSet) -> Changes {
    if reset.is_empty() {
        return changes;
    }
    Changes {
        added: changes.added.without(reset),
        removed: changes.removed.without(reset),
        modified: changes.modified.without(reset),
    }
}

/// Applies a configuration to `live`, or to nothing if there is no such object yet, and returns
/// what becomes of it, managers included.
pub(crate) fn apply(
    live: Option<&Value>,
    config: &Value,
    shape: Shape<'_>,
    write: &Write<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(config, shape, write)?;
    let stored = live.and_then(managed::list);
    let managed = Managed::read(stored)
        .ok_or_else(|| ApplyError::Untyped("failed to decode managed fields".into()))?;
    let before = live.map_or_else(|| nothing_named(config, shape), without_managers);
    let managed = if managed.entries.is_empty() {
        let first = Write {
            manager: BEFORE,
            ..*write
        };
        after_update(nothing(shape), &before, shape, managed, &first)
    } else {
        managed
    };
    let migrates = write.manager == "kubectl" && last_applied(&before).is_some();
    let mut outcome = applied(&before, config, shape, managed.clone(), write, force);
    if let (Err(ApplyError::Conflicts(conflicts)), true) = (&outcome, migrates) {
        // What it applied itself, before it applied here, it may change.
        let allowed = own_last(&before, shape, write).unwrap_or_default();
        let left: Vec<Conflict> = conflicts
            .iter()
            .filter(|c| !allowed.contains(&c.field))
            .cloned()
            .collect();
        outcome = if left.is_empty() {
            applied(&before, config, shape, managed, write, true)
        } else {
            Err(ApplyError::Conflicts(left))
        };
    }
    let (mut object, managed) = outcome?;
    if migrates {
        let text = Value::String(format!("{config}\n"));
        let notes = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        if let Some(notes) = notes {
            notes.insert(LAST_APPLIED.into(), text);
        }
    }
    managed.write(&mut object);
    Ok(object)
}

fn check_config(config: &Value, shape: Shape<'_>, write: &Write<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = match shape {
        Shape::Builtin(ty) => ty.get().kind.map(|(_, _, kind)| kind),
        _ => None,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if api_version != write.api_version || expected.is_some_and(|expected| expected != kind) {
        let shown = format!("{group}/{version}, Kind={kind}");
        return Err(ApplyError::BadRequest(format!(
            "invalid object type: {shown}"
        )));
    }
    if managed::list(config).is_some_and(|list| !list.is_null()) {
        return Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".into(),
        ));
    }
    walk::check(config, shape.root(), "").map_err(|why| {
        let meta = |name: &str| {
            let value = config
                .get("metadata")
                .and_then(|metadata| metadata.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (namespace, name) = (meta("namespace"), meta("name"));
        ApplyError::Untyped(format!(
            "failed to create typed patch object ({namespace}/{name}; {group}/{version}, \
             Kind={kind}): {why}"
        ))
    })
}

fn applied(
    before: &Value,
    config: &Value,
    shape: Shape<'_>,
    mut managed: Managed,
    write: &Write<'_>,
    force: bool,
) -> Result<(Value, Managed), ApplyError> {
    forget_unknown(&mut managed, shape, write);
    let place = shape.root();
    let id = Id {
        manager: if write.manager.is_empty() {
            "unknown"
        } else {
            write.manager
        }
        .to_owned(),
        applies: true,
        api_version: String::new(),
        subresource: write.subresource.to_owned(),
    };
    let last = managed.entries.get(&id).cloned();
    let fields = walk::field_set(config, place).without(write.reset);
    let time = last.as_ref().and_then(|last| last.time.clone());
    let api_version = write.api_version.to_owned();
    managed.entries.insert(
        id.clone(),
        Entry {
            api_version,
            time,
            fields,
        },
    );
    let merged = walk::merge(before, config, place);
    let after = match &last {
        Some(last) if !last.fields.is_empty() => {
            prune::pruned(&merged, &managed, last, shape, write)
        }
        _ => merged,
    };

    let seen = Seen::new(before, &after, shape, &managed, write);
    let mut conflicts = Vec::new();
    for (other, entry) in managed
        .entries
        .iter_mut()
        .filter(|(other, _)| **other != id)
    {
        let changes = seen.by(entry);
        let taken = entry.fields.intersection(&changes.changed());
        let manager = other.show();
        let each = taken.paths().into_iter();
        conflicts.extend(each.map(|field| Conflict {
            manager: manager.clone(),
            field,
        }));
        entry.fields = entry.fields.difference(&taken).difference(&changes.removed);
    }
    if !force && !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(ApplyError::Conflicts(conflicts));
    }
    if let Some(entry) = managed.entries.get_mut(&id) {
        entry.fields = entry.fields.difference(&NOBODYS);
        if after != *before {
            entry.time = Some(write.now.to_owned());
        }
    }
    managed.entries.retain(|_, entry| !entry.fields.is_empty());
    Ok((after, managed))
}

fn last_applied(object: &Value) -> Option<&str> {
    let text = object
        .get("metadata")?
        .get("annotations")?
        .get(LAST_APPLIED)?
        .as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields of the configuration a client merged itself, as far as the object still has them.
fn own_last(before: &Value, shape: Shape<'_>, write: &Write<'_>) -> Option<Vec<String>> {
    let last: Value = serde_json::from_str(last_applied(before)?).ok()?;
    if last.get("apiVersion")? != write.api_version {
        return None;
    }
    let place = shape.root();
    let changes = walk::compare(&last, before, place);
    let fields = walk::field_set(&last, place);
    let same = fields
        .difference(&changes.modified)
        .difference(&changes.added);
    Some(same.difference(&changes.removed).paths())
}

/// If a write changed nothing but when its managers wrote, keeps the times of `old`, so that the
/// write is none.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut list = managed::list(object).cloned().unwrap_or_default();
        for entry in list.as_array_mut().into_iter().flatten() {
            if let Value::Object(entry) = entry {
                entry.remove("time");
            }
        }
        // Times decide the order, too.
        if let Value::Array(entries) = &mut list {
            entries.sort_by_key(ToString::to_string);
        }
        list
    };
    let same = || same_but_managers(old, new) && timeless(old) == timeless(new);
    if managed::list(old).is_some() && same() {
        let list = managed::list(old).cloned();
        let metadata = new.get_mut("metadata").and_then(Value::as_object_mut);
        if let (Some(list), Some(metadata)) = (list, metadata) {
            metadata.insert("managedFields".into(), list);
        }
    }
}

/// The fields a write through `subresource` (empty for none) cannot change: a main write cannot
/// change a status that is kept apart, a status write nothing else.
pub(crate) fn reset_fields(subresource: &str, status_apart: bool, custom: bool) -> FieldSet {
    match subresource {
        "" if status_apart => FieldSet::of(&[&["status"]]),
        "status" if custom => FieldSet::of(&[&["metadata"], &["spec"]]),
        "status" => FieldSet::of(&[&["spec"]]),
        _ => FieldSet::default(),
    }
}
