//! Writes: every request that changes an object takes one path to the store.
//!
//! ```text
//! request ─► next state ─► managers ─► mutate ─► prepare ─► validate ─► reserve ─► commit ─► after
//!                ▲                                                                    │
//!                └─────────────────────── a concurrent write won ─────────────────────┘
//! ```
//!
//! | step | where | does |
//! |---|---|---|
//! | next state | [`create`], [`update`], [`patch`], [`apply`], [`scale`], [`delete`] | decodes the request and computes the requested state |
//! | managers | [`managers`] | records which fields the writer manages |
//! | mutate | [`admission`] | the admit phase of the [admission chain](crate::admission) |
//! | prepare | [`prepare`] | sets what only the server sets, restores what this write may not change, applies defaults |
//! | validate | [`admission`], [`validate`] | schema and rules of the kind, then validating admission |
//! | reserve | [`admission`] | converts to the stored version, then charges quotas |
//! | commit | [`commit`] | stores the object, if the stored one is still the one that was read |
//! | after | [`Kind`](super::kinds::Kind) | hooks for kinds that the server itself implements |
//!
//! [`change`] runs these steps for everything but creates and deletes, and repeats them after a
//! conflict. [`Attributes`] describes a write in progress. What differs between kinds is in
//! [`kinds`](super::kinds): the steps call its hooks and never check which kind they work on.
//!
//! A create runs `managers` and `mutate` once and repeats the rest for each name it generates. A
//! delete computes its state in `prepare`; both phases of admission run before, on the stored
//! object.

mod admission;
pub(crate) mod apply;
mod change;
pub(crate) mod commit;
mod connect;
mod create;
pub(crate) mod delete;
pub(crate) mod delete_options;
pub(crate) mod managers;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod scale;
mod update;
pub(crate) mod validate;

use std::sync::Arc;

use http::Method;
use serde_json::Value;

pub(crate) use self::admission::Unstored;
pub(crate) use crate::admission::Operation;
use crate::{
    admission::Exchanged,
    api::{Answer, Api, ApiError, Call, User, request::options::WriteOptions, response},
    authz::access::{self, Access},
    meta::{self, Tree},
    registry::Resource,
    store::{Content, Object, key_of},
};

/// How often a write that does not name a `resourceVersion` is retried after a conflict.
const MAX_TRIES: usize = 64;

/// A write on its way to the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) operation: Operation,
    /// The verb of the request, for permissions that depend on what it changes.
    pub(crate) verb: &'static str,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) namespace: Option<&'a str>,
    /// The name in the path; empty for a POST, which may generate it.
    pub(crate) name: &'a str,
    /// The subresource in the path; empty for the object itself.
    pub(crate) sub: &'a str,
    pub(crate) part: Part,
    /// The user that makes the request; `None` for writes that skip admission: the server's own,
    /// and writes that were admitted under another kind.
    pub(crate) user: Option<&'a User>,
    pub(crate) options: &'a WriteOptions,
    pub(crate) managers: Managers,
    /// What admission sees instead of the object.
    pub(crate) projection: Option<&'static Projection>,
}

/// The kind under which a subresource exchanges a part of an object, such as a `Scale`. Admission
/// sees this kind, not the object behind it.
#[derive(Debug)]
pub(crate) struct Projection {
    pub(crate) kind: Exchanged<'static>,
    /// Returns the part of an object that is exchanged.
    pub(crate) show: fn(&Resource, &Tree) -> Tree,
    /// Returns the object with the exchanged part replaced.
    pub(crate) merge: fn(&Resource, Tree, &Tree) -> Result<Tree, ApiError>,
}

/// The part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object without its status.
    Main,
    /// `/status`
    Status,
    /// `/approval` of a `CertificateSigningRequest`.
    Approval,
    /// `/finalize` of a Namespace.
    Finalize,
    /// `/ephemeralcontainers` of a Pod.
    EphemeralContainers,
    /// `/resize` of a Pod.
    Resize,
    /// The object and its status: changes the server makes itself.
    Everything,
}

/// Whether a write still has to record its field manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Managers {
    /// The writer becomes the manager of the fields it changes.
    Record,
    /// `managedFields` are final: an apply has computed them, or the server itself is the writer.
    Keep,
}

/// The result of a create or an update.
#[derive(Debug)]
pub(crate) enum Written {
    Stored(Arc<Object>),
    /// A dry run, or the last state of an object that the write removed, at the `resourceVersion`
    /// it had before.
    Unstored(Arc<Content>, Option<u64>),
}

impl Part {
    /// Returns the part that a subresource writes.
    pub(crate) fn of(sub: &str) -> Self {
        match sub {
            "status" => Self::Status,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            "finalize" => Self::Finalize,
            _ => Self::Main,
        }
    }
}

impl Attributes<'_> {
    fn key(&self) -> Arc<str> {
        key_of(self.namespace, self.name)
    }
}

impl Call {
    /// Returns the object that the path names, as authorization sees it.
    fn accessed(&self) -> access::Resource<'_> {
        let text = |part: &'_ Option<String>| part.clone().unwrap_or_default().into();
        access::Resource {
            group: self.target.resource.group.as_str().into(),
            plural: self.target.resource.plural.as_str().into(),
            namespace: text(&self.target.namespace),
            name: text(&self.target.name),
            ..access::Resource::default()
        }
    }

    /// Returns the attributes of a create.
    fn create_of<'a>(&'a self, options: &'a WriteOptions, managers: Managers) -> Attributes<'a> {
        Attributes {
            operation: Operation::Create,
            sub: "",
            ..self.update_of(Part::Main, options, managers)
        }
    }

    /// Returns the attributes of a write that changes `part` of the named object.
    pub(crate) fn update_of<'a>(
        &'a self,
        part: Part,
        options: &'a WriteOptions,
        managers: Managers,
    ) -> Attributes<'a> {
        Attributes {
            operation: Operation::Update,
            verb: match self.method {
                Method::POST => "create",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                _ => "update",
            },
            resource: &self.target.resource,
            namespace: self.target.namespace.as_deref(),
            name: self.target.name.as_deref().unwrap_or_default(),
            sub: self.target.sub.as_deref().unwrap_or_default(),
            part,
            user: Some(&self.user),
            options,
            managers,
            projection: None,
        }
    }
}

impl Written {
    /// Renders the object.
    pub(crate) async fn answer(&self, code: u16, call: &Call, api: &Api) -> Answer {
        let view = call.view(&api.clock);
        Ok(match self {
            Self::Stored(object) if !call.target.resource.is_converted() => {
                response::object(code, &view, object)
            }
            Self::Unstored(content, revision) if !call.target.resource.is_converted() => {
                response::content(code, &view, content, *revision)
            }
            converted => {
                let object = converted.object(call.key());
                let object = api.shown(&call.target.resource, object).await?;
                response::content(code, &view, &object.content, object.stored_revision())
            }
        })
    }

    /// Returns the result as an object.
    fn object(&self, key: Arc<str>) -> Arc<Object> {
        match self {
            Self::Stored(object) => Arc::clone(object),
            Self::Unstored(content, revision) => Arc::new(Object {
                key,
                revision: revision.unwrap_or(0),
                content: Arc::clone(content),
            }),
        }
    }
}

impl Api {
    /// Checks that the user may write this object, beyond the permission for the request itself.
    fn check_permissions(
        &self,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        let Some(user) = write.user else {
            return Ok(());
        };
        let hooks = write.resource.hooks;
        hooks.check_permissions(self, user, write, object, stored)
    }

    /// Checks that the user may create the named object, which a PUT or an apply would do.
    fn require_create(&self, call: &Call) -> Result<(), ApiError> {
        self.require(&call.user, &Access::to("create", call.accessed()))
    }

    /// Runs after an object was created or updated.
    fn after_write(&self, resource: &Resource, object: &Object) {
        resource.hooks.after_write(self, object);
    }

    /// Runs after an object is gone.
    fn after_delete(&self, resource: &Resource, object: &Object) {
        resource.hooks.after_delete(self, object);
        if let Some(custom) = &resource.custom {
            self.finish_definition(&custom.definition);
        }
    }
}

/// Sets the namespace of the path on an object and rejects a different one. On a cluster-scoped
/// object, where charts often set one, it is cleared.
pub(crate) fn set_namespace(
    resource: &Resource,
    namespace: Option<&str>,
    object: &mut Tree,
) -> Result<(), ApiError> {
    if !resource.namespaced {
        meta::metadata(object).remove("namespace");
        return Ok(());
    }
    let wanted = namespace.unwrap_or_default();
    let found = meta::text(object, "namespace");
    if !found.is_empty() && found != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::metadata(object).insert("namespace".into(), wanted.into());
    Ok(())
}

/// Removes the metadata that only the server sets, as upstream does before admission sees a new
/// object.
pub(crate) fn wipe_system_metadata(object: &mut Tree) {
    let metadata = meta::metadata(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(field);
    }
}

/// Returns true if nothing holds an object that is being deleted.
pub(crate) fn is_finished(resource: &Resource, object: &Tree) -> bool {
    if !meta::is_deleting(object)
        || !meta::finalizers(object).is_empty()
        || resource.hooks.is_held(object)
    {
        return false;
    }
    let grace = object
        .get("metadata")
        .and_then(|m| m.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64);
    grace.unwrap_or(0) == 0
}

/// Returns the decoded object of a request that stores none, without its type.
pub(crate) fn unstored_object(value: Value) -> Tree {
    match value {
        Value::Object(mut object) => {
            object.remove("apiVersion");
            object.remove("kind");
            object
        }
        _ => Tree::new(),
    }
}

/// Runs a function that works on a [`Value`] on an object.
pub(crate) fn with_value<T>(object: &mut Tree, run: impl FnOnce(&mut Value) -> T) -> T {
    let mut value = Value::Object(std::mem::take(object));
    let outcome = run(&mut value);
    if let Value::Object(changed) = value {
        *object = changed;
    }
    outcome
}
