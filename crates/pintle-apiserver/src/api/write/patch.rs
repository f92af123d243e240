//! Patches: JSON patch, JSON merge patch, strategic merge patch, and server-side apply.

use serde_json::Value;

use crate::api::{
    Answer, Api, ApiError, Call,
    kinds::signing_requests,
    request::decode::{json_problem, media_type, yaml, yaml_duplicate},
    request::fields::Source,
    request::options::{FieldValidation, WriteOptions},
    write::create::Written,
    write::managers::{Mark, check_options},
    write::prepare::Part,
    write::update::TRIES,
};
use crate::{
    codec::json,
    meta::{self, Tree},
    patch::{self, PatchError},
    schema::{
        builtin::{self, TypeRef},
        field::FieldError,
    },
};

/// The media type of a configuration to apply.
const APPLY: &str = "application/apply-patch+yaml";

/// A decoded patch.
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    /// With the type that tells how lists are merged.
    Strategic(Value, TypeRef),
}

impl Api {
    /// Answers PATCH of an object or one of its subresources.
    pub(crate) fn patch(&self, call: &Call, sub: &str) -> Answer {
        let options = call.write_options("PatchOptions")?;
        if applies(call) {
            return self.apply(call, sub, &options);
        }
        check_options(call, false)?;
        let (patch, twice) = read(call)?;
        let resource = &call.target.resource;
        let kind = (resource.api_version(), resource.kind.clone());
        let mut change = |stored: &Tree| {
            let uid = meta::text(stored, "uid").to_owned();
            let mut value = Value::Object(resource.to_served(stored.clone()));
            value["apiVersion"] = kind.0.clone().into();
            value["kind"] = kind.1.clone().into();
            patch.apply(&mut value)?;
            let source = match &patch {
                Patch::Strategic(..) => Source::Merged { faults: &twice },
                _ => Source::Other { faults: &twice },
            };
            let tree = call.stored(value.clone(), source, &options);
            let tree = tree.map_err(|error| error.blame_patch(&patch.shown(&value)))?;
            check_identity(call, &tree, &uid)?;
            Ok(tree)
        };
        let written = self.change(call, Part::of(sub), &options, Mark::Update, &mut change)?;
        Ok(written.answer(200, &call.view(&self.clock), &options))
    }
    /// Answers an apply: what is not there is created.
    fn apply(&self, call: &Call, sub: &str, options: &WriteOptions) -> Answer {
        let resource = &call.target.resource;
        let config = configuration(call, options)?;
        let view = call.view(&self.clock);
        let may_create = sub.is_empty();
        let mut tries = TRIES;
        loop {
            tries -= 1;
            if may_create && self.store.get(call.collection()?, &call.key()).is_none() {
                match self.apply_new(call, options, &config) {
                    // Somebody came between: this is then a change of theirs.
                    Err(error) if error.is_taken() && tries > 0 => {}
                    made => return Ok(made?.answer(201, &view, options)),
                }
            }
            let mut change = |stored: &Tree| {
                let uid = meta::text(stored, "uid").to_owned();
                let mut live = Value::Object(resource.to_served(stored.clone()));
                live["apiVersion"] = resource.api_version().into();
                live["kind"] = resource.kind.clone().into();
                let applied = self.apply_config(call, options, Some(&live), &config)?;
                let tree = call.stored_form(applied, options)?;
                check_identity(call, &tree, &uid)?;
                Ok(tree)
            };
            match self.change(call, Part::of(sub), options, Mark::Done, &mut change) {
                // It went meanwhile: this is then a creation again.
                Err(error) if error.is_missing() && may_create && tries > 0 => {}
                written => return Ok(written?.answer(200, &view, options)),
            }
        }
    }

    /// Creates what a configuration describes.
    fn apply_new(
        &self,
        call: &Call,
        options: &WriteOptions,
        config: &Value,
    ) -> Result<Written, ApiError> {
        let resource = &call.target.resource;
        let applied = self.apply_config(call, options, None, config)?;
        let mut tree = call.stored_form(applied, options)?;
        if resource.namespaced && meta::text(&tree, "namespace").is_empty() {
            let namespace = call.target.namespace.clone().unwrap_or_default();
            meta::metadata(&mut tree).insert("namespace".into(), namespace.into());
        }
        check_name(call, &tree)?;
        // Upstream ignores a resourceVersion when an apply creates the object.
        meta::metadata(&mut tree).remove("resourceVersion");
        if signing_requests::is_one(resource) {
            signing_requests::identify(&mut tree, &call.user);
        }
        let namespace = call.target.namespace.as_deref();
        self.create_object(resource, namespace, tree, options, Mark::Done)
    }
}

/// Whether a request applies a configuration.
pub(crate) fn applies(call: &Call) -> bool {
    media_type(&call.headers) == APPLY
}

/// The configuration in the body of an apply.
pub(crate) fn configuration(call: &Call, options: &WriteOptions) -> Result<Value, ApiError> {
    check_options(call, true)?;
    let config = yaml(&call.body).map_err(|error| error.prefixed("error decoding YAML: "))?;
    check_keys(&call.body, options)?;
    let metadata = config.get("metadata");
    if !config.is_object() || metadata.is_some_and(|metadata| !metadata.is_object()) {
        return Err(ApiError::bad_request(
            "error decoding YAML: an object is expected",
        ));
    }
    Ok(config)
}

/// A patch cannot make an object another one.
fn check_identity(call: &Call, patched: &Tree, uid: &str) -> Result<(), ApiError> {
    check_name(call, patched)?;
    let name = call.target.name.as_deref().unwrap_or_default();
    let said = meta::text(patched, "uid");
    if said != uid {
        let resource = &call.target.resource;
        let error = FieldError::invalid("metadata.uid", said, "field is immutable");
        let errors = vec![error.clone(), error];
        return Err(ApiError::invalid(
            &resource.group,
            &resource.kind,
            name,
            errors,
        ));
    }
    Ok(())
}

/// Name and namespace must be those of the path.
fn check_name(call: &Call, patched: &Tree) -> Result<(), ApiError> {
    let name = call.target.name.as_deref().unwrap_or_default();
    let said = meta::text(patched, "name");
    if said.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if said != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = call.target.namespace.as_deref().unwrap_or_default();
    if call.target.resource.namespaced && meta::text(patched, "namespace") != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Tells of the first key of a configuration that stands twice as the request wants it.
fn check_keys(body: &[u8], options: &WriteOptions) -> Result<(), ApiError> {
    let Some((line, key)) = yaml_duplicate(body) else {
        return Ok(());
    };
    let twice = format!("line {line}: key {key:?} already set in map");
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => options.warnings.add(twice),
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal \
                 errors:\n  {twice}"
            )));
        }
    }
    Ok(())
}

/// The patch in the body of a request, and what stands in it twice.
pub(crate) fn read(call: &Call) -> Result<(Patch, Vec<String>), ApiError> {
    let resource = &call.target.resource;
    let ty = match (&resource.custom, call.target.sub.as_deref()) {
        (Some(_), _) => None,
        (None, Some("scale")) => builtin::kind("autoscaling", "v1", "Scale"),
        (None, _) => resource.ty,
    };
    match (media_type(&call.headers).as_str(), ty) {
        ("application/json-patch+json", _) => body(call, "json patch ", Patch::Json),
        ("application/merge-patch+json", _) => body(call, "", Patch::Merge),
        ("application/strategic-merge-patch+json", Some(ty)) => {
            body(call, "", |patch| Patch::Strategic(patch, ty))
        }
        _ if resource.custom.is_some() => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        _ => Err(ApiError::unknown_patch()),
    }
}

fn body(
    call: &Call,
    what: &str,
    patch: impl FnOnce(Value) -> Patch,
) -> Result<(Patch, Vec<String>), ApiError> {
    let (value, twice) = json::decode(&call.body).map_err(|error| {
        ApiError::bad_request(format!(
            "error decoding patch: {}",
            json_problem(&error, &call.body)
        ))
    })?;
    let told = |field: &String| format!("{what}duplicate field {field:?}");
    Ok((patch(value), twice.iter().map(told).collect()))
}

impl Patch {
    /// What is shown of a patch that made an object unreadable.
    fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch, _) => patch::go_text(patch),
            _ => patched.to_string(),
        }
    }

    pub(crate) fn apply(&self, value: &mut Value) -> Result<(), ApiError> {
        let result = match self {
            Self::Json(patch) => patch::json::apply(value, patch),
            Self::Merge(patch) => patch::merge::apply(value, patch.clone()),
            Self::Strategic(patch, ty) => patch::strategic::apply(value, patch.clone(), *ty),
        };
        result.map_err(|error| match error {
            PatchError::Malformed(why) => {
                ApiError::bad_request(format!("error decoding patch: {why}"))
            }
            PatchError::Unprocessable(_) => ApiError::rejected(),
            PatchError::TooLarge(why) => ApiError::too_large(why),
            PatchError::Unmergeable(why) => ApiError::new(500, "", why),
        })
    }
}
