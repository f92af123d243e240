//! Scales workloads to the load that a test or an annotation sets.
//!
//! Every 15 s the loop reads the scale of the target through its scale subresource, whatever its
//! kind, and [`plan::plan`] compares the metrics with their targets. Recent proposals and changes
//! are kept in memory, as in kube-controller-manager.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "sizes are rounded, as in kube-controller-manager"
)]

mod limits;
mod load;
mod plan;
mod replicas;

pub(crate) use self::load::Loads;
pub use self::load::{InvalidLoad, Load};

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler},
    core::v1::Pod,
};
use kube::core::ApiResource;
use parking_lot::Mutex;
use pintle::{
    cache::{Object, ObjectKey, Selector},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::{
    limits::{Finding, History},
    plan::{Plan, Scale, World},
};
use crate::{
    api, discovery,
    loops::{Environment, LoopError},
    meta,
};

/// The interval between evaluations of the metrics.
const PERIOD: Duration = Duration::from_secs(15);

/// The state of the loop.
#[derive(Default)]
struct Memory {
    histories: Mutex<BTreeMap<ObjectKey, History>>,
    evaluated: Mutex<BTreeMap<ObjectKey, Timestamp>>,
    /// The selectors of targets, to find Pods with several autoscalers.
    selectors: Mutex<BTreeMap<ObjectKey, Selector>>,
    /// The namespaced kinds, by group and kind.
    kinds: Mutex<BTreeMap<(String, String), ApiResource>>,
}

impl Memory {
    /// Returns how long to wait before evaluating an autoscaler again, because its own writes must
    /// not shorten its period. If it is due, returns `None` and records the evaluation.
    fn wait(&self, key: &ObjectKey, now: Timestamp) -> Option<Duration> {
        let mut evaluated = self.evaluated.lock();
        let since = |last: &Timestamp| Duration::try_from(now.duration_since(*last)).ok();
        let since = evaluated.get(key).and_then(since);
        let left = since.and_then(|since| PERIOD.checked_sub(since));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Some(left);
        }
        evaluated.insert(key.clone(), now);
        None
    }
}

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let recorder = environment.events.recorder("horizontal-pod-autoscaler");
    let (shared, memory) = (environment.clone(), Arc::<Memory>::default());
    environment
        .controller::<HorizontalPodAutoscaler>("horizontal-pod-autoscaler")
        .watches::<Pod>(|_, _| Vec::new())
        .run_by_key(
            move |key, cx| reconcile(key, cx, shared.clone(), memory.clone(), recorder.clone()),
            &stop,
        )
        .await?;
    Ok(())
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    memory: Arc<Memory>,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<HorizontalPodAutoscaler>()?.get(&key) else {
        memory.histories.lock().remove(&key);
        memory.selectors.lock().remove(&key);
        memory.evaluated.lock().remove(&key);
        return Ok(Action::await_change());
    };
    let autoscaler = cached.get()?;
    let now = environment.clock.now();
    if let Some(wait) = memory.wait(&key, now) {
        return Ok(Action::requeue_after(wait));
    }
    let namespace = key.namespace().unwrap_or_default();
    let reference = &autoscaler.spec.scale_target_ref;
    let found = match find(&cx, &memory, namespace, reference).await {
        Ok(found) => found,
        Err(why) => {
            let message =
                format!("the HPA controller was unable to get the target's current scale: {why}");
            let finding = Finding::new("AbleToScale", false, "FailedGetScale", message);
            let plan = Plan {
                findings: vec![finding],
                failure: Some(("FailedGetScale", why)),
                ..Plan::default()
            };
            report(&autoscaler, None, plan, &environment, &cx, &recorder).await?;
            return Ok(Action::requeue_after(PERIOD));
        }
    };
    let (path, mut object) = found;
    let scale = scale(&object);
    let selector: Selector = scale
        .selector
        .parse()
        .unwrap_or_else(|_| Selector::nothing());
    memory
        .selectors
        .lock()
        .insert(key.clone(), selector.clone());
    let pods = cx.lister::<Pod>()?.namespace(namespace);
    let mut pods = pods.list_matching(&selector);
    pods.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    let pods: Vec<Arc<Pod>> = pods.iter().map(Object::get).collect::<Result<_, _>>()?;
    let rivals = rivals(&key, &pods, &memory);
    let world = World {
        scale: &scale,
        pods: &pods,
        loads: &environment.loads,
        rivals: &rivals,
        now,
    };
    let mut history = memory.histories.lock().remove(&key).unwrap_or_default();
    let mut plan = plan::plan(&autoscaler, &world, &mut history);
    if let Some((desired, why)) = plan.rescale.clone() {
        object["spec"]["replicas"] = json!(desired);
        match put(&cx, &path, &object).await {
            Ok(()) => {
                let message =
                    format!("the HPA controller was able to update the target scale to {desired}");
                let able = Finding::new("AbleToScale", true, "SucceededRescale", message);
                plan.findings.push(able);
                let message = format!("New size: {desired}; reason: {why}");
                recorder.event(
                    &*autoscaler,
                    EventType::Normal,
                    "SuccessfulRescale",
                    message,
                );
                history.scaled(scale.desired, desired, now);
            }
            Err(error) => {
                let error = api::message(&error);
                let message =
                    format!("the HPA controller was unable to update the target scale: {error}");
                let unable = Finding::new("AbleToScale", false, "FailedUpdateScale", message);
                plan.findings.push(unable);
                plan.rescale = None;
                let message = format!("New size: {desired}; reason: {why}; error: {error}");
                plan.failure = Some(("FailedRescale", message));
            }
        }
    }
    memory.histories.lock().insert(key, history);
    report(
        &autoscaler,
        Some(scale.desired),
        plan,
        &environment,
        &cx,
        &recorder,
    )
    .await?;
    Ok(Action::requeue_after(PERIOD))
}

/// If the status has changed, emits an event for the failure, if any, and writes the status.
async fn report(
    autoscaler: &HorizontalPodAutoscaler,
    current: Option<i32>,
    plan: Plan,
    environment: &Environment,
    cx: &Context,
    recorder: &EventRecorder,
) -> Result<(), ReconcileError> {
    let failure = plan.failure.clone();
    let status = plan::status(autoscaler, current, plan, environment.clock.now());
    if status.is_none() {
        return Ok(());
    }
    if let Some((reason, message)) = failure {
        recorder.event(autoscaler, EventType::Warning, reason, message);
    }
    let reported = HorizontalPodAutoscaler {
        status,
        ..autoscaler.clone()
    };
    api::replace_status(cx, &reported).await?;
    Ok(())
}

/// Returns the names of all autoscalers of these Pods, if there are any besides this one.
fn rivals(own: &ObjectKey, pods: &[Arc<Pod>], memory: &Memory) -> Vec<String> {
    let selectors = memory.selectors.lock();
    let rivals: Vec<String> = selectors
        .iter()
        .filter(|(key, selector)| {
            key.namespace() == own.namespace()
                && pods
                    .iter()
                    .any(|pod| meta::selects(selector, &pod.metadata))
        })
        .map(|(key, _)| key.as_str().to_owned())
        .collect();
    if rivals.iter().any(|rival| rival != own.as_str()) {
        rivals
    } else {
        Vec::new()
    }
}

fn scale(object: &Value) -> Scale {
    let count = |section: &str| {
        let count = object[section]["replicas"].as_i64().unwrap_or_default();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let selector = object["status"]["selector"].as_str();
    Scale {
        desired: count("spec"),
        observed: count("status"),
        selector: selector.unwrap_or_default().to_owned(),
    }
}

/// Returns the path of the scale of a target, and the scale.
async fn find(
    cx: &Context,
    memory: &Memory,
    namespace: &str,
    target: &CrossVersionObjectReference,
) -> Result<(String, Value), String> {
    let api_version = target.api_version.as_deref().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let wanted = (group.to_owned(), target.kind.clone());
    let known = memory.kinds.lock().get(&wanted).cloned();
    let kind = if let Some(kind) = known {
        kind
    } else {
        let kinds = discovery::kinds(cx.client()).await;
        let kinds = kinds.map_err(|error| api::message(&error))?.into_iter();
        let kinds = kinds.filter(|kind| kind.namespaced).map(|kind| {
            let kind = kind.resource;
            ((kind.group.clone(), kind.kind.clone()), kind)
        });
        *memory.kinds.lock() = kinds.collect();
        let kind = memory.kinds.lock().get(&wanted).cloned();
        kind.ok_or_else(|| {
            let group = if group.is_empty() {
                String::new()
            } else {
                format!(" in group {group:?}")
            };
            format!("no matches for kind {:?}{group}", target.kind)
        })?
    };
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let path = format!(
        "/{root}/{}/namespaces/{namespace}/{}/{}/scale",
        kind.api_version, kind.plural, target.name
    );
    let request = http::Request::get(&path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match cx.client().request(request).await {
        Ok(scale) => Ok((path, scale)),
        Err(error) => {
            // The kind may be served differently by now.
            memory.kinds.lock().remove(&wanted);
            Err(api::message(&error))
        }
    }
}

/// Writes a scale, unless the target has changed since it was read.
async fn put(cx: &Context, path: &str, scale: &Value) -> Result<(), kube::Error> {
    let body = serde_json::to_vec(scale).map_err(kube::Error::SerdeError)?;
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    cx.client().request::<Value>(request).await.map(drop)
}
