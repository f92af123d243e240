//! A request as admission sees it.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    api::{ApiError, User, WriteOptions},
    meta::{self, Tree},
    registry::Resource,
};

/// The placeholder for a missing name in errors.
const UNKNOWN: &str = "Unknown";

/// Returns the name of an object that may not have one yet, as errors show it.
pub(crate) fn shown_name(object: &Tree) -> &str {
    let names = [
        meta::text(object, "name"),
        meta::text(object, "generateName"),
    ];
    let name = names.into_iter().find(|name| !name.is_empty());
    name.unwrap_or(UNKNOWN)
}

/// What a request does to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// Opens a stream to the object, for example `pods/exec`.
    Connect,
}

impl Operation {
    /// Returns the name in admission reviews: `CREATE`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The kind that a subresource such as `scale`, `binding` or `eviction` exchanges instead of the
/// resource's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchanged<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// A request on its way through the chain: a create, update, delete or connect.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    /// The resource in the path.
    pub(crate) resource: &'a Arc<Resource>,
    /// The subresource in the path; empty for the object itself.
    pub(crate) sub: &'a str,
    /// The kind of the objects, if it is not the kind of the resource.
    pub(crate) exchanged: Option<Exchanged<'a>>,
    /// The namespace of the object; for a Namespace, its own name.
    pub(crate) namespace: Option<&'a str>,
    /// The name of the object. Empty for deletes of a collection, and in the admit phase of a
    /// create that generates the name.
    pub(crate) name: &'a str,
    pub(crate) user: &'a User,
    /// The options of the request: dry run, field manager, warnings for the response.
    pub(crate) options: &'a WriteOptions,
    /// The stored object; `None` for a create or a connect.
    pub(crate) old: Option<&'a Tree>,
    /// Whether and how plugins run again.
    pub(crate) reinvocation: Reinvocation,
}

/// The state of plugins between the two rounds of one request.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    second_round: bool,
    wanted: Mutex<bool>,
    /// The state of each plugin, by its name.
    states: Mutex<BTreeMap<&'static str, Box<dyn Any + Send>>>,
}

impl Request<'_> {
    /// Returns true if nothing will be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.options.dry_run
    }

    /// Returns true if the request is for this resource in any version, including its subresources.
    pub(crate) fn is_for(&self, group: &str, plural: &str) -> bool {
        self.resource.plural == plural && self.resource.group == group
    }

    /// Returns true if the request creates an object of this resource.
    pub(crate) fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.sub.is_empty() && self.is_for(group, plural)
    }

    /// Returns `(group, version, kind)` of the objects.
    pub(crate) fn kind(&self) -> (&str, &str, &str) {
        if let Some(exchanged) = &self.exchanged {
            return (exchanged.group, exchanged.version, exchanged.kind);
        }
        let resource = self.resource;
        (&resource.group, &resource.version, &resource.kind)
    }

    /// Returns an object as the client sees it: in the version of the request, with its type.
    pub(crate) fn served(&self, object: &Tree) -> Value {
        let (group, version, kind) = self.kind();
        let mut served = match self.exchanged {
            Some(_) => object.clone(),
            None => self.resource.to_served(object.clone()),
        };
        served.insert(
            "apiVersion".into(),
            crate::registry::api_version(group, version).into(),
        );
        served.insert("kind".into(), kind.into());
        Value::Object(served)
    }

    /// Returns the error for a write that a plugin forbids. If the name is not generated yet, the
    /// error shows its prefix.
    pub(crate) fn forbidden(&self, object: Option<&Tree>, why: &str) -> ApiError {
        let name = match (self.name, object) {
            ("", Some(object)) => shown_name(object),
            ("", None) => UNKNOWN,
            (name, _) => name,
        };
        let resource = self.resource;
        ApiError::forbidden(&resource.group, &resource.plural, name, why)
    }

    /// Returns true in the second round.
    pub(crate) fn is_reinvocation(&self) -> bool {
        self.reinvocation.second_round
    }

    /// Requests a second round, because the object changed after other plugins had seen it. Has no
    /// effect in the second round.
    pub(crate) fn reinvoke(&self) {
        *self.reinvocation.wanted.lock() = true;
    }

    /// Runs `with` on the state that a plugin keeps during this request.
    pub(crate) fn with_state<S: Any + Default + Send, T>(
        &self,
        plugin: &'static str,
        with: impl FnOnce(&mut S) -> T,
    ) -> T {
        let mut states = self.reinvocation.states.lock();
        let state = states
            .entry(plugin)
            .or_insert_with(|| Box::new(S::default()));
        if let Some(state) = state.downcast_mut() {
            return with(state);
        }
        // The state has another type; start over with the new one.
        let mut fresh = S::default();
        let result = with(&mut fresh);
        *state = Box::new(fresh);
        result
    }

    /// Starts the second round if a plugin requested it. Returns true if so.
    pub(super) fn start_reinvocation(&mut self) -> bool {
        let wanted = std::mem::take(self.reinvocation.wanted.get_mut());
        self.reinvocation.second_round = wanted;
        wanted
    }
}
