//! Server-side apply and field management.
//!
//! Every write records its manager in `metadata.managedFields`, together with the fields the
//! manager owns. There are two operations:
//!
//! - **Apply** declares every field the manager wants to set. Fields that it applied last time but
//!   not now are removed, unless another manager owns them too. Changing a field that another
//!   manager owns is a conflict.
//! - **Update** owns the fields it changes, and takes them from every other manager.
//!
//! [`update`] covers creates, updates and all other patches; [`apply`] covers apply patches. Both
//! are pure: the time is an argument.

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
pub(crate) use self::versions::{Conversions, OtherVersion, Pending, Unconverted};
use self::versions::{VersionedChanges, drop_unknown_versions};
use self::walk::Changes;
use crate::schema::typed;

/// Where kubectl stores the last configuration of a client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager of fields that were set before the first apply.
const BEFORE: &str = "before-first-apply";

/// The manager, version and time of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// The name of the manager.
    pub manager: &'a str,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    /// The subresource that is written, or empty.
    pub subresource: &'a str,
    /// The time as objects store it.
    pub now: &'a str,
    /// Fields that this endpoint cannot change and therefore never owns.
    pub reset: &'a FieldSet,
    /// The other versions that objects of the kind may be written in.
    pub others: &'a [OtherVersion<'a>],
    /// The conversions made so far, if a webhook converts between the versions.
    pub conversions: Option<&'a Conversions>,
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// Other managers own these fields with different values: 409.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration contains something it must not: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not match the schema of its kind. kube-apiserver returns a bare 500
    /// here, although the client is at fault.
    #[error("{0}")]
    Untyped(String),
    /// The fields of a manager that wrote in another version cannot be compared.
    #[error(transparent)]
    Unconverted(#[from] Unconverted),
}

/// A field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The owner as messages show it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// Returns the message of the status cause.
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

/// Fields that have no owner: the object's identity and fields set by the server.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
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

/// Returns an object with no fields set.
fn empty_object(shape: Shape<'_>) -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    match shape {
        Shape::Builtin(ty) => typed::zero_ref(ty),
        _ => &EMPTY,
    }
}

/// Returns an object with only the `apiVersion` and `kind` of a configuration.
fn empty_object_like(config: &Value, shape: Shape<'_>) -> Value {
    let mut empty = empty_object(shape).clone();
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

/// Returns true if two objects differ at most in their managers.
fn same_but_managers(a: &Value, b: &Value) -> bool {
    fn rest<'a>(object: &'a Value, but: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let members = object.as_object().into_iter().flatten();
        members.filter(move |(name, _)| *name != but)
    }
    let (x, y) = (&a["metadata"], &b["metadata"]);
    rest(a, "metadata").eq(rest(b, "metadata"))
        && rest(x, "managedFields").eq(rest(y, "managedFields"))
}

/// Records the managers of `new` after a create (no `live` object) or any update except apply.
///
/// `managedFields` sent with `new` are used, unless the write goes through a subresource. `[]` and
/// `[{}]` reset all managers.
///
/// # Errors
///
/// Fails if a manager wrote in another version and a conversion to it is pending or failed. `new`
/// is unchanged then.
pub(crate) fn update(
    live: Option<&Value>,
    new: &mut Value,
    shape: Shape<'_>,
    write: &Write<'_>,
) -> Result<(), Unconverted> {
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
    let metadata = new.get_mut("metadata").and_then(Value::as_object_mut);
    let sent = metadata.and_then(|metadata| metadata.remove("managedFields"));
    // A custom object whose types are wrong, even if only in a status that is about to be dropped,
    // has no managers.
    if matches!(shape, Shape::Custom(_)) && !walk::is_typed(new, shape.root()) {
        return Ok(());
    }
    // An object without managers stays untracked until the first apply.
    let is_tracked = live.is_none() || !managed.entries.is_empty();
    let marked = if is_tracked {
        let before = live.unwrap_or_else(|| empty_object(shape));
        after_update(before, new, shape, managed, write)
    } else {
        Ok(managed)
    };
    match marked {
        Ok(marked) => marked.write(new),
        Err(error) => {
            if let Some(sent) = sent {
                new["metadata"]["managedFields"] = sent;
            }
            return Err(error);
        }
    }
    Ok(())
}

fn after_update(
    before: &Value,
    after: &Value,
    shape: Shape<'_>,
    mut managed: Managed,
    write: &Write<'_>,
) -> Result<Managed, Unconverted> {
    drop_unknown_versions(&mut managed, shape, write);
    let versioned = VersionedChanges::new(before, after, shape, &managed, write)?;
    for entry in managed.entries.values_mut() {
        let changes = versioned.seen_by(entry);
        for gone in [&changes.added, &changes.modified, &changes.removed] {
            entry.fields.remove(gone);
        }
    }
    managed.entries.retain(|_, entry| !entry.fields.is_empty());
    let mut own = versioned.here.modified;
    own.add(versioned.here.added);
    own.remove(&UNOWNED);
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
            // Upstream records no time for writes through a scale.
            time: (write.subresource != "scale").then(|| write.now.to_owned()),
            fields: own,
        };
        managed.entries.insert(id, entry);
    }
    managed.cap();
    Ok(managed)
}

fn filtered(changes: Changes, reset: &FieldSet) -> Changes {
    if reset.is_empty() {
        return changes;
    }
    Changes {
        added: changes.added.recursive_difference(reset),
        removed: changes.removed.recursive_difference(reset),
        modified: changes.modified.recursive_difference(reset),
    }
}

/// Applies a configuration to `live`, or creates the object if there is none. Returns the result
/// including its managers.
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
    let before = live.map_or_else(|| empty_object_like(config, shape), without_managers);
    let managed = if managed.entries.is_empty() {
        let first = Write {
            manager: BEFORE,
            ..*write
        };
        after_update(empty_object(shape), &before, shape, managed, &first)?
    } else {
        managed
    };
    let migrates = write.manager == "kubectl" && last_applied(&before).is_some();
    let mut outcome = applied(&before, config, shape, managed.clone(), write, force);
    if let (Err(ApplyError::Conflicts(conflicts)), true) = (&outcome, migrates) {
        // kubectl may change fields that it set earlier by client-side apply.
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
        let annotations = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
            annotations.insert(LAST_APPLIED.into(), text);
        }
    }
    managed.write(&mut object);
    Ok(object)
}

/// Merges a configuration into an object without recording managers, as admission policies do.
pub(crate) fn merge_config(
    object: &Value,
    config: &Value,
    shape: Shape<'_>,
) -> Result<Value, String> {
    let place = shape.root();
    walk::check(config, place, "")
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let atomic = walk::atomic_fields(config, place);
    if !atomic.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        ));
    }
    Ok(walk::merge(object, config, place))
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
    drop_unknown_versions(&mut managed, shape, write);
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
    let fields = walk::field_set(config, place).recursive_difference(write.reset);
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
            prune::pruned(&merged, &managed, last, shape, write)?
        }
        _ => merged,
    };

    let versioned = VersionedChanges::new(before, &after, shape, &managed, write)?;
    let mut conflicts = Vec::new();
    for (other, entry) in managed
        .entries
        .iter_mut()
        .filter(|(other, _)| **other != id)
    {
        let changes = versioned.seen_by(entry);
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
        entry.fields = entry.fields.difference(&UNOWNED);
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

/// Returns the fields of the last client-side apply that the object still has unchanged.
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

/// Restores the timestamps of `old` if the write changed nothing else, which makes it a no-op.
pub(crate) fn keep_unchanged_times(old: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut list = managed::list(object).cloned().unwrap_or_default();
        for entry in list.as_array_mut().into_iter().flatten() {
            if let Value::Object(entry) = entry {
                entry.remove("time");
            }
        }
        // Entries are ordered by time.
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

/// Returns the fields that a write through `subresource` (empty for the main resource) cannot
/// change: the main resource ignores `status` if that is a subresource, and `status` ignores the
/// spec and, for custom resources, metadata.
pub(crate) fn reset_fields(subresource: &str, has_status: bool, custom: bool) -> FieldSet {
    match subresource {
        "" if has_status => FieldSet::of(&[&["status"]]),
        "status" if custom => FieldSet::of(&[&["metadata"], &["spec"]]),
        "status" => FieldSet::of(&[&["spec"]]),
        _ => FieldSet::default(),
    }
}
