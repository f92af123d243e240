//! Bindings: assign a Pod to a node.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Kind;
use crate::{
    admission::Exchanged,
    api::{
        Answer, Api, ApiError, Call, WriteOptions, response,
        write::{Attributes, Managers, Operation, Part, Unstored, set_namespace, unstored_object},
    },
    meta::{self, Tree},
    schema::field::FieldError,
};

/// The kind of a binding.
const BINDING: Exchanged<'_> = Exchanged {
    group: "",
    version: "v1",
    kind: "Binding",
};

/// `bindings`: never stored, the same as POST of `pods/binding`.
#[derive(Debug)]
pub(super) struct Bindings;

impl Kind for Bindings {
    fn create_unstored<'a>(&'a self, api: &'a Api, call: &'a Call) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let catalog = api.registry.catalog();
            let pods = catalog
                .find("", "v1", "pods")
                .ok_or_else(ApiError::unknown_resource)?;
            let options = call.write_options("CreateOptions")?;
            let mut call = call.clone();
            let mut binding = unstored_object(call.decoded(("", "v1", "Binding"))?);
            let namespace = call.target.namespace.as_deref();
            set_namespace(pods, namespace, &mut binding)?;
            call.target.name = Some(meta::text(&binding, "name").to_owned());
            api.admit_binding(&call, &options, &mut binding).await?;
            call.target.resource = pods.clone();
            api.assign(&call, &options, &Value::Object(binding)).await
        })
    }
}

impl Api {
    /// Handles POST of a binding.
    pub(crate) async fn bind(&self, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let mut binding = unstored_object(call.decoded(("", "v1", "Binding"))?);
        let namespace = call.target.namespace.as_deref();
        set_namespace(&call.target.resource, namespace, &mut binding)?;
        self.admit_binding(call, &options, &mut binding).await?;
        self.assign(call, &options, &Value::Object(binding)).await
    }

    async fn admit_binding(
        &self,
        call: &Call,
        options: &WriteOptions,
        binding: &mut Tree,
    ) -> Result<(), ApiError> {
        let admission = Unstored {
            call,
            operation: Operation::Create,
            kind: BINDING,
            options,
        };
        self.admit_unstored(&admission, binding).await
    }

    /// Assigns the Pod of an admitted binding.
    async fn assign(&self, call: &Call, options: &WriteOptions, binding: &Value) -> Answer {
        if binding["metadata"]["name"].as_str() != call.target.name.as_deref() {
            let why = "name in URL does not match name in Binding object";
            return Err(ApiError::bad_request(why));
        }
        let kind = binding["target"]["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "" | "Node") {
            let why = format!(
                "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
            );
            return Err(ApiError::new(500, "", why));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            let errors = vec![FieldError::required("target.name", "")];
            return Err(ApiError::invalid("", "Binding", "", errors));
        }
        let now = self.clock.stamp();
        let mut bind = |pod: &Tree| {
            check_binding(call, pod, binding)?;
            Ok(bound(pod.clone(), binding, &now))
        };
        let write = Attributes {
            user: None,
            ..call.update_of(Part::Everything, options, Managers::Keep)
        };
        self.change(&write, &mut bind).await?;
        Ok(response::created())
    }
}

/// Checks the preconditions of a binding and whether the Pod can be bound.
fn check_binding(call: &Call, pod: &Tree, binding: &Value) -> Result<(), ApiError> {
    let name = meta::text(pod, "name");
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = binding["metadata"][field].as_str().unwrap_or_default();
        let found = meta::text(pod, field);
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: {label} in precondition: {wanted}, \
                 {label} in object meta: {found}",
                call.target.resource.storage_path(&call.key())
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
    }
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let assigned = spec["nodeName"].as_str().unwrap_or_default();
    let gates = spec["schedulingGates"].as_array();
    let why = if meta::is_deleting(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !assigned.is_empty() {
        format!("pod {name} is already assigned to node {assigned:?}")
    } else if gates.is_some_and(|gates| !gates.is_empty()) {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(ApiError::conflict("", "pods/binding", name, &why))
}

/// Assigns the Pod to the node of the binding and copies the binding's labels and annotations.
fn bound(mut pod: Tree, binding: &Value, now: &str) -> Tree {
    for field in ["labels", "annotations"] {
        let Some(added) = binding["metadata"][field].as_object() else {
            continue;
        };
        let metadata = meta::metadata(&mut pod);
        let map = metadata.entry(field).or_insert_with(|| json!({}));
        for (key, value) in added {
            map[key] = value.clone();
        }
    }
    if let Some(Value::Object(spec)) = pod.get_mut("spec") {
        spec.insert("nodeName".into(), binding["target"]["name"].clone());
    }
    let status = pod.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        status.remove("nominatedNodeName");
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": now});
    match status["conditions"].as_array_mut() {
        Some(list) => {
            list.retain(|condition| condition["type"] != "PodScheduled");
            list.push(condition);
        }
        None => status["conditions"] = json!([condition]),
    }
    pod
}
