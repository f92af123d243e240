//! Server-side apply.

use serde_json::Value;

use super::{
    MAX_TRIES, Managers, Part, Written, change::check_identity, managers::check_options,
    patch::check_name,
};
use crate::{
    api::{
        Answer, Api, ApiError, Call,
        request::{
            decode::{media_type, yaml_or_json},
            fields::Source,
            options::{FieldValidation, WriteOptions},
        },
    },
    meta::{self, Tree},
    patch::apply::{ApplyError, Conversions, Unconverted},
};

/// The media type of a configuration to apply.
const APPLY: &str = "application/apply-patch+yaml";

impl Api {
    /// Handles an apply, which creates the object if it does not exist.
    pub(super) async fn apply(&self, call: &Call, sub: &str, options: &WriteOptions) -> Answer {
        let resource = &call.target.resource;
        let config = configuration(call, options)?;
        let may_create = sub.is_empty();
        let mut tries = MAX_TRIES;
        let mut conversions = Conversions::default();
        loop {
            tries -= 1;
            if may_create && self.store.get(call.collection()?, &call.key()).is_none() {
                match self.apply_new(call, options, &config).await {
                    // Another client created it first: update that object instead.
                    Err(error) if error.is_taken() && tries > 0 => {}
                    created => return created?.answer(201, call, self).await,
                }
            }
            let mut pending = None;
            let mut applied = |stored: &Tree| {
                let mut live = Value::Object(resource.to_served(stored.clone()));
                live["apiVersion"] = resource.api_version().into();
                live["kind"] = resource.kind.clone().into();
                let applied = self.apply_config(call, options, Some(&live), &config, &conversions);
                let applied = applied.inspect_err(|error| {
                    if let ApplyError::Unconverted(Unconverted::Pending(needed)) = error {
                        pending = Some(*needed.clone());
                    }
                })?;
                let tree = call.stored(applied, Source::Applied, options)?;
                check_name(call, &tree)?;
                check_identity(resource, &tree, stored)?;
                Ok(tree)
            };
            let write = call.update_of(Part::of(sub), options, Managers::Keep);
            let changed = self.change(&write, &mut applied).await;
            if let Some(pending) = pending {
                // Nothing has been written yet.
                self.convert_pending(resource, pending, &mut conversions)
                    .await;
                tries += 1;
                continue;
            }
            match changed {
                // It was deleted concurrently: create it again.
                Err(error) if error.is_missing() && may_create && tries > 0 => {}
                written => return written?.answer(200, call, self).await,
            }
        }
    }

    /// Creates the object that a configuration describes.
    async fn apply_new(
        &self,
        call: &Call,
        options: &WriteOptions,
        config: &Value,
    ) -> Result<Written, ApiError> {
        // There are no managers, so nothing needs converting.
        let applied = self.apply_config(call, options, None, config, &Conversions::default())?;
        let mut tree = call.stored(applied, Source::Applied, options)?;
        if call.target.resource.namespaced && meta::text(&tree, "namespace").is_empty() {
            let namespace = call.target.namespace.clone().unwrap_or_default();
            meta::metadata(&mut tree).insert("namespace".into(), namespace.into());
        }
        check_name(call, &tree)?;
        // Upstream ignores a resourceVersion when an apply creates the object.
        meta::metadata(&mut tree).remove("resourceVersion");
        self.require_create(call)?;
        let write = call.create_of(options, Managers::Keep);
        self.create_object(&write, tree).await
    }
}

/// Returns true if a PATCH is a server-side apply.
pub(crate) fn applies(call: &Call) -> bool {
    media_type(&call.headers) == APPLY
}

/// Decodes the configuration in the body of an apply.
pub(super) fn configuration(call: &Call, options: &WriteOptions) -> Result<Value, ApiError> {
    check_options(call, true)?;
    let (config, duplicate) =
        yaml_or_json(&call.body).map_err(|error| error.prefixed("error decoding YAML: "))?;
    if let Some(duplicate) = duplicate {
        report_duplicate(duplicate, options)?;
    }
    let metadata = config.get("metadata");
    if !config.is_object() || metadata.is_some_and(|metadata| !metadata.is_object()) {
        return Err(ApiError::bad_request(
            "error decoding YAML: an object is expected",
        ));
    }
    Ok(config)
}

/// Reports a duplicate key of a configuration as `fieldValidation` requests.
fn report_duplicate(duplicate: String, options: &WriteOptions) -> Result<(), ApiError> {
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => options.warnings.add(duplicate),
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal \
                 errors:\n  {duplicate}"
            )));
        }
    }
    Ok(())
}
