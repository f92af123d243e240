//! Field managers: which writer manages which field, recorded in `metadata.managedFields`.

use serde_json::Value;

use super::{Attributes, with_value};
use crate::{
    api::{
        Api, Call,
        request::options::WriteOptions,
        response::error::{ApiError, Cause},
    },
    meta::{self, Tree},
    patch::apply::{
        self, ApplyError, Conversions, FieldSet, OtherVersion, Pending, Shape, Unconverted, Write,
        scale::SCALE,
    },
    registry::Resource,
    schema::{builtin, field::FieldError},
};

impl Api {
    /// Records that the writer manages the fields it sets; `live` is the stored object. Only for
    /// kinds without a conversion webhook.
    pub(crate) fn record_manager(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        live: Option<&Value>,
        object: &mut Tree,
    ) {
        if self
            .try_record(resource, sub, options, live, object, None)
            .is_err()
        {
            meta::metadata(object).remove("managedFields");
        }
    }

    /// Like [`record_manager`](Self::record_manager), but for any kind.
    pub(super) async fn record_write(
        &self,
        write: &Attributes<'_>,
        live: Option<&Value>,
        object: &mut Tree,
    ) {
        let Attributes {
            resource,
            sub,
            options,
            ..
        } = *write;
        if !resource.is_converted() {
            self.record_manager(resource, sub, options, live, object);
            return;
        }
        let mut conversions = Conversions::default();
        loop {
            match self.try_record(resource, sub, options, live, object, Some(&conversions)) {
                Ok(()) => return,
                Err(Unconverted::Pending(pending)) => {
                    self.convert_pending(resource, *pending, &mut conversions)
                        .await;
                }
                Err(Unconverted::Failed(error)) => {
                    let name = meta::text(object, "name");
                    tracing::warn!(kind = %resource.kind, name, %error,
                        "failed to update managedFields; dropping them");
                    meta::metadata(object).remove("managedFields");
                    return;
                }
            }
        }
    }

    /// Performs a conversion that comparing managed fields requires.
    pub(super) async fn convert_pending(
        &self,
        resource: &Resource,
        pending: Pending,
        conversions: &mut Conversions,
    ) {
        let object = pending.object.clone();
        let converted = self.convert_value(resource, object, &pending.from, &pending.to);
        let outcome = converted.await.map_err(|error| error.message().to_owned());
        conversions.add(pending, outcome);
    }

    fn try_record(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        live: Option<&Value>,
        object: &mut Tree,
        conversions: Option<&Conversions>,
    ) -> Result<(), Unconverted> {
        let record = |live: Option<&Value>, value: &mut Value| {
            self.with_write(resource, sub, options, conversions, |write| {
                apply::update(live, value, resource.served_shape(), write)
            })
        };
        if resource.conversion.is_none() {
            return with_value(object, |value| record(live, value));
        }
        // Managed fields are named as in the version that was written.
        let form = |tree: &Tree| Value::Object(resource.to_served(tree.clone()));
        let (live, mut value) = (live.map(meta::tree).map(form), form(object));
        let metadata = meta::metadata(object);
        if let Some(sent) = metadata.remove("managedFields") {
            // An empty list is not the same as none: it resets the managers.
            value["metadata"]["managedFields"] = sent;
        }
        record(live.as_ref(), &mut value)?;
        let managers = value["metadata"]["managedFields"].take();
        if !managers.is_null() {
            metadata.insert("managedFields".into(), managers);
        }
        Ok(())
    }

    /// Applies a configuration to the live object, if there is one.
    pub(super) fn apply_config(
        &self,
        call: &Call,
        options: &WriteOptions,
        live: Option<&Value>,
        config: &Value,
        conversions: &Conversions,
    ) -> Result<Value, ApplyError> {
        let resource = &call.target.resource;
        let sub = call.target.sub.as_deref().unwrap_or_default();
        let force = call.query.flag("force");
        let conversions = resource.is_converted().then_some(conversions);
        self.with_write(resource, sub, options, conversions, |write| {
            apply::apply(live, config, resource.served_shape(), write, force)
        })
    }

    /// Applies a configuration to the scale of an object.
    pub(super) fn apply_scale_config(
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
            conversions: None,
        };
        let force = call.query.flag("force");
        Ok(apply::apply(Some(live), config, shape, &write, force)?)
    }

    fn with_write<T>(
        &self,
        resource: &Resource,
        sub: &str,
        options: &WriteOptions,
        conversions: Option<&Conversions>,
        write: impl FnOnce(&Write<'_>) -> T,
    ) -> T {
        let reset = match (resource.hooks.reset_fields(sub), sub) {
            (Some(fields), _) => fields,
            (None, "finalize") => FieldSet::of(&[&["metadata"], &["status"]]),
            _ => apply::reset_fields(sub, resource.has_status(), resource.custom.is_some()),
        };
        write(&Write {
            manager: &options.manager,
            api_version: &resource.api_version(),
            subresource: sub,
            now: &self.clock.stamp(),
            reset: &reset,
            others: &resource.other_versions(),
            conversions,
        })
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::BadRequest(why) => Self::bad_request(why),
            ApplyError::Conflicts(conflicts) => {
                let message = ApplyError::Conflicts(conflicts.clone()).to_string();
                let causes = conflicts.iter().map(|conflict| {
                    Cause::raw(
                        "FieldManagerConflict",
                        conflict.field.clone(),
                        conflict.message(),
                    )
                });
                Self::apply_conflict(message, causes.collect())
            }
            error @ (ApplyError::Untyped(_) | ApplyError::Unconverted(_)) => {
                Self::new(500, "", error.to_string())
            }
        }
    }
}

/// Restores the times of manager entries that did not change, so that a write without any other
/// change is a no-op.
pub(super) fn keep_unchanged_times(stored: &Value, object: &mut Tree) {
    with_value(object, |value| apply::keep_unchanged_times(stored, value));
}

/// Checks the options that only an apply must or may set.
pub(super) fn check_options(call: &Call, is_apply: bool) -> Result<(), ApiError> {
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
    /// Returns the shape of served objects.
    pub(crate) fn served_shape(&self) -> Shape<'_> {
        match (&self.custom, self.ty) {
            (Some(custom), _) => Shape::Custom(&custom.schema),
            (None, Some(ty)) => Shape::Builtin(ty),
            (None, None) => Shape::Open,
        }
    }

    /// Returns the other versions of this kind.
    fn other_versions(&self) -> Vec<OtherVersion<'_>> {
        if let Some(custom) = &self.custom {
            let own = self.api_version();
            let others = custom.schemas.iter();
            return others
                .filter(|(api_version, _)| **api_version != own)
                .map(|(api_version, schema)| OtherVersion {
                    api_version,
                    shape: Shape::Custom(schema),
                    to_other: same,
                    from_other: same,
                })
                .collect();
        }
        self.peer_version().into_iter().collect()
    }

    /// Returns the other version of a built-in kind that is served in two versions.
    fn peer_version(&self) -> Option<OtherVersion<'static>> {
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

/// Returns the object unchanged: the versions of a CRD without a webhook differ only in their
/// schemas.
fn same(object: Tree) -> Tree {
    object
}
