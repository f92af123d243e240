//! Decides the size of a target from the metrics of its autoscaler.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        autoscaling::v2::{
            ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscaler,
            HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
            HorizontalPodAutoscalerStatus, MetricIdentifier, MetricSpec, MetricStatus,
            MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus,
            ResourceMetricStatus,
        },
        core::v1::Pod,
    },
    apimachinery::pkg::{api::resource::Quantity as Text, apis::meta::v1::LabelSelector},
};

use super::{
    limits::{self, Finding, History},
    load::{Loads, thousandths},
    replicas::{self, Fleet, Proposal, Samples, Target, Tolerances},
};
use crate::meta;

/// The tolerance of an autoscaler that sets none.
const TOLERANCE: f64 = 0.1;

/// The scale of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) desired: i32,
    pub(super) observed: i32,
    pub(super) selector: String,
}

/// The inputs of a decision.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) scale: &'a Scale,
    /// The Pods that the selector of the scale matches.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) loads: &'a Loads,
    /// All autoscalers of these Pods if there are several; otherwise empty.
    pub(super) rivals: &'a [String],
    pub(super) now: Timestamp,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The size to set, and why.
    pub(super) rescale: Option<(i32, String)>,
    pub(super) findings: Vec<Finding>,
    pub(super) metrics: Vec<MetricStatus>,
    /// Why no size could be computed, as the reason and message of an event.
    pub(super) failure: Option<(&'static str, String)>,
}

/// Decides the size of the target.
pub(super) fn plan(
    autoscaler: &HorizontalPodAutoscaler,
    world: &World<'_>,
    history: &mut History,
) -> Plan {
    let spec = &autoscaler.spec;
    let current = world.scale.desired;
    history.start(current, world.now);
    let min = spec.min_replicas.unwrap_or(1);
    let able = "the HPA controller was able to get the target's current scale";
    let mut plan = Plan {
        findings: vec![Finding::new("AbleToScale", true, "SucceededGetScale", able)],
        ..Plan::default()
    };
    if current == 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        let disabled = Finding::new("ScalingActive", false, "ScalingDisabled", message);
        plan.findings.push(disabled);
        return plan;
    }
    if current > spec.max_replicas {
        let why = "Current number of replicas above Spec.MaxReplicas";
        plan.rescale = Some((spec.max_replicas, why.to_owned()));
        return plan;
    }
    if current < min {
        let why = "Current number of replicas below Spec.MinReplicas";
        plan.rescale = Some((min, why.to_owned()));
        return plan;
    }
    let Some((proposed, metric)) = propose(autoscaler, spec, world, &mut plan) else {
        return plan;
    };
    let why = if proposed > current {
        format!("{metric} above target")
    } else {
        "All metrics below target".to_owned()
    };
    let (desired, findings) = limits::limit(spec, history, current, proposed, world.now);
    plan.findings.extend(findings);
    plan.rescale = (desired != current).then_some((desired, why));
    plan
}

/// Returns the highest proposal of all metrics and the name of its metric.
///
/// If metrics are missing, the others may not remove replicas.
fn propose(
    autoscaler: &HorizontalPodAutoscaler,
    spec: &HorizontalPodAutoscalerSpec,
    world: &World<'_>,
    plan: &mut Plan,
) -> Option<(i32, String)> {
    let inactive = |reason, message: String| Finding::new("ScalingActive", false, reason, message);
    if world.scale.selector.is_empty() {
        let message = "the HPA target's scale is missing a selector";
        plan.findings
            .push(inactive("InvalidSelector", message.into()));
        plan.failure = Some(("SelectorRequired", "selector is required".into()));
        return None;
    }
    if !world.rivals.is_empty() {
        let message = format!(
            "pods by selector {} are controlled by multiple HPAs: [{}]",
            world.scale.selector,
            world.rivals.join(" ")
        );
        plan.findings
            .push(inactive("AmbiguousSelector", message.clone()));
        plan.failure = Some(("AmbiguousSelector", message));
        return None;
    }
    let metrics = spec.metrics.clone().unwrap_or_default();
    let mut best: Option<(i32, String)> = None;
    let mut failures = Vec::new();
    for metric in &metrics {
        match evaluate(autoscaler, spec, metric, world) {
            Ok((proposal, name, status)) => {
                plan.metrics.push(status);
                if best
                    .as_ref()
                    .is_none_or(|(count, _)| proposal.replicas > *count)
                {
                    best = Some((proposal.replicas, name));
                }
            }
            Err(failure) => {
                // As upstream, the status has an entry for each metric.
                plan.metrics.push(MetricStatus::default());
                failures.push(failure);
            }
        }
    }
    let scales_down = best
        .as_ref()
        .is_none_or(|(count, _)| *count < world.scale.desired);
    if let Some(failure) = failures.first().filter(|_| scales_down) {
        let message = format!(
            "the HPA was unable to compute the replica count: {}",
            failure.1
        );
        plan.findings.push(inactive(failure.0, message));
        let message = format!(
            "invalid metrics ({} invalid out of {}), first error is: {}",
            failures.len(),
            metrics.len(),
            failure.2
        );
        plan.failure = Some(("FailedComputeMetricsReplicas", message));
        return None;
    }
    let (_, name) = best.as_ref()?;
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    let active = Finding::new("ScalingActive", true, "ValidMetricFound", message);
    plan.findings.push(active);
    best
}

/// The reason of a condition, its message, and the message with its context.
type Failure = (&'static str, String, String);

fn evaluate(
    autoscaler: &HorizontalPodAutoscaler,
    spec: &HorizontalPodAutoscalerSpec,
    metric: &MetricSpec,
    world: &World<'_>,
) -> Result<(Proposal, String, MetricStatus), Failure> {
    let fleet = Fleet {
        pods: world.pods,
        current: world.scale.desired,
        tolerances: tolerances(spec),
        now: world.now,
    };
    let value = |name: &str| world.loads.value(autoscaler, name);
    let mut status = MetricStatus {
        type_: metric.type_.clone(),
        ..MetricStatus::default()
    };
    if let Some(source) = &metric.resource {
        let (proposal, name, current) = resource(world, &fleet, &source.name, None, &source.target)
            .map_err(|why| {
                let full = format!("failed to get {} resource metric value: {why}", source.name);
                ("FailedGetResourceMetric", why, full)
            })?;
        status.resource = Some(ResourceMetricStatus {
            name: source.name.clone(),
            current,
        });
        return Ok((proposal, name, status));
    }
    if let Some(source) = &metric.container_resource {
        let container = Some(source.container.as_str());
        let (proposal, name, current) =
            resource(world, &fleet, &source.name, container, &source.target).map_err(|why| {
                let container = &source.container;
                let full = format!("failed to get {container} container metric value: {why}");
                ("FailedGetContainerResourceMetric", why, full)
            })?;
        status.container_resource = Some(ContainerResourceMetricStatus {
            name: source.name.clone(),
            container: source.container.clone(),
            current,
        });
        return Ok((proposal, name, status));
    }
    if let Some(source) = &metric.pods {
        let name = &source.metric.name;
        let failed = |why: String| {
            let full = format!("failed to get pods metric value: {why}");
            ("FailedGetPodsMetric", why, full)
        };
        let samples = samples(world, None, name);
        if samples.is_empty() {
            let why =
                format!("unable to get metric {name}: no metrics returned from custom metrics API");
            return Err(failed(why));
        }
        let target = Target::Average(amount(source.target.average_value.as_ref()));
        let proposal = replicas::from_pods(&fleet, "", samples, target).map_err(failed)?;
        status.pods = Some(PodsMetricStatus {
            metric: source.metric.clone(),
            current: average(decimal(proposal.usage)),
        });
        return Ok((proposal, format!("pods metric {name}"), status));
    }
    if let Some(source) = &metric.object {
        let (object, name) = (&source.described_object, &source.metric.name);
        let failed = |why: String| {
            let full = format!("failed to get object metric value: {why}");
            ("FailedGetObjectMetric", why, full)
        };
        let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or_default();
        let usage = value(name).ok_or_else(|| {
            failed(format!(
                "unable to get metric {name}: {} on {namespace} {}/no metrics returned from \
                 custom metrics API",
                object.kind, object.name
            ))
        })?;
        let (proposal, current) = shared(world, &fleet, usage, &source.target).map_err(failed)?;
        let text = match current.value {
            Some(_) => format!("{} metric {name}", object.kind),
            None => format!("external metric {}", identified(&source.metric)),
        };
        status.object = Some(ObjectMetricStatus {
            described_object: object.clone(),
            metric: source.metric.clone(),
            current,
        });
        return Ok((proposal, text, status));
    }
    if let Some(source) = &metric.external {
        let name = &source.metric.name;
        let failed = |why: String| {
            let full = format!("failed to get {name} external metric value: {why}");
            ("FailedGetExternalMetric", why, full)
        };
        let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or_default();
        let usage = value(name).ok_or_else(|| {
            failed(format!(
                "unable to get external metric {namespace}/{name}/{}: no metrics returned from \
                 external metrics API",
                selector(source.metric.selector.as_ref())
            ))
        })?;
        let (proposal, current) = shared(world, &fleet, usage, &source.target).map_err(failed)?;
        let text = format!("external metric {}", identified(&source.metric));
        status.external = Some(ExternalMetricStatus {
            metric: source.metric.clone(),
            current,
        });
        return Ok((proposal, text, status));
    }
    let why = format!("unknown metric source type {:?}", metric.type_);
    Err(("InvalidMetricSourceType", why.clone(), why))
}

fn tolerances(spec: &HorizontalPodAutoscalerSpec) -> Tolerances {
    let behavior = spec.behavior.as_ref();
    let of = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        let tolerance = rules.and_then(|rules| rules.tolerance.as_ref());
        let tolerance = tolerance.and_then(|text| text.0.parse::<pintle_cel::Quantity>().ok());
        tolerance.map_or(TOLERANCE, |tolerance| tolerance.as_approximate_float())
    };
    Tolerances {
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
    }
}

fn samples(world: &World<'_>, container: Option<&str>, metric: &str) -> Samples {
    let pods = world.pods.iter();
    pods.filter_map(|pod| {
        let usage = world.loads.usage(pod, container, metric)?;
        Some((meta::name(&pod.metadata).to_owned(), usage))
    })
    .collect()
}

fn resource(
    world: &World<'_>,
    fleet: &Fleet<'_>,
    name: &str,
    container: Option<&str>,
    target: &MetricTarget,
) -> Result<(Proposal, String, MetricValueStatus), String> {
    let (goal, what) = if let Some(value) = &target.average_value {
        (Target::Average(amount(Some(value))), "usage")
    } else if let Some(percent) = target.average_utilization {
        (Target::Utilization { percent, container }, "utilization")
    } else {
        return Err(
            "invalid resource metric source: neither an average utilization target nor an \
                    average value (usage) target was set"
                .into(),
        );
    };
    let failed = |why: String| format!("failed to get {name} {what}: {why}");
    let samples = samples(world, container, name);
    if samples.is_empty() {
        return Err(failed(format!(
            "unable to get metrics for resource {name}: no metrics returned from resource metrics \
             API"
        )));
    }
    let proposal = replicas::from_pods(fleet, name, samples, goal).map_err(failed)?;
    let usage = if name == "memory" {
        binary(proposal.usage)
    } else {
        decimal(proposal.usage)
    };
    let text = match (goal, container) {
        (Target::Average(_), _) => format!("{name} resource"),
        (_, None) => format!("{name} resource utilization (percentage of request)"),
        (_, Some(_)) => format!("{name} container resource utilization (percentage of request)"),
    };
    let status = MetricValueStatus {
        average_utilization: proposal.utilization,
        ..average(usage)
    };
    Ok((proposal, text, status))
}

/// Evaluates a metric that is not about individual Pods.
fn shared(
    world: &World<'_>,
    fleet: &Fleet<'_>,
    usage: i64,
    target: &MetricTarget,
) -> Result<(Proposal, MetricValueStatus), String> {
    if target.average_value.is_some() {
        let goal = amount(target.average_value.as_ref());
        let proposal = replicas::from_share(fleet, world.scale.observed, usage, goal);
        return Ok((proposal, average(decimal(proposal.usage))));
    }
    let proposal = replicas::from_value(fleet, usage, amount(target.value.as_ref()))?;
    let status = MetricValueStatus {
        value: Some(decimal(proposal.usage)),
        ..MetricValueStatus::default()
    };
    Ok((proposal, status))
}

fn amount(text: Option<&Text>) -> i64 {
    let amount = text.and_then(|text| text.0.parse().ok());
    amount.as_ref().map(thousandths).unwrap_or_default()
}

fn average(value: Text) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(value),
        ..MetricValueStatus::default()
    }
}

/// Formats thousandths as Kubernetes does: `250m`, `3`, `12k`.
fn decimal(amount: i64) -> Text {
    const SUFFIXES: [&str; 7] = ["m", "", "k", "M", "G", "T", "P"];
    scaled(amount, 1000, &SUFFIXES)
}

/// Formats thousandths of bytes: `100Mi`, unless they are fractional.
fn binary(amount: i64) -> Text {
    const SUFFIXES: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    if amount % 1000 == 0 {
        scaled(amount / 1000, 1024, &SUFFIXES)
    } else {
        decimal(amount)
    }
}

fn scaled(mut amount: i64, unit: i64, suffixes: &[&str]) -> Text {
    if amount == 0 {
        return Text("0".into());
    }
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next();
    while amount % unit == 0
        && let Some(next) = suffixes.next()
    {
        amount /= unit;
        suffix = Some(next);
    }
    Text(format!("{amount}{}", suffix.copied().unwrap_or_default()))
}

/// Formats a metric as Go formats its name and selector.
fn identified(metric: &MetricIdentifier) -> String {
    format!("{}({})", metric.name, selector(metric.selector.as_ref()))
}

fn selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".into();
    };
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let mut text = String::new();
    for (key, value) in labels {
        text.extend([key, ": ", value, ","]);
    }
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{text}}},\
         MatchExpressions:[]LabelSelectorRequirement{{}},}}"
    )
}

/// Returns the status after a decision, or `None` if it is current.
pub(super) fn status(
    autoscaler: &HorizontalPodAutoscaler,
    current: Option<i32>,
    plan: Plan,
    now: Timestamp,
) -> Option<HorizontalPodAutoscalerStatus> {
    let before = autoscaler.status.clone().unwrap_or_default();
    let mut status = before.clone();
    if let Some(current) = current {
        let unchanged = if plan.failure.is_some() {
            before.desired_replicas
        } else {
            current
        };
        let desired = plan.rescale.as_ref().map(|(desired, _)| *desired);
        status.current_replicas = Some(current).filter(|count| *count != 0);
        status.desired_replicas = desired.unwrap_or(unchanged);
        status.current_metrics = Some(plan.metrics).filter(|metrics| !metrics.is_empty());
        if plan.rescale.is_some() {
            status.last_scale_time = Some(meta::time(now));
        }
    }
    let conditions = status.conditions.get_or_insert_default();
    for finding in plan.findings {
        let value = if finding.status { "True" } else { "False" };
        let known = conditions.iter_mut().find(|it| it.type_ == finding.type_);
        let time = match &known {
            Some(known) if known.status == value => known.last_transition_time.clone(),
            _ => Some(meta::time(now)),
        };
        let condition = HorizontalPodAutoscalerCondition {
            last_transition_time: time,
            message: Some(finding.message),
            reason: Some(finding.reason.to_owned()),
            status: value.to_owned(),
            type_: finding.type_.to_owned(),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    (status != before).then_some(status)
}

#[cfg(test)]
mod tests;
