//! Who manages which field: every write leaves its mark.

use serde_json::Value;

use super::{
    Api, Call,
    error::{ApiError, Cause},
    options::WriteOptions,
};
use crate::{
    meta::{self, Tree},
    patch::apply::{self, ApplyError, FieldSet, Shape, Write},
    registry::Resource,
    schema::field::FieldError,
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
        if resource.conversion.is_some() {
            return self.mark_converted(resource, sub, options, live, object);
        }
        let mut value = Value::Object(std::mem::take(object));
        self.writing(resource, sub, options, |write| {
            apply::update(live, &mut value, resource.served_shape(), write);
        });
        if let Value::Object(marked) = value {
            *object = marked;
        }
    }

    /// The same for an object that is served in another form than it is stored in: fields have the
    /// names of the form they were written in.
    fn mark_converted(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        live: Option<&Value>,
        object: &mut Tree,
    ) {
        let others = self.other_marks(resource, sub, options, live, object);
        let form = |tree: &Tree| Value::Object(resource.convert_out(tree.clone()));
        let (live, mut value) = (live.map(meta::tree).map(form), form(object));
        if let Some(sent) = object.get("metadata").and_then(|m| m.get("managedFields")) {
            // None at all is something to say.
            value["metadata"]["managedFields"] = sent.clone();
        }
        self.writing(resource, sub, options, |write| {
            apply::update(live.as_ref(), &mut value, resource.served_shape(), write);
        });
        let mut all = marks(&mut value);
        let here = resource.api_version();
        all.retain(|entry| entry["apiVersion"] == here.as_str());
        all.extend(others);
        all.sort_by_key(|entry| {
            let parts = ["time", "manager", "apiVersion", "subresource"];
            let parts = parts.map(|part| entry[part].as_str().map(str::to_owned));
            (entry["operation"] != "Apply", parts)
        });
        let metadata = meta::metadata(object);
        if all.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".into(), all.into());
        }
    }

    /// What a write through another form leaves to those who wrote in the form that is stored.
    fn other_marks(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        live: Option<&Value>,
        object: &Tree,
    ) -> Vec<Value> {
        let mut value = Value::Object(object.clone());
        self.writing(resource, sub, options, |write| {
            let shape = resource.stored_ty.map_or(Shape::Open, Shape::Builtin);
            apply::update(live, &mut value, shape, write);
        });
        let mut marks = marks(&mut value);
        let here = resource.api_version();
        marks.retain(|entry| entry["apiVersion"] != here.as_str());
        marks
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
        result.map_err(|error| match error {
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
        })
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
            "finalize" => FieldSet::of(&[&["metadata"], &["status"]]),
            _ => apply::reset_fields(sub, resource.has_status(), resource.custom.is_some()),
        };
        write(&Write {
            manager: &options.manager,
            api_version: &resource.api_version(),
            subresource: sub,
            now: &self.clock.stamp(),
            reset: &reset,
        })
    }
}

/// Takes the list of managers out of an object.
fn marks(object: &mut Value) -> Vec<Value> {
    match object["metadata"]["managedFields"].take() {
        Value::Array(marks) => marks,
        _ => Vec::new(),
    }
}

/// A write that changed nothing but its own time is none.
pub(crate) fn keep_times(stored: &Value, object: &mut Tree) {
    let mut value = Value::Object(std::mem::take(object));
    apply::keep_times(stored, &mut value);
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
}
