//! Resource quotas: how much of a quota an object uses.
//!
//! Admission charges a quota for every new object, and a controller recounts the existing ones.
//! They have to agree, so both use this module: admission in this crate, and the quota controller
//! of `pintle-cluster` or your own through [`Quota`].

mod pod;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use self::usage::kind_of;
pub(crate) use self::usage::{claim_class, is_ignored};
pub(crate) use self::{
    pod::{specified as specified_by_pod, unmet as unmet_by_pod},
    usage::Evaluator,
};
use crate::schema::typed::quantity::Amount;

/// Amounts by resource name.
pub(crate) type Amounts = BTreeMap<String, Amount>;

/// The limits and scopes of a `ResourceQuota`.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::quota::Quota;
/// use serde_json::json;
///
/// let quota = Quota::new(&json!({"hard": {"pods": "10", "requests.cpu": "4"}}));
/// assert_eq!(quota.kinds(), [(String::new(), "pods".to_owned())].into());
///
/// let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
///     {"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}});
/// let used = quota.used(&[("", "pods", &[&pod, &pod])], jiff::Timestamp::UNIX_EPOCH);
/// assert_eq!(used["pods"], "2");
/// assert_eq!(used["requests.cpu"], "1");
/// ```
#[derive(Debug, Clone)]
pub struct Quota {
    hard: BTreeSet<String>,
    scopes: Vec<Scope>,
}

/// A requirement that objects have to meet to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

/// The objects of one kind: its group, its plural, and the objects as JSON.
pub type Objects<'a> = (&'a str, &'a str, &'a [&'a Value]);

impl Quota {
    /// Reads the spec of a `ResourceQuota`.
    pub fn new(spec: &Value) -> Self {
        let hard = spec["hard"].as_object().into_iter().flatten();
        Self {
            hard: hard.map(|(name, _)| name.clone()).collect(),
            scopes: Scope::read_all(spec),
        }
    }

    /// Returns the group and plural of every kind that counts towards the quota.
    pub fn kinds(&self) -> BTreeSet<(String, String)> {
        let kinds = self.hard.iter().filter_map(|name| kind_of(name));
        kinds
            .filter(|(group, plural)| !is_ignored(group, plural))
            .collect()
    }

    /// Returns how much of the quota the objects use, for each limit that counts one of their
    /// kinds.
    pub fn used(&self, objects: &[Objects<'_>], now: Timestamp) -> BTreeMap<String, String> {
        let mut used = Amounts::new();
        let counted = objects
            .iter()
            .filter(|(group, plural, _)| !is_ignored(group, plural));
        for (group, plural, objects) in counted {
            let evaluator = Evaluator::of(group, plural);
            for name in self.hard.iter().filter(|name| evaluator.counts(name)) {
                used.entry(name.clone()).or_default();
            }
            for object in *objects {
                if !self
                    .scopes
                    .iter()
                    .all(|scope| evaluator.is_in(scope, object))
                {
                    continue;
                }
                for (name, amount) in evaluator.usage(object, now) {
                    if let Some(total) = used.get_mut(&name) {
                        *total = total.plus(&amount);
                    }
                }
            }
        }
        let used = used.into_iter();
        used.map(|(name, amount)| (name, amount.to_string()))
            .collect()
    }
}

impl Scope {
    /// Reads the scopes of a `ResourceQuota`.
    pub(crate) fn read_all(spec: &Value) -> Vec<Self> {
        let texts = |list: &Value| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let plain = texts(&spec["scopes"]).into_iter().map(|name| Self {
            name,
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selector = spec["scopeSelector"]["matchExpressions"].as_array();
        let selected = selector.into_iter().flatten().map(|one| Self {
            name: one["scopeName"].as_str().unwrap_or_default().to_owned(),
            operator: one["operator"].as_str().unwrap_or_default().to_owned(),
            values: texts(&one["values"]),
        });
        plain.chain(selected).collect()
    }

    /// Returns true if a label-like value meets the requirement. An empty one counts as absent.
    fn selects(&self, value: &str) -> bool {
        let among = self.values.iter().any(|known| known == value);
        match self.operator.as_str() {
            "In" => !value.is_empty() && among,
            "NotIn" => value.is_empty() || !among,
            "Exists" => !value.is_empty(),
            _ => value.is_empty(),
        }
    }
}

/// Returns what a Pod requests as a whole, as a scheduler counts it: with its init containers,
/// sidecars, overhead and pod-level resources. Amounts are in whole units (thousandths for `cpu`),
/// rounded up.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::quota::pod_requests;
/// use serde_json::json;
///
/// let pod = json!({"spec": {"overhead": {"cpu": "50m"}, "containers": [
///     {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Ki"}}}]}});
/// assert_eq!(pod_requests(&pod), [("cpu".into(), 1050), ("memory".into(), 1024)].into());
/// ```
pub fn pod_requests(pod: &Value) -> BTreeMap<String, i64> {
    let requests = pod::requests(pod).into_iter();
    requests
        .map(|(name, amount)| {
            let units = units(&name, &amount);
            (name, units)
        })
        .collect()
}

/// Reads a quantity of a resource, such as one in a Node's status. Returns `None` if it is invalid.
/// Amounts are in whole units (thousandths for `cpu`), rounded up.
///
/// # Examples
///
/// ```
/// use pintle_apiserver::quota::resource_amount;
///
/// assert_eq!(resource_amount("cpu", "1.1"), Some(1100));
/// assert_eq!(resource_amount("memory", "2Ki"), Some(2048));
/// assert_eq!(resource_amount("memory", "a lot"), None);
/// ```
pub fn resource_amount(resource: &str, quantity: &str) -> Option<i64> {
    Amount::parse(quantity).map(|amount| units(resource, &amount))
}

/// Returns the amount in whole units (thousandths for `cpu`), rounded up.
#[allow(
    clippy::cast_possible_truncation,
    reason = "amounts beyond 64 bits saturate"
)]
pub(crate) fn units(resource: &str, amount: &Amount) -> i64 {
    // Subtract the conversion error of the float, which must not round up.
    const ERROR: f64 = 1e-6;
    let scale = if resource == "cpu" { 1000.0 } else { 1.0 };
    (amount.as_f64() * scale - ERROR).ceil() as i64
}

/// Reads a map of quantities.
pub(crate) fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    let read =
        |(name, amount): (&String, &Value)| Some((name.clone(), Amount::parse(amount.as_str()?)?));
    entries.filter_map(read).collect()
}

/// Formats amounts as errors do: `cpu=1,pods=2`.
pub(crate) fn pretty(amounts: &Amounts) -> String {
    let parts = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"));
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
