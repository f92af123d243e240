//! Who manages which field: every write leaves its mark.

use serde_json::Value;

use crate::api::{
    Api, Call,
    kinds::signing_requests,
    request::options::WriteOptions,
    response::error::{ApiError, Cause},
};
use crate::{
    meta::{self, Tree},
    patch::apply::{self, ApplyError, FieldSet, OtherVersion, Shape, Write, scale::SCALE},
    registry::Resource,
    schema::{builtin, field::FieldError},
};

/// Whether a change still has to be marked with its manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is an update: the fields it changes are its manager's.
    Update,
    /// It is marked, or nobody's: an apply, or the server's own doing.
    Done,
}

impl Api {
    /// Marks a new or changed object with who manages its fields.
    pub(crate) fn mark_managers(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        live: Option<&Value>,
        object: &mut Tree,
    ) {
        let mark = |live: Option<&Value>, value: &mut Value| {
            self.writing(resource, sub, options, |write| {
                apply::update(live, value, resource.served_shape(), write);
            });
        };
        if resource.conversion.is_none() {
            let mut value = Value::Object(std::mem::take(object));
            mark(live, &mut value);
            if let Value::Object(marked) = value {
                *object = marked;
            }
            return;
        }
        // Fields have the names of the form they are written in.
        let form = |tree: &Tree| Value::Object(resource.to_served(tree.clone()));
        let (live, mut value) = (live.map(meta::tree).map(form), form(object));
        let metadata = meta::metadata(object);
        if let Some(sent) = metadata.remove("managedFields") {
            // None at all is something to say.
            value["metadata"]["managedFields"] = sent;
        }
        mark(live.as_ref(), &mut value);
        let marks = value["metadata"]["managedFields"].take();
        if !marks.is_null() {
            metadata.insert("managedFields".into(), marks);
        }
    }

    /// Applies a configuration to what is stored, or to nothing.
    pub(crate) fn apply_config(
        &self,
        call: &Call,
        options: &WriteOptions,
        live: Option<&Value>,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let resource = &call.target.resource;
        let sub = call.target.sub.as_deref().unwrap_or_default();
        let force = call.query.flag("force");
        let result = self.writing(resource, sub, options, |write| {
            apply::apply(live, config, resource.served_shape(), write, force)
        });
        result.map_err(refused)
    }

    /// Applies a configuration to the scale of an object.
    pub(crate) fn apply_scale_config(
        &self,
        call: &Call,
        options: &WriteOptions,
        live: &Value,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let shape = builtin::kind("autoscaling", "v1", "Scale").map_or(Shape::Open, Shape::Builtin);
        let write = Write {
            manager: &options.manager,
            api_version: SCALE,
            subresource: "scale",
            now: &self.clock.stamp(),
            reset: &FieldSet::default(),
            others: &[],
        };
        let force = call.query.flag("force");
        apply::apply(Some(live), config, shape, &write, force).map_err(refused)
    }

    fn writing<T>(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        write: impl FnOnce(&Write<'_>) -> T,
    ) -> T {
        let reset = match sub {
            "status" if resource.is("apps", "deployments") => {
                FieldSet::of(&[&["spec"], &["metadata", "labels"]])
            }
            sub if signing_requests::is_one(resource) => signing_requests::reset_fields(sub),
            "finalize" => FieldSet::of(&[&["metadata"], &["status"]]),
            _ => apply::reset_fields(sub, resource.has_status(), resource.custom.is_some()),
        };
        write(&Write {
            manager: &options.manager,
            api_version: &resource.api_version(),
            subresource: sub,
            now: &self.clock.stamp(),
            reset: &reset,
            others: &resource.other_forms(),
        })
    }
}

fn refused(error: ApplyError) -> ApiError {
    match error {
        ApplyError::BadRequest(why) => ApiError::bad_request(why),
        ApplyError::Conflicts(conflicts) => {
            let message = ApplyError::Conflicts(conflicts.clone()).to_string();
            let causes = conflicts.iter().map(|conflict| {
                Cause::raw(
                    "FieldManagerConflict",
                    conflict.field.clone(),
                    conflict.message(),
                )
            });
            ApiError::apply_conflict(message, causes.collect())
        }
        error @ ApplyError::Untyped(_) => ApiError::new(500, "", error.to_string()),
    }
}

/// A write that changed nothing but its own time is none.
pub(crate) fn keep_times(stored: &Value, object: &mut Tree) {
    let mut value = Value::Object(std::mem::take(object));
    apply::keep_unchanged_times(stored, &mut value);
    if let Value::Object(kept) = value {
        *object = kept;
    }
}

/// What an apply must say, and others may not.
pub(crate) fn check_options(call: &Call, is_apply: bool) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    if is_apply && call.query.get("fieldManager").is_empty() {
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
    }
    if !is_apply && call.query.optional_flag("force").is_some() {
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", errors))
}

impl Resource {
    /// How served objects are shaped.
    fn served_shape(&self) -> Shape<'_> {
        match (&self.custom, self.ty) {
            (Some(custom), _) => Shape::Custom(&custom.schema),
            (None, Some(ty)) => Shape::Builtin(ty),
            (None, None) => Shape::Open,
        }
    }

    /// The other versions objects of this kind are written in.
    fn other_forms(&self) -> Vec<OtherVersion<'_>> {
        if let Some(custom) = &self.custom {
            let others = custom.others.iter();
            return others
                .map(|(api_version, schema)| OtherVersion {
                    api_version,
                    shape: Shape::Custom(schema),
                    to_other: same,
                    from_other: same,
                })
                .collect();
        }
        self.peer_form().into_iter().collect()
    }

    /// The other form of a built-in kind that has two.
    fn peer_form(&self) -> Option<OtherVersion<'static>> {
        let peer = self.peer?;
        let (group, version) = peer
            .api_version
            .split_once('/')
            .unwrap_or(("", peer.api_version));
        Some(OtherVersion {
            api_version: peer.api_version,
            shape: Shape::Builtin(builtin::kind(group, version, &self.kind)?),
            to_other: peer.to_peer,
            from_other: peer.from_peer,
        })
    }
}

/// The versions of a definition differ in what they say of an object, not in the object.
fn same(object: Tree) -> Tree {
    object
}
