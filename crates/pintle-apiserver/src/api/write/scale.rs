//! The scale subresource: reads and writes the replica counts of any kind as a `Scale`.

use http::Response;
use serde_json::{Value, json};

use super::{Attributes, Managers, Part, Projection, Written, apply::configuration, patch::Patch};
use crate::{
    admission::Exchanged,
    api::{
        Answer, Api, ApiError, Body, Call,
        request::negotiate::{Form, RowObject},
        response::{self, printers},
    },
    meta::{self, Tree},
    patch::apply,
    registry::Resource,
    schema::field::FieldError,
};

/// The scale of an object, as admission sees it.
static SCALE: Projection = Projection {
    kind: Exchanged {
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
    },
    show: |resource, object| match scale(resource, object) {
        Value::Object(mut scale) => {
            scale.remove("kind");
            scale.remove("apiVersion");
            scale
        }
        _ => Tree::new(),
    },
    merge: |resource, object, scale| rescaled(resource, object, &Value::Object(scale.clone())),
};

/// JSON pointers to the fields of a kind that its scale shows.
struct Paths {
    desired: String,
    current: String,
    selector: Option<String>,
}

impl Paths {
    fn of(resource: &Resource) -> Self {
        let Some(custom) = &resource.custom else {
            return Self {
                desired: "/spec/replicas".into(),
                current: "/status/replicas".into(),
                selector: Some("/spec/selector".into()),
            };
        };
        let scale = &custom.version["subresources"]["scale"];
        let pointer = |name: &str| {
            let path = scale[name].as_str().filter(|path| !path.is_empty())?;
            Some(path.replace('.', "/"))
        };
        Self {
            desired: pointer("specReplicasPath").unwrap_or_default(),
            current: pointer("statusReplicasPath").unwrap_or_default(),
            selector: pointer("labelSelectorPath"),
        }
    }
}

impl Api {
    /// Handles GET of a scale.
    pub(crate) async fn get_scale(&self, call: &Call) -> Answer {
        let object = self
            .store
            .get(call.collection()?, &call.key())
            .ok_or_else(|| call.missing())?;
        let resource = &call.target.resource;
        let tree = self.read_tree(resource, &object).await?;
        let scale = scale(resource, &tree);
        Ok(self.scale_answer(call, &scale))
    }

    /// Handles PUT and PATCH of a scale.
    pub(crate) async fn change_scale(&self, call: &Call, patch: Option<&Patch>) -> Answer {
        let options = call.write_options(if patch.is_some() {
            "PatchOptions"
        } else {
            "UpdateOptions"
        })?;
        let resource = &call.target.resource;
        let sent = match patch {
            Some(_) => Value::Null,
            None => call.decoded(("autoscaling", "v1", "Scale"))?,
        };
        let mut rescale = |stored: &Tree| {
            let mut wanted = scale(resource, stored);
            match patch {
                Some(patch) => patch.apply(&mut wanted)?,
                None => wanted = sent.clone(),
            }
            rescaled(resource, stored.clone(), &wanted)
        };
        let write = Attributes {
            projection: Some(&SCALE),
            ..call.update_of(Part::Main, &options, Managers::Record)
        };
        let written = self.change(&write, &mut rescale).await?;
        self.scaled(call, &written).await
    }

    /// Handles a server-side apply of a scale.
    pub(crate) async fn apply_scale(&self, call: &Call) -> Answer {
        let options = call.write_options("PatchOptions")?;
        let config = configuration(call, &options)?;
        let resource = &call.target.resource;
        let paths = Paths::of(resource);
        let path: Vec<&str> = parts(&paths.desired).collect();
        let mut rescale = |stored: &Tree| {
            let mut object = Value::Object(stored.clone());
            let mut live = scale(resource, stored);
            apply::scale::managers_to_scale(&object, &path, &mut live);
            let applied = self.apply_scale_config(call, &options, &live, &config)?;
            if resource.custom.is_some()
                && object.pointer(&paths.desired).is_none()
                && applied.pointer("/spec/replicas").is_none()
            {
                let field = paths.desired.replace('/', ".");
                let why = format!("the spec replicas field {field:?} cannot be empty");
                return Err(ApiError::bad_request(why));
            }
            apply::scale::managers_from_scale(
                &mut object,
                &path,
                &resource.api_version(),
                &applied,
            );
            let Value::Object(object) = object else {
                return Ok(stored.clone());
            };
            rescaled(resource, object, &applied)
        };
        let write = Attributes {
            projection: Some(&SCALE),
            ..call.update_of(Part::Main, &options, Managers::Keep)
        };
        let written = self.change(&write, &mut rescale).await?;
        self.scaled(call, &written).await
    }

    async fn scaled(&self, call: &Call, written: &Written) -> Answer {
        let resource = &call.target.resource;
        let object = written.object(call.key());
        let tree = self.read_tree(resource, &object).await?;
        Ok(self.scale_answer(call, &scale(resource, &tree)))
    }

    fn scale_answer(&self, call: &Call, scale: &Value) -> Response<Body> {
        let (form, value) = match call.form {
            Form::Table(version, row) => {
                let object = match row {
                    RowObject::None => Value::Null,
                    RowObject::Object => scale.clone(),
                    RowObject::Metadata => json!({"kind": "PartialObjectMetadata",
                        "apiVersion": format!("meta.k8s.io/{version}"),
                        "metadata": scale["metadata"]}),
                };
                let (columns, cells) = printers::scale(scale, &self.clock);
                let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
                    "columnDefinitions": columns, "rows": [{"cells": cells, "object": object}]});
                (Form::Json, table)
            }
            Form::Yaml => (Form::Yaml, scale.clone()),
            _ => (Form::Json, scale.clone()),
        };
        response::formed(200, form, response::written(&value).into_bytes())
    }
}

/// Returns the scale of an object.
fn scale(resource: &Resource, object: &Tree) -> Value {
    let paths = Paths::of(resource);
    let object = Value::Object(object.clone());
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.current)});
    let selector = paths
        .selector
        .and_then(|pointer| selector_text(object.pointer(&pointer)?));
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    match number(&paths.desired) {
        0 => {}
        wanted => spec["replicas"] = wanted.into(),
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": spec, "status": status})
}

/// Formats a selector as a string.
pub(crate) fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.to_owned());
    }
    let map = selector.as_object()?;
    let plain = !map.contains_key("matchLabels") && !map.contains_key("matchExpressions");
    let labels = if plain {
        selector
    } else {
        &selector["matchLabels"]
    };
    let mut terms: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    Some(terms.join(","))
}

/// Returns the object with the replica count, `resourceVersion` and UID of `scale`.
fn rescaled(resource: &Resource, mut object: Tree, scale: &Value) -> Result<Tree, ApiError> {
    let name = meta::text(&object, "name").to_owned();
    let found = scale["metadata"]["name"].as_str().unwrap_or_default();
    if !found.is_empty() && found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let wanted = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if wanted < 0 {
        let why = "must be greater than or equal to 0";
        let errors = vec![FieldError::invalid("spec.replicas", wanted, why)];
        return Err(ApiError::invalid("autoscaling", "Scale", &name, errors));
    }
    let metadata = meta::metadata(&mut object);
    for field in ["resourceVersion", "uid"] {
        match scale["metadata"].get(field) {
            Some(value) if value.is_string() => metadata.insert(field.into(), value.clone()),
            _ => metadata.remove(field),
        };
    }
    set(&mut object, &Paths::of(resource).desired, wanted.into());
    Ok(object)
}

/// Splits a JSON pointer into its segments.
fn parts(pointer: &str) -> impl Iterator<Item = &str> {
    pointer.split('/').filter(|part| !part.is_empty())
}

/// Sets a value and creates missing objects on its path.
fn set(object: &mut Tree, pointer: &str, value: Value) {
    let mut parts = parts(pointer).peekable();
    let mut at = object;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            at.insert(part.to_owned(), value);
            return;
        }
        let next = at.entry(part).or_insert_with(|| json!({}));
        if !next.is_object() {
            *next = json!({});
        }
        match next {
            Value::Object(map) => at = map,
            _ => return,
        }
    }
}
