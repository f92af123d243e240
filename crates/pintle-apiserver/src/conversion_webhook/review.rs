//! One conversion: builds the review, posts it, and verifies the response.

use serde_json::{Value, json};

use super::Converted;
use crate::{
    api::{Api, ApiError, write::validate::go_type},
    meta::{self, Tree},
    schema::field::aggregate,
    webhook::{Answer, CONVERSION_TIMEOUT, ClientConfig, Held, Sent},
};

impl Api {
    /// Converts objects, each paired with its current version, to another version in one review.
    /// Objects already in that version are not sent. The caller bounds the number and size of the
    /// objects.
    ///
    /// # Errors
    ///
    /// Fails with upstream's message if the webhook fails or returns anything other than the same
    /// objects in that version.
    pub(super) async fn convert(
        &self,
        converted: &Converted,
        mut objects: Vec<(String, Tree)>,
        to: &str,
    ) -> Result<Vec<Tree>, ApiError> {
        let different: Vec<usize> = objects
            .iter()
            .enumerate()
            .filter(|(_, (from, _))| from != to)
            .map(|(i, _)| i)
            .collect();
        if let Some((from, _)) = different.first().and_then(|i| objects.get(*i)) {
            let what = format!("conversion webhook for {from}, Kind={}", converted.kind);
            let sent: Vec<Value> = different
                .iter()
                .filter_map(|i| objects.get(*i))
                .map(|(from, tree)| typed(from, &converted.kind, tree))
                .collect();
            let count = sent.len();
            let new = self.ask(converted, sent, to).await;
            let (new, _held) = new.map_err(|why| failed(&format!("{what} failed: {why}")))?;
            if new.len() != count {
                return Err(failed(&format!(
                    "{what} returned {} objects, expected {count}",
                    new.len(),
                )));
            }
            for (at, (i, new)) in different.iter().zip(new).enumerate() {
                let Some((_, tree)) = objects.get_mut(*i) else {
                    continue;
                };
                *tree = accept(tree, new, to, &converted.kind)
                    .map_err(|why| failed(&format!("{what} {}", why.at(at, count))))?;
            }
        }
        Ok(objects.into_iter().map(|(_, tree)| tree).collect())
    }

    /// Calls the webhook and returns the converted objects.
    async fn ask(
        &self,
        converted: &Converted,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<(Vec<Value>, Held), String> {
        let version = converted
            .review_version
            .ok_or("no supported conversion review versions")?;
        let local = self.webhooks.converters.find(&converted.definition);
        let local = local.map(ClientConfig::local);
        let config = match &local {
            Some(local) => local,
            None => converted.client.as_ref().map_err(Clone::clone)?,
        };
        let uid = self.rng.uuid();
        let mut review = json!({"kind": "ConversionReview", "apiVersion": version,
            "request": {"uid": uid, "desiredAPIVersion": to}});
        review["request"]["objects"] = objects.into();
        let sent = Sent {
            review,
            timeout: CONVERSION_TIMEOUT,
            announced: CONVERSION_TIMEOUT,
            limits: &converted.limits,
        };
        let answer = self.webhooks.client.call(self, config, sent).await;
        let Answer { mut review, held } = answer.map_err(|error| error.to_string())?;
        verify(&uid, version, &review)?;
        match review["response"]["convertedObjects"].take() {
            Value::Array(objects) => Ok((objects, held)),
            _ => Ok((Vec::new(), held)),
        }
    }
}

fn failed(message: &str) -> ApiError {
    ApiError::new(500, "", message)
}

fn typed(api_version: &str, kind: &str, tree: &Tree) -> Value {
    let mut tree = tree.clone();
    tree.insert("apiVersion".into(), api_version.into());
    tree.insert("kind".into(), kind.into());
    Value::Object(tree)
}

/// Checks that a response matches the request. The error is upstream's message.
fn verify(uid: &str, version: &str, review: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let response = &review["response"];
    if version == "apiextensions.k8s.io/v1" {
        let (found, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if (found.as_str(), kind.as_str()) != (version, "ConversionReview") {
            let found = if found.is_empty() { "/" } else { &found };
            return Err(format!(
                "expected webhook response of {version}, Kind=ConversionReview, got {found}, Kind={kind}"
            ));
        }
    }
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let found = text(&response["uid"]);
    if version == "apiextensions.k8s.io/v1" && found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let status = text(&response["result"]["status"]);
    if status == "Success" {
        return Ok(());
    }
    let message = text(&response["result"]["message"]);
    if message.is_empty() {
        return Err(format!(
            "response.result.status was '{status}', not 'Success'"
        ));
    }
    Err(message)
}

/// Why a converted object is not accepted.
enum Refused {
    /// It has the wrong version or kind.
    Type(String),
    /// Its identity changed.
    Object(String),
    /// Its metadata is invalid.
    Metadata(String),
}

impl Refused {
    /// Formats the error for the object at `index` of `count`.
    fn at(self, index: usize, count: usize) -> String {
        match (self, count) {
            (Self::Type(why), 1) => format!("returned invalid object at index 0: {why}"),
            (Self::Object(why), 1) => format!("returned invalid object: {why}"),
            (Self::Metadata(why), 1) => format!("returned invalid metadata: {why}"),
            (Self::Type(why) | Self::Object(why), _) => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            (Self::Metadata(why), _) => {
                format!("returned invalid metadata in object at index {index}: {why}")
            }
        }
    }
}

/// Checks a converted object against the original, and restores the metadata of the original except
/// for labels and annotations, which a conversion may change.
fn accept(original: &Tree, converted: Value, to: &str, kind: &str) -> Result<Tree, Refused> {
    let Value::Object(mut converted) = converted else {
        return Err(Refused::Type("an object is expected".to_owned()));
    };
    let text = |field: &str| {
        let value = converted.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let (found, found_kind) = (text("apiVersion"), text("kind"));
    if found != to {
        return Err(Refused::Type(format!(
            "invalid groupVersion (expected {to}, received {found})"
        )));
    }
    if found_kind != kind {
        return Err(Refused::Type(format!(
            "invalid kind (expected {kind}, received {found_kind})"
        )));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (meta::text(original, field), meta::text(&converted, field));
        if before != after {
            return Err(Refused::Object(format!(
                "must have the same {name}: {before} != {after}"
            )));
        }
    }
    let metadata = restored(original, converted.get("metadata")).map_err(Refused::Metadata)?;
    converted.remove("apiVersion");
    converted.remove("kind");
    converted.insert("metadata".into(), Value::Object(metadata));
    Ok(converted)
}

fn restored(original: &Tree, returned: Option<&Value>) -> Result<Tree, String> {
    let returned = returned.ok_or("missing metadata in converted object")?;
    let Some(returned) = returned.as_object() else {
        let found = go_type(returned);
        return Err(format!(
            "invalid metadata of type {found} in converted object"
        ));
    };
    let mut metadata = match original.get("metadata") {
        Some(Value::Object(metadata)) => metadata.clone(),
        _ => Tree::new(),
    };
    for field in ["labels", "annotations"] {
        let new = match returned.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(new)) => new,
            Some(other) => {
                let found = go_type(other);
                return Err(format!(
                    "invalid metadata.{field} of type {found} in converted object"
                ));
            }
        };
        if let Some((name, value)) = new.iter().find(|(_, value)| !value.is_string()) {
            let found = go_type(value);
            return Err(format!(
                "metadata.{field}[{name}] must be a string, but is {found} in converted object"
            ));
        }
        // Metadata that the conversion left alone is not checked again.
        if metadata.get(field).and_then(Value::as_object) == Some(new) {
            continue;
        }
        // Upstream names the annotations' field in the singular here.
        let errors = match field {
            "labels" => meta::check_labels(new, "metadata.labels"),
            _ => meta::check_annotations(new, "metadata.annotation"),
        };
        if !errors.is_empty() {
            return Err(aggregate(&errors));
        }
        metadata.insert(field.to_owned(), Value::Object(new.clone()));
    }
    Ok(metadata)
}
