//! Evicting a pod: a deletion that honours the pod's disruption budget.
//!
//! The budget's status is computed by the disruption loop of a cluster. An eviction takes one
//! disruption off it and notes the pod there, so that the next eviction counts on one pod less even
//! before the loop has seen the deletion.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{
    Answer, Api, Call,
    request::options::WriteOptions,
    response,
    response::error::{ApiError, Cause},
    write::create::Written,
    write::delete::{self, DeleteOptions},
    write::managers::Mark,
    write::prepare::Part,
};
use crate::{
    meta::{self, LabelSelector, Tree},
    registry::Resource,
    store::{Object, namespace_bounds},
};

/// The seconds after which an eviction may be tried again while its budget is being worked out.
const EVICTION_RETRY: u32 = 10;
/// How many evictions a budget remembers that nobody confirmed.
const MOST_DISRUPTED: usize = 2000;
/// The condition that tells whether a budget has room.
const ALLOWED: &str = "DisruptionAllowed";
/// The condition of a pod that is about to be deleted because of a disruption.
const TARGET: &str = "DisruptionTarget";

/// What the budget of a pod says to its eviction.
enum Verdict {
    /// It has none, or one disruption was taken off it.
    Evict,
    /// The pod is not healthy, so the budget loses nothing: as long as it stays so.
    EvictUnhealthy { budget: String },
}

impl Api {
    /// Answers POST of an eviction: the pod is deleted if its disruption budget allows.
    pub(crate) fn evict(self: &Arc<Self>, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let eviction = call.decoded(("policy", "v1", "Eviction"))?;
        let mut delete = DeleteOptions::read(&eviction["deleteOptions"])?;
        delete.dry_run |= options.dry_run;
        let pod = self
            .store
            .get(call.collection()?, &call.key())
            .ok_or_else(|| call.missing())?;
        let tree = Value::Object(pod.decode());
        let over = matches!(
            tree["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        );
        let verdict = if over || pod.header().deleting {
            Verdict::Evict
        } else {
            self.consult_budget(call, &pod, is_ready(&tree), delete.dry_run)?
        };
        if let Verdict::EvictUnhealthy { budget } = &verdict
            && delete.version.is_none()
        {
            delete.version = Some(pod.revision.to_string());
            let deleted = self.mark_and_delete(call, &mut delete);
            // It changed since it was found unhealthy: perhaps the budget needs it now.
            return match deleted {
                Err(error) if error.code == 409 => Err(being_processed(budget)),
                deleted => deleted,
            };
        }
        self.mark_and_delete(call, &mut delete)
    }

    /// Says in the pod's status why it goes, and deletes it.
    fn mark_and_delete(self: &Arc<Self>, call: &Call, delete: &mut DeleteOptions) -> Answer {
        if !delete.dry_run {
            let now = self.clock.stamp();
            let resource = &call.target.resource;
            let collection = call.collection()?;
            let current = self.store.get(collection, &call.key());
            let current = current.ok_or_else(|| call.missing())?;
            delete::check_preconditions(resource, &current, delete)?;
            let mut change = |pod: &Tree| {
                let mut pod = pod.clone();
                mark_target(&mut pod, &now);
                if let Some(version) = &delete.version {
                    meta::metadata(&mut pod).insert("resourceVersion".into(), (**version).into());
                }
                Ok(pod)
            };
            let options = WriteOptions::default();
            let written = self.change(call, Part::Status, &options, Mark::Done, &mut change)?;
            if let (Some(version), Written::Stored(pod)) = (&mut delete.version, &written) {
                *version = pod.revision.to_string();
            }
        }
        self.delete_object(&call.target.resource, &call.key(), delete)?;
        Ok(response::json(201, &delete::done()))
    }

    /// The budgets of the namespace that select the pod, and their resource.
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

    /// Asks the budget of a pod for its eviction, and counts it there.
    fn consult_budget(
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
        if !is_ready && spares_unhealthy(budget) {
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
        Ok(Verdict::Evict)
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

/// Whether a budget lets pods go that are not healthy, without counting them.
fn spares_unhealthy(budget: &Tree) -> bool {
    let part = |name: &str| budget.get(name).unwrap_or(&Value::Null);
    if part("spec")["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
        return true;
    }
    let number = |field: &str| part("status")[field].as_i64().unwrap_or(0);
    number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy")
}

/// The condition that says a pod goes because it was evicted.
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

/// The status of the budget is not about its present state.
fn being_processed(name: &str) -> ApiError {
    refused(format!(
        "The disruption budget {name} is still being processed by the server."
    ))
    .retry_after(EVICTION_RETRY)
}

/// Whether a budget has room for one disruption more.
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
    let text = crate::api::write::scale::selector_text(selector).unwrap_or_default();
    LabelSelector::parse(&text).is_ok_and(|selector| selector.matches(labels))
}
