//! Names that CRDs hold, per group.
//!
//! A CRD requests names in `spec.names` and holds those in `status.acceptedNames`. Within a group,
//! plurals, singulars and short names share one namespace; kinds and list kinds share another. Each
//! name is held by at most one CRD. A CRD that did not get every name it requested is waiting, and
//! is reconsidered when a name in its group is released.
//!
//! Deciding on names and storing the decision are two steps, and no lock is held across both. A
//! [`Claim`] covers names that are decided but not stored yet and counts as held, so two CRDs
//! created concurrently cannot both get the same name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Definition;
use crate::registry::Registry;

/// The two namespaces in which names are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Resource,
    Kind,
}

/// A name and the namespace it belongs to.
type Taken = (Space, String);

/// Why a requested name was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The reason of the `NamesAccepted` condition, such as `PluralConflict`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The outcome for one CRD.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The new `status.acceptedNames`.
    pub(crate) accepted: Value,
    /// `None` if every requested name was accepted.
    pub(crate) conflict: Option<Conflict>,
}

/// The names of one group.
#[derive(Debug, Default, Clone)]
struct Group {
    /// The holders of each name. More than one only if a client edited the status.
    taken: BTreeMap<Taken, BTreeSet<String>>,
    /// CRDs that lack a name they requested.
    waiting: BTreeSet<String>,
}

/// The names of all groups.
#[derive(Debug, Default, Clone)]
pub(in crate::registry) struct Names {
    groups: BTreeMap<String, Group>,
    /// Names that are decided but not stored yet, by claim.
    claims: BTreeMap<u64, (String, BTreeSet<Taken>)>,
    next_claim: u64,
}

/// The names that one CRD holds, as stored.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::registry) struct Entry {
    group: String,
    taken: BTreeSet<Taken>,
    waiting: bool,
}

impl Entry {
    pub(in crate::registry) fn of(definition: &Definition) -> Self {
        let waiting = !same_names(definition.requested(), definition.accepted());
        Self {
            group: definition.group.clone(),
            taken: taken(definition.accepted()),
            waiting: waiting && !definition.is_deleting(),
        }
    }
}

impl Names {
    /// Replaces the entry of a CRD. Returns the waiting CRDs to reconsider if a name was released.
    pub(in crate::registry) fn replace(
        &mut self,
        definition: &str,
        old: Option<&Entry>,
        new: Option<&Entry>,
    ) -> Vec<String> {
        let mut freed = BTreeSet::new();
        if let Some(old) = old {
            freed.clone_from(&old.taken);
            if let Some(group) = self.groups.get_mut(&old.group) {
                group.remove(definition, old);
            }
        }
        if let Some(new) = new {
            freed.retain(|name| !new.taken.contains(name));
            let group = self.groups.entry(new.group.clone()).or_default();
            group.insert(definition, new);
        }
        let Some(old) = old.filter(|_| !freed.is_empty()) else {
            return Vec::new();
        };
        let waiting = self.waiting(&old.group).filter(|name| *name != definition);
        let waiting = waiting.map(str::to_owned).collect();
        self.groups.retain(|_, group| !group.is_empty());
        waiting
    }

    fn waiting(&self, group: &str) -> impl Iterator<Item = &str> {
        let group = self.groups.get(group);
        group
            .into_iter()
            .flat_map(|group| group.waiting.iter().map(String::as_str))
    }

    /// Decides which names a CRD gets. It keeps the names it already holds.
    fn decide(&self, definition: &Definition) -> Decision {
        let (requested, accepted) = (definition.requested(), definition.accepted());
        let group = self.groups.get(&definition.group);
        let used = |space: Space, name: &Value| {
            let key = (space, text(name).to_owned());
            let claimed = || {
                let mut claims = self.claims.values();
                claims.any(|(group, names)| *group == definition.group && names.contains(&key))
            };
            group.is_some_and(|group| group.taken.contains_key(&key)) || claimed()
        };
        let in_use = |name: &Value| format!("{:?} is already in use", text(name));
        let mut names = accepted.clone();
        let mut conflict = None;
        let mut refuse = |reason: &'static str, message: String| {
            // Like upstream's naming controller, report only the last of several conflicts.
            conflict = Some(Conflict { reason, message });
        };
        for (field, space, reason) in [
            ("plural", Space::Resource, "PluralConflict"),
            ("singular", Space::Resource, "SingularConflict"),
            ("shortNames", Space::Resource, "ShortNamesConflict"),
            ("kind", Space::Kind, "KindConflict"),
            ("listKind", Space::Kind, "ListKindConflict"),
        ] {
            let (wanted, has) = (&requested[field], &accepted[field]);
            if field == "shortNames" {
                let had = list(has);
                let fresh = list(wanted).iter().filter(|name| !had.contains(name));
                let errors: Vec<String> =
                    fresh.filter(|name| used(space, name)).map(in_use).collect();
                match errors.as_slice() {
                    [] => put(&mut names, field, wanted),
                    [one] => refuse(reason, one.clone()),
                    many => refuse(reason, format!("[{}]", many.join(", "))),
                }
            } else if text(wanted) != text(has) && used(space, wanted) {
                refuse(reason, in_use(wanted));
            } else {
                put(&mut names, field, wanted);
            }
        }
        put(&mut names, "categories", &requested["categories"]);
        Decision {
            accepted: names,
            conflict,
        }
    }
}

impl Group {
    fn insert(&mut self, definition: &str, entry: &Entry) {
        for name in &entry.taken {
            let holders = self.taken.entry(name.clone()).or_default();
            holders.insert(definition.to_owned());
        }
        if entry.waiting {
            self.waiting.insert(definition.to_owned());
        }
    }

    fn remove(&mut self, definition: &str, entry: &Entry) {
        for name in &entry.taken {
            if let Some(holders) = self.taken.get_mut(name) {
                holders.remove(definition);
                if holders.is_empty() {
                    self.taken.remove(name);
                }
            }
        }
        self.waiting.remove(definition);
    }

    fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.waiting.is_empty()
    }
}

/// Reserves names until they are stored; drop it after the commit.
#[must_use]
pub(crate) struct Claim<'a> {
    registry: &'a Registry,
    id: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.registry.custom.lock().names.claims.remove(&self.id);
    }
}

impl Registry {
    /// Decides which of the requested names a CRD gets and reserves them until the claim is
    /// dropped. Returns `None` if it already holds all of them or is being deleted.
    pub(crate) fn claim_names(&self, definition: &Definition) -> Option<(Decision, Claim<'_>)> {
        let satisfied = same_names(definition.requested(), definition.accepted());
        if satisfied || definition.is_deleting() {
            return None;
        }
        let names = &mut self.custom.lock().names;
        let decision = names.decide(definition);
        let id = names.next_claim;
        names.next_claim += 1;
        let claimed = (definition.group.clone(), taken(&decision.accepted));
        names.claims.insert(id, claimed);
        Some((decision, Claim { registry: self, id }))
    }

    /// Returns why a CRD would not get every requested name now.
    pub(crate) fn name_conflict(&self, definition: &Definition) -> Option<Conflict> {
        self.custom.lock().names.decide(definition).conflict
    }

    /// Returns the CRDs of a group that lack a name they requested.
    pub(crate) fn waiting_for_names(&self, group: &str) -> Vec<String> {
        let custom = self.custom.lock();
        custom.names.waiting(group).map(str::to_owned).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Collects every name in a `names` object.
fn taken(names: &Value) -> BTreeSet<Taken> {
    let resources = [&names["plural"], &names["singular"]];
    let resources = resources.into_iter().chain(list(&names["shortNames"]));
    let kinds = [&names["kind"], &names["listKind"]];
    let resources = resources.map(|name| (Space::Resource, text(name)));
    let kinds = kinds.into_iter().map(|name| (Space::Kind, text(name)));
    let all = resources.chain(kinds).filter(|(_, name)| !name.is_empty());
    all.map(|(space, name)| (space, name.to_owned())).collect()
}

/// Sets a field, or removes it if the value is empty and the field is optional.
fn put(names: &mut Value, field: &str, value: &Value) {
    let empty = text(value).is_empty() && list(value).is_empty();
    if !names.is_object() {
        *names = json!({});
    }
    if let Some(map) = names.as_object_mut() {
        if empty && !matches!(field, "plural" | "kind") {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), value.clone());
        }
    }
}

fn same_names(a: &Value, b: &Value) -> bool {
    let texts = ["plural", "singular", "kind", "listKind"];
    let lists = ["shortNames", "categories"];
    texts
        .iter()
        .all(|field| text(&a[*field]) == text(&b[*field]))
        && lists
            .iter()
            .all(|field| list(&a[*field]) == list(&b[*field]))
}
