//! Evictions: deletions that honour the Pod's disruption budget.
//!
//! The disruption loop of a cluster computes the budget's status. An eviction decrements
//! the allowed disruptions and records the Pod there, so that concurrent evictions cannot overspend
//! the budget before the loop has seen the deletion.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    admission::Exchanged,
    api::{
        Answer, Api, ApiError, Call,
        request::options::WriteOptions,
        response::{self, error::Cause},
        write::{
            Attributes, Managers, Operation, Part, Unstored, Written,
            delete_options::{DeleteOptions, check_preconditions},
            scale::selector_text,
            set_namespace, unstored_object, wipe_system_metadata,
        },
    },
    meta::{self, LabelSelector, Tree},
    registry::Resource,
    store::{Object, namespace_bounds},
};

/// When to retry an eviction whose budget has not been observed yet, in seconds.
const RETRY_AFTER: u32 = 10;
/// The maximum number of unconfirmed evictions a budget records.
const MAX_DISRUPTED: usize = 2000;
/// The condition of a budget that says whether it allows disruptions.
const ALLOWED: &str = "DisruptionAllowed";
/// The condition of a Pod that is deleted because of a disruption.
const TARGET: &str = "DisruptionTarget";

/// The kind that the subresource exchanges.
const EVICTION: Exchanged<'_> = Exchanged {
    group: "policy",
    version: "v1",
    kind: "Eviction",
};

/// How the disruption budget affects an eviction.
enum Verdict {
    /// No budget applies, or the eviction was charged to it.
    Evict,
    /// The Pod is unhealthy, so evicting it costs the budget nothing as long as it stays unhealthy.
    EvictUnhealthy { budget: String },
}

impl Api {
    /// Handles POST of an eviction: deletes the Pod if its disruption budget allows it.
    pub(crate) async fn evict(self: &Arc<Self>, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let mut eviction = unstored_object(call.decoded(("policy", "v1", "Eviction"))?);
        wipe_system_metadata(&mut eviction);
        let namespace = call.target.namespace.as_deref();
        set_namespace(&call.target.resource, namespace, &mut eviction)?;
        let admission = Unstored {
            call,
            operation: Operation::Create,
            kind: EVICTION,
            options: &options,
        };
        self.mutate_unstored(&admission, &mut eviction).await?;
        check_name(call, &eviction)?;
        self.validate_unstored(&admission, &eviction).await?;
        let mut delete = DeleteOptions::read(&Value::Object(eviction)["deleteOptions"])?;
        delete.admitted = true;
        delete.dry_run |= options.dry_run;
        let pod = self
            .store
            .get(call.collection()?, &call.key())
            .ok_or_else(|| call.missing())?;
        let tree = Value::Object(pod.decode());
        let not_running = matches!(
            tree["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        );
        let verdict = if not_running || pod.header().deleting {
            Verdict::Evict
        } else {
            self.consult_budget(call, &pod, is_ready(&tree), delete.dry_run)
                .await?
        };
        if let Verdict::EvictUnhealthy { budget } = &verdict
            && delete.resource_version.is_none()
        {
            delete.resource_version = Some(pod.revision.to_string());
            let deleted = self.mark_and_delete(call, &mut delete).await;
            // The Pod changed since it was found unhealthy, so the budget may need it now.
            return match deleted {
                Err(error) if error.code == 409 => Err(being_processed(budget)),
                deleted => deleted,
            };
        }
        self.mark_and_delete(call, &mut delete).await
    }

    /// Adds the condition that explains the deletion, then deletes the Pod.
    async fn mark_and_delete(self: &Arc<Self>, call: &Call, delete: &mut DeleteOptions) -> Answer {
        if !delete.dry_run {
            let now = self.clock.stamp();
            let current = self.store.get(call.collection()?, &call.key());
            let current = current.ok_or_else(|| call.missing())?;
            check_preconditions(&call.target.resource, &current, delete)?;
            let expected = delete.resource_version.clone();
            let mut mark = |pod: &Tree| {
                let mut pod = pod.clone();
                mark_target(&mut pod, &now);
                if let Some(version) = &expected {
                    meta::metadata(&mut pod).insert("resourceVersion".into(), (**version).into());
                }
                Ok(pod)
            };
            let options = WriteOptions::default();
            // Admission has already seen the eviction, so this write skips it.
            let write = Attributes {
                user: None,
                ..call.update_of(Part::Status, &options, Managers::Keep)
            };
            let written = self.change(&write, &mut mark).await?;
            if let (Some(version), Written::Stored(pod)) = (&mut delete.resource_version, &written)
            {
                *version = pod.revision.to_string();
            }
        }
        self.delete_object(call, &call.key(), delete).await?;
        Ok(response::created())
    }

    /// Returns the resource of budgets, and the budgets in the namespace that select the Pod.
    fn budgets(&self, call: &Call, pod: &Object) -> Option<(Arc<Resource>, Vec<Tree>)> {
        let namespace = call.target.namespace.as_deref().unwrap_or_default();
        let catalog = self.registry.catalog();
        let budgets = catalog.find("policy", "v1", "poddisruptionbudgets")?;
        let snapshot = self.store.snapshot(budgets.collection?).ok()?;
        let bounds = namespace_bounds(namespace);
        let range = crate::store::key_range(Some(&bounds), None);
        let labels = &pod.header().labels;
        let matching = snapshot
            .objects
            .range::<str, _>(range)
            .map(|(_, budget)| budget.decode())
            .filter(|budget| {
                let spec = budget.get("spec").unwrap_or(&Value::Null);
                selects(&spec["selector"], labels)
            })
            .collect();
        Some((Arc::clone(budgets), matching))
    }

    /// Charges an eviction to the budget of the Pod, or returns why the budget denies it.
    async fn consult_budget(
        &self,
        call: &Call,
        pod: &Object,
        is_ready: bool,
        dry_run: bool,
    ) -> Result<Verdict, ApiError> {
        let Some((budgets, matching)) = self.budgets(call, pod) else {
            return Ok(Verdict::Evict);
        };
        let budget = match &matching[..] {
            [] => return Ok(Verdict::Evict),
            [budget] => budget,
            _ => {
                return Err(ApiError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = meta::text(budget, "name").to_owned();
        if !is_ready && ignores_unhealthy(budget) {
            return Ok(Verdict::EvictUnhealthy { budget: name });
        }
        let mut budget_call = call.clone();
        budget_call.target.resource = budgets;
        budget_call.target.name = Some(name.clone());
        let options = WriteOptions {
            dry_run,
            ..WriteOptions::default()
        };
        let pod = call.target.name.clone().unwrap_or_default();
        let now = self.clock.stamp();
        let mut take_one = |budget: &Tree| {
            may_disrupt(budget, &name)?;
            let mut budget = budget.clone();
            disrupt(&mut budget, &pod, &now);
            Ok(budget)
        };
        let write = Attributes {
            user: None,
            ..budget_call.update_of(Part::Status, &options, Managers::Keep)
        };
        self.change(&write, &mut take_one).await?;
        Ok(Verdict::Evict)
    }
}

/// Checks that an eviction is for the Pod in the path.
fn check_name(call: &Call, eviction: &Tree) -> Result<(), ApiError> {
    if Some(meta::text(eviction, "name")) == call.target.name.as_deref() {
        return Ok(());
    }
    let why = "name in URL does not match name in Eviction object";
    Err(ApiError::bad_request(why))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

/// Returns true if the budget does not count evictions of unhealthy Pods.
fn ignores_unhealthy(budget: &Tree) -> bool {
    let part = |name: &str| budget.get(name).unwrap_or(&Value::Null);
    if part("spec")["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
        return true;
    }
    let number = |field: &str| part("status")[field].as_i64().unwrap_or(0);
    number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy")
}

/// Adds the condition that says the Pod was evicted.
fn mark_target(pod: &mut Tree, now: &str) {
    let status = pod.entry("status").or_insert_with(|| json!({}));
    let mut condition = json!({"type": TARGET, "status": "True", "lastProbeTime": null,
        "lastTransitionTime": now, "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting"});
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|old| old["type"] == TARGET) {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].take();
            }
            *old = condition;
        }
        None => list.push(condition),
    }
}

fn refused(why: String) -> ApiError {
    ApiError::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        Cause::raw("DisruptionBudget", "", why),
    )
}

/// Returns the error for a budget whose status does not describe its current state.
fn being_processed(name: &str) -> ApiError {
    refused(format!(
        "The disruption budget {name} is still being processed by the server."
    ))
    .retry_after(RETRY_AFTER)
}

/// Checks that a budget allows one more disruption.
fn may_disrupt(budget: &Tree, name: &str) -> Result<(), ApiError> {
    let status = budget.get("status").unwrap_or(&Value::Null);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let forbidden = |why: &str| {
        Err(ApiError::forbidden(
            "policy",
            "poddisruptionbudget",
            name,
            why,
        ))
    };
    if number("observedGeneration") < meta::generation(budget) {
        return Err(being_processed(name));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"]
        .as_object()
        .is_some_and(|pods| pods.len() > MAX_DISRUPTED)
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
    let stated = conditions.next().and_then(|condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let says = text("status") == "False" && !text("message").is_empty();
        says.then(|| (text("reason"), text("message")))
    });
    let no = format!("The disruption budget {name} does not allow evicting pods currently");
    Err(refused(match stated {
        // The counts are meaningless if the budget could not be computed.
        Some(("SyncFailed", message)) => format!("{no} because it failed sync: {message}"),
        _ if healthy <= wanted => format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        ),
        Some((reason, message)) => format!("{no} ({reason}): {message}"),
        None => no,
    }))
}

/// Charges one disruption to a budget and records the evicted Pod.
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

/// Returns true if a label selector selects these labels. An empty selector selects everything.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    if !selector.is_object() {
        return false;
    }
    let text = selector_text(selector).unwrap_or_default();
    LabelSelector::parse(&text).is_ok_and(|selector| selector.matches(labels))
}
