//! `ResourceQuota`: denies writes that would exceed a quota, and charges the quota for writes it
//! admits.
//!
//! Limits and usage come from the status of the quota, which a controller writes: until then, the
//! quota limits nothing. All quotas of the namespace are checked before any of them is charged.
//! Charging one is a compare-and-swap of its status that checks again, so concurrent creates cannot
//! exceed it together. It happens right before the object is stored: if it happened before a slow
//! converter, a controller that counts meanwhile would undo the charge.
//!
//! If a later quota turns out to be exhausted, the earlier ones are refunded. A write that fails
//! after it was admitted stays charged until the controller recounts, as upstream does: a refund
//! could not tell whether the controller has counted in between.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use serde_json::{Value, json};

use super::{in_namespace, refused, tree_value};
use crate::{
    admission::{Operation, Plugin, Request, Verdict},
    api::{
        Api, ApiError, WriteOptions,
        write::{Attributes, Managers, Part},
    },
    meta::{self, Tree},
    quota::{Amounts, Evaluator, Scope, amounts, is_ignored, pretty, unmet_by_pod},
};

#[derive(Debug)]
pub(crate) struct ResourceQuota;

impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn reserves(&self, api: &Api, request: &Request<'_>) -> bool {
        if request.namespace.is_none() || !request.resource.namespaced {
            return false;
        }
        let (group, plural) = (&request.resource.group, &request.resource.plural);
        if is_ignored(group, plural) {
            return false;
        }
        let evaluator = Evaluator::of(group, plural);
        let counts = match (evaluator, request.sub, request.operation) {
            (_, "", Operation::Create) => request.exchanged.is_none(),
            (Evaluator::Pods, "" | "resize", Operation::Update)
            | (Evaluator::Services | Evaluator::DeviceClaims, "", Operation::Update)
            | (Evaluator::Claims, "" | "status", Operation::Update) => true,
            _ => false,
        };
        let quotas = || api.registry.builtin_collection("", "resourcequotas");
        counts && quotas().is_some_and(|quotas| !api.store.is_empty(quotas))
    }

    fn reserve<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: &'a Tree,
    ) -> Verdict<'a> {
        admit(api, request, object).boxed()
    }
}

/// A quota, as its status describes it.
#[derive(Debug)]
struct Quota {
    name: String,
    hard: Amounts,
    used: Amounts,
    scopes: Vec<Scope>,
}

impl Quota {
    fn read(object: &Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Self {
            name: name.to_owned(),
            hard: amounts(&object["status"]["hard"]),
            used: amounts(&object["status"]["used"]),
            scopes: Scope::read_all(&object["spec"]),
        }
    }

    fn matches(&self, evaluator: Evaluator<'_>, object: &Value) -> bool {
        self.hard.keys().any(|name| evaluator.counts(name))
            && self
                .scopes
                .iter()
                .all(|scope| evaluator.is_in(scope, object))
    }

    /// Returns the usage after a charge, or the reason it exceeds the quota.
    fn charged(&self, delta: &Amounts, enforced: bool) -> Result<Amounts, String> {
        let mut used = self.used.clone();
        let mut exceeded = [Amounts::new(), Amounts::new(), Amounts::new()];
        for (name, amount) in delta {
            let Some(hard) = self.hard.get(name) else {
                continue;
            };
            let before = used.get(name).cloned();
            let after = before
                .as_ref()
                .map_or_else(|| amount.clone(), |before| before.plus(amount));
            if after > *hard {
                exceeded[0].insert(name.clone(), amount.clone());
                if let Some(before) = before {
                    exceeded[1].insert(name.clone(), before);
                }
                exceeded[2].insert(name.clone(), hard.clone());
            }
            used.insert(name.clone(), after);
        }
        if enforced && !exceeded[0].is_empty() {
            let [requested, used, hard] = exceeded.each_ref().map(pretty);
            return Err(format!(
                "exceeded quota: {}, requested: {requested}, used: {used}, limited: {hard}",
                self.name
            ));
        }
        Ok(used)
    }
}

async fn admit(api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
    let resource = request.resource;
    let evaluator = Evaluator::of(&resource.group, &resource.plural);
    let forbidden = |why: &str| refused(request, Some(object), why);
    let new = tree_value(object);
    let old = request.old.map(tree_value);
    if let (Evaluator::Pods, "", Some(old)) = (evaluator, request.sub, &old) {
        // Only its deadline can move a Pod from one scope to another.
        let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].is_null();
        if deadline(&new) == deadline(old) {
            return Ok(());
        }
    }
    let namespace = request.namespace.unwrap_or_default();
    let quotas = in_namespace(api, "resourcequotas", namespace);
    let mut quotas: Vec<Quota> = quotas
        .map(|quota| Quota::read(&Value::Object(quota.decode())))
        .filter(|quota| quota.matches(evaluator, &new))
        .collect();
    for quota in &quotas {
        let names = quota.hard.keys().filter(|name| evaluator.counts(name));
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        if let (Evaluator::Pods, Some(why)) = (evaluator, unmet_by_pod(&new, &names)) {
            return Err(forbidden(&format!("failed quota: {}: {why}", quota.name)));
        }
        if names.iter().any(|name| !quota.used.contains_key(*name)) {
            let names: Vec<&str> = names.into_iter().collect();
            return Err(forbidden(&format!(
                "status unknown for quota: {}, resources: {}",
                quota.name,
                names.join(",")
            )));
        }
    }
    if quotas.is_empty() {
        return Ok(());
    }
    let now = api.clock.now();
    let usage = evaluator.usage(&new, now);
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(forbidden(&format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )));
    }
    let before = old.as_ref().map(|old| evaluator.usage(old, now));
    let delta_of = |quota: &Quota| -> Amounts {
        let counted = old.as_ref().filter(|old| quota.matches(evaluator, old));
        let before = before.as_ref().filter(|_| counted.is_some());
        let entries = usage.iter().map(|(name, amount)| {
            let before = before.and_then(|before| before.get(name));
            let delta = before.map_or_else(|| amount.clone(), |before| amount.minus(before));
            (name.clone(), delta)
        });
        entries.filter(|(_, delta)| !delta.is_zero()).collect()
    };
    // A status reports facts, so it is charged but never denied.
    let enforced = request.sub != "status";
    let mut deltas: BTreeMap<String, Amounts> = BTreeMap::new();
    quotas.retain(|quota| !delta_of(quota).is_empty());
    for quota in &quotas {
        let delta = delta_of(quota);
        quota
            .charged(&delta, enforced)
            .map_err(|why| forbidden(&why))?;
        deltas.insert(quota.name.clone(), delta);
    }
    if request.is_dry_run() {
        return Ok(());
    }
    let mut paid: Vec<(&str, &Amounts)> = Vec::new();
    for (name, delta) in &deltas {
        let charge = |quota: &Quota| {
            quota
                .charged(delta, enforced)
                .map_err(|why| forbidden(&why))
        };
        match update(api, namespace, name, &charge).await {
            Ok(()) => paid.push((name, delta)),
            // The quota has been deleted, so it no longer limits anything.
            Err(error) if error.is_missing() => {}
            Err(error) => {
                for (name, delta) in paid {
                    let refund = |quota: &Quota| Ok(refunded(quota, delta));
                    // A refund that fails is corrected by the controller's next count.
                    let _ = update(api, namespace, name, &refund).await;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

fn refunded(quota: &Quota, delta: &Amounts) -> Amounts {
    let mut used = quota.used.clone();
    for (name, amount) in delta {
        if let Some(used) = used.get_mut(name) {
            *used = used.minus(amount);
        }
    }
    used
}

/// Replaces the usage of a quota.
async fn update(
    api: &Api,
    namespace: &str,
    name: &str,
    usage: &(dyn Fn(&Quota) -> Result<Amounts, ApiError> + Sync),
) -> Result<(), ApiError> {
    let catalog = api.registry.catalog();
    let Some(resource) = catalog.find("", "v1", "resourcequotas") else {
        return Ok(());
    };
    let options = WriteOptions {
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    let write = Attributes {
        operation: Operation::Update,
        verb: "update",
        resource,
        namespace: Some(namespace),
        name,
        sub: "status",
        part: Part::Status,
        user: None,
        options: &options,
        managers: Managers::Record,
        projection: None,
    };
    let mut next = |stored: &Tree| {
        let quota = Quota::read(&tree_value(stored));
        let used = usage(&quota)?;
        let used: BTreeMap<String, String> = used
            .into_iter()
            .map(|(name, amount)| (name, amount.to_string()))
            .collect();
        let mut new = stored.clone();
        // The quota's status may be written in between, which is not a conflict here.
        meta::metadata(&mut new).remove("resourceVersion");
        let status = new.entry("status").or_insert_with(|| json!({}));
        status["used"] = json!(used);
        Ok(new)
    };
    api.change(&write, &mut next).await.map(drop)
}
