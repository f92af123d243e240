//! The objects around a key: its owners, its children, and objects that its last error names.

use std::{collections::BTreeSet, sync::Arc};

use memchr::memmem;
use serde_json::Value;

use super::{
    entry::Happened,
    model::{Event, Node},
    record::{Inner, KeyLog},
    redact,
};
use crate::{
    cache::ObjectKey,
    informer::{Cache, WeakFactory},
    kstatus::{self, ObjectStatus},
    object::Header,
};

/// The maximum number of objects in a tree.
const MAX_NODES: usize = 60;
/// How deep children are followed.
const MAX_DEPTH: usize = 5;
/// How many cached events are read.
const MAX_READ: usize = 1000;
/// How many events are shown for an object.
const MAX_EVENTS: usize = 5;

/// Returns the object of a key with its owners and children, and the objects that `error` names.
/// The object itself comes first; if it does not exist, there is no such node. Also returns whether
/// objects below it may be missing.
pub(super) fn of(
    record: &Inner,
    key: &ObjectKey,
    error: Option<&str>,
    with_events: bool,
) -> (Vec<Node>, bool) {
    let factories = record.program.factories();
    let caches: Vec<Cache> = factories.iter().flat_map(WeakFactory::caches).collect();
    let mut tree = Tree {
        caches: &caches,
        now: record.program.clock.now(),
        nodes: Vec::new(),
        seen: BTreeSet::new(),
        truncated: false,
    };
    let own = |cache: &&Cache| cache.group() == record.group && *cache.kind == *record.kind;
    let own = caches.iter().filter(own);
    let Some((cache, object)) = own
        .clone()
        .find_map(|cache| Some((cache, cache.cached.get(key)?)))
    else {
        if let Some(error) = error {
            tree.named(key, error);
        }
        return (tree.nodes, false);
    };
    tree.add(cache, &*object, "", "self");
    tree.children(&object);
    tree.owners(&*object, 0);
    if let Some(error) = error {
        tree.named(key, error);
    }
    if with_events {
        tree.events();
    }
    (tree.nodes, tree.truncated)
}

/// Adds the values that the last recorded change of each object replaced.
pub(super) fn add_diffs(nodes: &mut [Node], log: &KeyLog) {
    for node in nodes {
        let last = log
            .entries
            .iter()
            .rev()
            .find_map(|entry| match &entry.what {
                Happened::Woke { change, .. } if change.uid().as_ref() == Some(&node.uid) => {
                    Some(change.diff())
                }
                _ => None,
            });
        node.diff = last.unwrap_or_default();
    }
}

struct Tree<'a> {
    caches: &'a [Cache],
    now: jiff::Timestamp,
    nodes: Vec<Node>,
    /// The UIDs of the nodes.
    seen: BTreeSet<String>,
    /// Whether children may be missing.
    truncated: bool,
}

impl Tree<'_> {
    /// Adds an object unless it is in the tree or the tree is full. Returns whether it was added.
    fn add(&mut self, cache: &Cache, object: &dyn Header, parent: &str, role: &str) -> bool {
        if self.nodes.len() >= MAX_NODES || !self.seen.insert(object.uid().to_owned()) {
            return false;
        }
        let controller = object.controller_owner().map(|owner| {
            let namespace = object.key().namespace();
            format!(
                "{} {}",
                owner.kind(),
                ObjectKey::new(namespace, owner.name())
            )
        });
        let mut value: Value = serde_json::from_slice(object.bytes()).unwrap_or_default();
        let ObjectStatus {
            status, message, ..
        } = kstatus::compute_as(cache.group(), &cache.kind, &value, self.now);
        redact::object(&cache.kind, &mut value);
        self.nodes.push(Node {
            api_version: cache.api_version.clone(),
            kind: cache.kind.clone(),
            key: object.key().to_string(),
            uid: object.uid().to_owned(),
            parent: parent.to_owned(),
            role: role.to_owned(),
            controller: controller.unwrap_or_default(),
            status: status.as_str().to_owned(),
            message: redact::text(&message),
            events: Vec::new(),
            object: value,
            diff: Vec::new(),
        });
        true
    }

    /// Adds the objects below `root`, level by level: if there are too many, those closest to it
    /// are shown.
    fn children(&mut self, root: &Arc<dyn Header>) {
        let mut level = vec![Arc::clone(root)];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for owner in &level {
                self.direct_children(&**owner, &mut next);
            }
            level = next;
        }
        // Objects below the last level are not in the tree.
        self.truncated |= !level.is_empty();
    }

    fn direct_children(&mut self, owner: &dyn Header, found: &mut Vec<Arc<dyn Header>>) {
        let namespace = owner.key().namespace();
        for cache in self.caches {
            // Events are shown with the objects they are about, not as children.
            if cache.kind == "Event" {
                continue;
            }
            for child in cache.cached.owned_by(namespace, owner.uid()) {
                if self.add(cache, &*child, owner.uid(), "child") {
                    found.push(child);
                } else if !self.seen.contains(child.uid()) {
                    self.truncated = true;
                    return;
                }
            }
        }
    }

    fn owners(&mut self, object: &dyn Header, depth: usize) {
        if depth >= MAX_DEPTH {
            return;
        }
        for owner in object.owners() {
            let namespace = object.key().namespace();
            let places = [
                ObjectKey::new(namespace, owner.name()),
                ObjectKey::cluster(owner.name()),
            ];
            let same =
                |cache: &&Cache| cache.group() == owner.group() && cache.kind == owner.kind();
            let found = self.caches.iter().filter(same).find_map(|cache| {
                let found = places.iter().find_map(|key| cache.cached.get(key))?;
                (found.uid() == owner.uid()).then_some((cache, found))
            });
            let Some((cache, found)) = found else {
                continue;
            };
            if self.add(cache, &*found, "", "owner") {
                self.owners(&*found, depth + 1);
            }
            // The owner is drawn above the object.
            let uid = found.uid().to_owned();
            if let Some(node) = self.nodes.iter_mut().find(|node| node.uid == object.uid()) {
                node.parent = uid;
            }
        }
    }

    /// Adds the objects in the namespace of `key` that an error names in quotes.
    fn named(&mut self, key: &ObjectKey, error: &str) {
        for name in quoted(error) {
            let name = name.rsplit('/').next().unwrap_or(name);
            let named = ObjectKey::new(key.namespace(), name);
            for cache in self.caches {
                if let Some(found) = cache.cached.get(&named) {
                    self.add(cache, &*found, "", "named");
                }
            }
        }
    }

    /// Adds the cached events about each node.
    fn events(&mut self) {
        let Some(namespace) = self.nodes.first().map(namespace_of) else {
            return;
        };
        let caches = self.caches.iter().filter(|cache| cache.kind == "Event");
        let mut all: Vec<(String, Event)> = Vec::new();
        for cache in caches {
            for event in cache
                .cached
                .list(namespace.as_deref())
                .iter()
                .take(MAX_READ)
            {
                all.extend(event_of(event, &self.seen));
            }
        }
        all.sort_by(|(_, a), (_, b)| b.last.cmp(&a.last));
        for (uid, event) in all {
            let node = self.nodes.iter_mut().find(|node| node.uid == uid);
            if let Some(node) = node.filter(|node| node.events.len() < MAX_EVENTS) {
                node.events.push(event);
            }
        }
    }
}

fn namespace_of(node: &Node) -> Option<String> {
    let namespace = node.key.split_once('/');
    namespace.map(|(namespace, _)| namespace.to_owned())
}

/// Reads a core or events.k8s.io event about one of the objects with these UIDs.
fn event_of(event: &Arc<dyn Header>, uids: &BTreeSet<String>) -> Option<(String, Event)> {
    // Most events are about other objects, and need not be parsed.
    let bytes = event.bytes();
    let mut uids_inside = uids.iter().map(|uid| memmem::find(bytes, uid.as_bytes()));
    uids_inside.find_map(|found| found)?;
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let regarding = value
        .get("involvedObject")
        .or_else(|| value.get("regarding"))?;
    let uid = regarding.get("uid")?.as_str()?;
    if !uids.contains(uid) {
        return None;
    }
    let text = |pointers: &[&str]| {
        let mut found = pointers.iter().filter_map(|at| value.pointer(at)?.as_str());
        found.next().unwrap_or_default().to_owned()
    };
    let count = value
        .pointer("/series/count")
        .or_else(|| value.get("count"));
    let event = Event {
        type_: text(&["/type"]),
        reason: text(&["/reason"]),
        message: redact::text(&text(&["/message", "/note"])),
        count: count.and_then(Value::as_i64).unwrap_or(1),
        last: text(&[
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/deprecatedLastTimestamp",
            "/eventTime",
            "/metadata/creationTimestamp",
        ]),
    };
    Some((uid.to_owned(), event))
}

/// Returns the strings in double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests;
