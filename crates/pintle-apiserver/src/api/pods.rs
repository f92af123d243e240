//! What only pods can be asked: to run on a node, and to leave it.

use serde_json::{Value, json};

use super::{
    Answer, Api, Call,
    delete::{self, DeleteOptions},
    error::{ApiError, Cause},
    managers::Mark,
    options::WriteOptions,
    respond,
    strategy::Part,
};
use crate::{
    meta::{self, LabelSelector, Tree},
    store::namespace_bounds,
};
use std::sync::Arc;

/// The seconds after which an eviction may be tried again while its budget is being worked out.
const EVICTION_RETRY: u32 = 10;
/// How many evictions a budget remembers that nobody confirmed.
const MOST_DISRUPTED: usize = 2000;
/// The condition that tells whether a budget has room.
const ALLOWED: &str = "DisruptionAllowed";

impl Api {
    /// Answers POST of a binding: the pod runs on the node it names.
    pub(crate) fn bind(&self, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let binding = call.decoded(("", "v1", "Binding"))?;
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
            let errors = vec![crate::schema::field::FieldError::required(
                "target.name",
                "",
            )];
            return Err(ApiError::invalid("", "Binding", "", errors));
        }
        let now = self.clock.stamp();
        let mut change = |pod: &Tree| {
            check_binding(call, pod, &binding)?;
            Ok(bound(pod.clone(), &binding, &now))
        };
        self.change(call, Part::Everything, &options, Mark::Done, &mut change)?;
        Ok(respond::json(201, &delete::done()))
    }

    /// Answers POST of an eviction: the pod is deleted if its disruption budget allows.
    pub(crate) fn evict(self: &Arc<Self>, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let eviction = call.decoded(("policy", "v1", "Eviction"))?;
        let mut delete = DeleteOptions::read(&eviction["deleteOptions"])?;
        delete.dry_run |= options.dry_run;
        let pod = self
            .store
            .get(call.table()?, &call.key())
            .ok_or_else(|| call.missing())?;
        let tree = Value::Object(pod.decode());
        let over = matches!(
            tree["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        );
        if !over && !pod.header().deleting {
            self.take_disruption(call, &pod.header().labels, delete.dry_run)?;
        }
        self.delete_object(&call.target.resource, &call.key(), &delete)?;
        Ok(respond::json(201, &delete::done()))
    }

    /// Counts one disruption against the budget of a pod with these labels.
    fn take_disruption(
        &self,
        call: &Call,
        labels: &std::collections::BTreeMap<String, String>,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let namespace = call.target.namespace.as_deref().unwrap_or_default();
        let catalog = self.registry.catalog();
        let Some(budgets) = catalog.find("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let Some(table) = budgets.table else {
            return Ok(());
        };
        let Ok(snapshot) = self.store.snapshot(table) else {
            return Ok(());
        };
        let bounds = namespace_bounds(namespace);
        let range = crate::store::key_range(Some(&bounds), None);
        let matching: Vec<Arc<str>> = snapshot
            .objects
            .range::<str, _>(range)
            .filter(|(_, budget)| {
                selects(&Value::Object(budget.decode())["spec"]["selector"], labels)
            })
            .map(|(key, _)| Arc::clone(key))
            .collect();
        let name = match &matching[..] {
            [] => return Ok(()),
            [key] => key.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => {
                return Err(ApiError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let mut budget_call = call.clone();
        budget_call.target.resource = Arc::clone(budgets);
        budget_call.target.name = Some(name.clone());
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let pod = call.target.name.clone().unwrap_or_default();
        let now = self.clock.stamp();
        let mut change = |budget: &Tree| {
            may_disrupt(budget, &name)?;
            let mut budget = budget.clone();
            disrupt(&mut budget, &pod, &now);
            Ok(budget)
        };
        self.change(
            &budget_call,
            Part::Status,
            &options,
            Mark::Done,
            &mut change,
        )?;
        Ok(())
    }
}

/// Checks the preconditions of a binding and whether the Pod may be bound.
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

/// Whether a budget has room for one disruption more.
fn may_disrupt(budget: &Tree, name: &str) -> Result<(), ApiError> {
    let status = budget.get("status").unwrap_or(&Value::Null);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let refused = |why: String| {
        ApiError::too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            Cause::raw("DisruptionBudget", "", why),
        )
    };
    let forbidden = |why: &str| {
        Err(ApiError::forbidden(
            "policy",
            "poddisruptionbudget",
            name,
            why,
        ))
    };
    if number("observedGeneration") < meta::generation(budget) {
        let why = "is still being processed by the server.";
        let error = refused(format!("The disruption budget {name} {why}"));
        return Err(error.retry_after(EVICTION_RETRY));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"]
        .as_object()
        .is_some_and(|pods| pods.len() > MOST_DISRUPTED)
    {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed > 0 {
        return Ok(());
    }
    let (wanted, healthy) = (number("desiredHealthy"), number("currentHealthy"));
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|condition| condition["type"] == ALLOWED);
    let told = conditions.next().and_then(|condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let says = text("status") == "False" && !text("message").is_empty();
        says.then(|| (text("reason"), text("message")))
    });
    let no = format!("The disruption budget {name} does not allow evicting pods currently");
    Err(refused(match told {
        // The numbers of a budget that could not be worked out say nothing.
        Some(("SyncFailed", message)) => format!("{no} because it failed sync: {message}"),
        _ if healthy <= wanted => format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        ),
        Some((reason, message)) => format!("{no} ({reason}): {message}"),
        None => no,
    }))
}

/// Takes one disruption from a budget, for a pod that is about to go.
fn disrupt(budget: &mut Tree, pod: &str, now: &str) {
    let status = budget.entry("status").or_insert_with(|| json!({}));
    let left = status["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
    status["disruptionsAllowed"] = left.into();
    status["disruptedPods"][pod] = now.into();
    if left > 0 {
        return;
    }
    let mut condition = json!({"type": ALLOWED, "status": "False", "reason": "InsufficientPods",
        "message": "", "lastTransitionTime": now,
        "observedGeneration": status["observedGeneration"]});
    let list = match &mut status["conditions"] {
        Value::Array(list) => list,
        other => {
            *other = json!([]);
            match other {
                Value::Array(list) => list,
                _ => return,
            }
        }
    };
    match list.iter_mut().find(|old| old["type"] == ALLOWED) {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => list.push(condition),
    }
}

/// Whether a label selector object selects these labels; an empty one selects all.
fn selects(selector: &Value, labels: &std::collections::BTreeMap<String, String>) -> bool {
    if !selector.is_object() {
        return false;
    }
    let text = super::scale::selector_text(selector).unwrap_or_default();
    LabelSelector::parse(&text).is_ok_and(|selector| selector.matches(labels))
}
