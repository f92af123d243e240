//! The load of Pods and other metrics, as a test or an annotation sets them.
//!
//! No containers run, so nothing measures them: a `HorizontalPodAutoscaler` sees exactly these
//! values.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod};
use parking_lot::Mutex;
use pintle::cache::{InvalidSelector, Selector};
use pintle_cel::{Quantity, QuantityError};

use crate::meta;

/// The annotation with the usage of a Pod: `cpu=250m memory=100Mi requests=20`.
const USAGE: &str = "pintle.dev/usage";
/// The annotation of a `HorizontalPodAutoscaler` with its object and external metrics:
/// `queue-length=30`.
const METRICS: &str = "pintle.dev/metrics";

/// The loads of a cluster, newest last. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads(Arc<Mutex<Rules>>);

#[derive(Debug, Default)]
struct Rules {
    pods: Vec<Rule>,
    /// By namespace, if limited to one, and metric name.
    values: BTreeMap<(Option<String>, String), i64>,
}

#[derive(Debug)]
struct Rule {
    target: Target,
    selector: Selector,
    metric: String,
    /// In thousandths.
    usage: i64,
}

/// The Pods or containers that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    namespace: Option<String>,
    /// The selector as written; equal strings select the same Pods.
    selector: String,
    container: Option<String>,
}

impl Loads {
    /// Returns the usage of a Pod or one of its containers, in thousandths.
    pub(super) fn usage(&self, pod: &Pod, container: Option<&str>, metric: &str) -> Option<i64> {
        let rules = self.0.lock();
        let namespace = pod.metadata.namespace.as_ref();
        let mut matching = rules.pods.iter().rev().filter(|rule| {
            let target = &rule.target;
            rule.metric == metric
                && (target.namespace.is_none() || target.namespace.as_ref() == namespace)
                && meta::selects(&rule.selector, &pod.metadata)
        });
        let mut containers: BTreeMap<&str, i64> = BTreeMap::new();
        let whole = matching.find_map(|rule| match rule.target.container.as_deref() {
            None => Some(rule.usage),
            Some(name) if container == Some(name) => Some(rule.usage),
            Some(name) => {
                containers.entry(name).or_insert(rule.usage);
                None
            }
        });
        whole
            .or_else(|| {
                let sum = containers
                    .values()
                    .fold(0, |sum: i64, it| sum.saturating_add(*it));
                (container.is_none() && !containers.is_empty()).then_some(sum)
            })
            .or_else(|| annotated(meta::annotation(&pod.metadata, USAGE)?, metric))
    }

    /// Returns the value of an object or external metric, in thousandths.
    pub(super) fn value(&self, autoscaler: &HorizontalPodAutoscaler, metric: &str) -> Option<i64> {
        let rules = self.0.lock();
        let namespace = autoscaler.metadata.namespace.clone();
        let of = |namespace| rules.values.get(&(namespace, metric.to_owned())).copied();
        of(namespace)
            .or_else(|| of(None))
            .or_else(|| annotated(meta::annotation(&autoscaler.metadata, METRICS)?, metric))
    }
}

/// Finds a metric in a list such as `cpu=250m memory=100Mi`.
fn annotated(list: &str, metric: &str) -> Option<i64> {
    let pairs = list
        .split([' ', ','])
        .filter_map(|pair| pair.split_once('='));
    let (_, amount) = pairs.into_iter().find(|(name, _)| *name == metric)?;
    amount.parse().ok().as_ref().map(thousandths)
}

/// Converts an amount to thousandths, rounded up.
pub(super) fn thousandths(amount: &Quantity) -> i64 {
    match amount.as_integer() {
        Some(whole) => whole.saturating_mul(1000),
        None => (amount.as_approximate_float() * 1000.0).ceil() as i64,
    }
}

/// Why a load cannot be set.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLoad {
    /// The label selector is invalid.
    #[error(transparent)]
    Selector(#[from] InvalidSelector),
    /// The amount is not a quantity.
    #[error("invalid amount {amount:?}: {source}")]
    Amount {
        /// The amount.
        amount: String,
        /// Why it is invalid.
        source: QuantityError,
    },
}

/// Selects Pods, to set their usage; see [`Cluster::load`](crate::Cluster::load).
#[derive(Clone, Debug)]
#[must_use = "a selection has no effect until a load is set"]
pub struct Load {
    loads: Loads,
    target: Target,
}

impl Load {
    pub(crate) fn new(loads: Loads) -> Self {
        Self {
            loads,
            target: Target {
                namespace: None,
                selector: String::new(),
                container: None,
            },
        }
    }

    /// Limits the selection to the Pods whose labels match, for example `"app=web"`. The syntax is
    /// that of `kubectl -l`.
    pub fn matching(mut self, selector: impl Into<String>) -> Self {
        self.target.selector = selector.into();
        self
    }

    /// Limits the selection to one namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.target.namespace = Some(namespace.into());
        self
    }

    /// Limits the selection to one container of each Pod.
    pub fn container(mut self, name: impl Into<String>) -> Self {
        self.target.container = Some(name.into());
        self
    }

    /// Sets how much of a resource or other metric each selected Pod uses, including Pods created
    /// later. It takes precedence over the annotation `pintle.dev/usage` of a Pod and over earlier
    /// loads.
    ///
    /// # Errors
    ///
    /// Fails if the selector or the amount is invalid.
    pub fn uses(&self, metric: &str, amount: &str) -> Result<(), InvalidLoad> {
        let rule = Rule {
            target: self.target.clone(),
            selector: self.target.selector.parse()?,
            metric: metric.to_owned(),
            usage: parsed(amount)?,
        };
        let mut rules = self.loads.0.lock();
        let is_other = |other: &Rule| other.target != rule.target || other.metric != rule.metric;
        rules.pods.retain(is_other);
        rules.pods.push(rule);
        Ok(())
    }

    /// Sets the value of an object or external metric in the selected namespace, or in all. It
    /// takes precedence over the annotation `pintle.dev/metrics` of an autoscaler.
    ///
    /// # Errors
    ///
    /// Fails if the amount is invalid.
    pub fn value(&self, metric: &str, amount: &str) -> Result<(), InvalidLoad> {
        let key = (self.target.namespace.clone(), metric.to_owned());
        self.loads.0.lock().values.insert(key, parsed(amount)?);
        Ok(())
    }
}

fn parsed(amount: &str) -> Result<i64, InvalidLoad> {
    let parsed = amount.parse::<Quantity>();
    let parsed = parsed.map_err(|source| InvalidLoad::Amount {
        amount: amount.to_owned(),
        source,
    })?;
    Ok(thousandths(&parsed))
}
