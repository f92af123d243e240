//! Computes how many replicas a metric calls for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::load::thousandths;
use crate::{
    meta,
    pods::state::{self, is_ready, phase},
};

/// How long after its start a Pod that is not ready is assumed to be initializing.
const CPU_INITIALIZATION: Duration = Duration::from_mins(5);
/// How long after its start a Pod may become unready without ever having been ready.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// How far usage may be from its target without an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn allow(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The result for one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The total or average usage, in thousandths.
    pub(super) usage: i64,
    /// The usage in percent of the requests.
    pub(super) utilization: Option<i32>,
}

/// Usage by the name of the Pod, in thousandths.
pub(super) type Samples = BTreeMap<String, i64>;

/// The target of an average over Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A percentage of the Pods' requests, or of the requests of one container in each.
    Utilization {
        percent: i32,
        container: Option<&'a str>,
    },
    /// Thousandths for each Pod.
    Average(i64),
}

/// The inputs of a proposal from Pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet<'a> {
    /// The Pods of the target.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) current: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// Pods, grouped by how they count.
#[derive(Default)]
struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
}

fn name(pod: &Pod) -> String {
    meta::name(&pod.metadata).to_owned()
}

/// Groups the Pods and removes the samples of those that do not count.
fn group(fleet: &Fleet<'_>, resource: &str, samples: &mut Samples) -> Groups {
    let mut groups = Groups::default();
    for pod in fleet.pods {
        if meta::is_being_deleted(&pod.metadata) || phase(pod) == "Failed" {
            samples.remove(meta::name(&pod.metadata));
        } else if phase(pod) == "Pending" {
            groups.unready.push(name(pod));
        } else if !samples.contains_key(meta::name(&pod.metadata)) {
            groups.missing.push(name(pod));
        } else if resource == "cpu" && is_initializing(pod, fleet.now) {
            groups.unready.push(name(pod));
        } else {
            groups.ready += 1;
        }
    }
    for unready in &groups.unready {
        samples.remove(unready);
    }
    groups
}

/// Returns whether the CPU usage of a Pod is not meaningful yet.
fn is_initializing(pod: &Pod, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let start = status.and_then(|status| status.start_time.as_ref());
    let (Some(start), Some(ready)) = (start, state::condition(pod, "Ready")) else {
        return true;
    };
    let after = |delay: Duration| start.0.saturating_add(delay).unwrap_or(start.0);
    if after(CPU_INITIALIZATION) > now {
        return ready.status == "False";
    }
    let changed = ready.last_transition_time.as_ref().map(|time| time.0);
    let changed = changed.unwrap_or_default();
    ready.status == "False" && after(INITIAL_READINESS) > changed
}

/// Proposes a number of replicas for an average over Pods.
///
/// Pods without a sample count as idle when the load is high, and as busy when it is low; Pods that
/// are not ready count as idle when the load is high. Neither may reverse the direction.
pub(super) fn from_pods(
    fleet: &Fleet<'_>,
    resource: &str,
    mut samples: Samples,
    target: Target<'_>,
) -> Result<Proposal, String> {
    if fleet.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let groups = group(fleet, resource, &mut samples);
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let requests = match target {
        Target::Utilization { container, .. } => requests(fleet.pods, container, resource)?,
        Target::Average(_) => BTreeMap::new(),
    };
    let (ratio, proposal) = ratio(&samples, &requests, target, fleet.current)?;
    let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !counts_unready && groups.missing.is_empty() {
        let replicas = if fleet.tolerances.allow(ratio) {
            fleet.current
        } else {
            ceil(ratio * as_float(groups.ready))
        };
        return Ok(Proposal {
            replicas,
            ..proposal
        });
    }
    for missing in groups.missing {
        let busy = match target {
            Target::Average(usage) => usage,
            Target::Utilization { percent, .. } => {
                let request = requests.get(&missing).copied().unwrap_or_default();
                request.saturating_mul(i64::from(percent.max(100))) / 100
            }
        };
        if ratio < 1.0 {
            samples.insert(missing, busy);
        } else if ratio > 1.0 {
            samples.insert(missing, 0);
        }
    }
    if counts_unready {
        samples.extend(groups.unready.into_iter().map(|unready| (unready, 0)));
    }
    let (new_ratio, _) = self::ratio(&samples, &requests, target, fleet.current)?;
    let turns = ratio < 1.0 && new_ratio > 1.0 || ratio > 1.0 && new_ratio < 1.0;
    let replicas = ceil(new_ratio * as_float(samples.len()));
    let contradicts =
        new_ratio < 1.0 && replicas > fleet.current || new_ratio > 1.0 && replicas < fleet.current;
    if fleet.tolerances.allow(new_ratio) || turns || contradicts {
        return Ok(proposal);
    }
    Ok(Proposal {
        replicas,
        ..proposal
    })
}

/// Returns the ratio of usage to target, and a proposal to change nothing.
fn ratio(
    samples: &Samples,
    requests: &BTreeMap<String, i64>,
    target: Target<'_>,
    current: i32,
) -> Result<(f64, Proposal), String> {
    let sum = |values: &mut dyn Iterator<Item = i64>| values.fold(0_i64, i64::saturating_add);
    let (ratio, usage, utilization) = match target {
        Target::Average(target) => {
            let count = i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
            let usage = sum(&mut samples.values().copied()) / count;
            (usage as f64 / target as f64, usage, None)
        }
        Target::Utilization { percent, .. } => {
            let known = samples
                .iter()
                .filter(|(name, _)| requests.contains_key(*name));
            let requested = sum(&mut known.clone().map(|(name, _)| requests[name]));
            if requested == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let used = sum(&mut known.clone().map(|(_, usage)| *usage));
            let count = i64::try_from(known.count()).unwrap_or(i64::MAX).max(1);
            let utilization = used.saturating_mul(100) / requested;
            let utilization = i32::try_from(utilization).unwrap_or(i32::MAX);
            let ratio = f64::from(utilization) / f64::from(percent);
            (ratio, used / count, Some(utilization))
        }
    };
    let proposal = Proposal {
        replicas: current,
        usage,
        utilization,
    };
    Ok((ratio, proposal))
}

/// Returns the requests of each Pod, or of one of its containers.
fn requests(
    pods: &[Arc<Pod>],
    container: Option<&str>,
    resource: &str,
) -> Result<BTreeMap<String, i64>, String> {
    pods.iter()
        .map(|pod| Ok((name(pod), request(pod, container, resource)?)))
        .collect()
}

fn request(pod: &Pod, container: Option<&str>, resource: &str) -> Result<i64, String> {
    let spec = pod.spec.as_ref();
    let amount = |resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| {
        let requests = resources.and_then(|resources| resources.requests.as_ref())?;
        let amount = requests.get(resource)?.0.parse().ok()?;
        Some(thousandths(&amount))
    };
    let pod_level = spec.and_then(|spec| spec.resources.as_ref());
    if container.is_none()
        && let Some(amount) = amount(pod_level)
    {
        return Ok(amount);
    }
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.into_iter();
    let sidecars = sidecars.flat_map(|spec| spec.init_containers.iter().flatten());
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let all = containers.chain(sidecars.filter(is_sidecar));
    let mut sum = 0_i64;
    let mut found = false;
    for one in all.filter(|one| container.is_none_or(|name| one.name == name)) {
        found = true;
        let amount = amount(one.resources.as_ref()).ok_or_else(|| {
            format!(
                "missing request for {resource} in container {} of Pod {}",
                one.name,
                name(pod)
            )
        })?;
        sum = sum.saturating_add(amount);
    }
    match container {
        Some(container) if !found => Err(format!(
            "container {container} not found in Pod {}",
            name(pod)
        )),
        _ => Ok(sum),
    }
}

/// Proposes a number of replicas for the value of a metric that they share.
pub(super) fn from_value(fleet: &Fleet<'_>, usage: i64, target: i64) -> Result<Proposal, String> {
    let ratio = usage as f64 / target as f64;
    let replicas = if fleet.current == 0 {
        ceil(ratio)
    } else if fleet.tolerances.allow(ratio) {
        fleet.current
    } else {
        if fleet.pods.is_empty() {
            return Err(
                "unable to calculate ready pods: no pods returned by selector while \
                        calculating replica count"
                    .into(),
            );
        }
        let is_counted = |pod: &&Arc<Pod>| phase(pod) == "Running" && is_ready(pod);
        let ready = fleet.pods.iter().filter(is_counted).count();
        ceil(ratio * as_float(ready))
    };
    Ok(Proposal {
        replicas,
        usage,
        utilization: None,
    })
}

/// Proposes a number of replicas among which the value of a metric is divided.
pub(super) fn from_share(fleet: &Fleet<'_>, replicas: i32, usage: i64, target: i64) -> Proposal {
    let ratio = usage as f64 / (target as f64 * f64::from(replicas));
    let share = (usage as f64 / f64::from(replicas)).ceil();
    Proposal {
        replicas: if fleet.tolerances.allow(ratio) {
            replicas
        } else {
            ceil(usage as f64 / target as f64)
        },
        usage: share as i64,
        utilization: None,
    }
}

fn as_float(count: usize) -> f64 {
    f64::from(meta::clamp(count))
}

/// Rounds up to a number of replicas.
pub(super) fn ceil(value: f64) -> i32 {
    value.ceil() as i32
}

#[cfg(test)]
mod tests;
