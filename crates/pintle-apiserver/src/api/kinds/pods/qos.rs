//! The quality of service class of a Pod.

use serde_json::Value;

use crate::quota::{Amounts, amounts};

/// The resources that determine the class.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Returns the class of a Pod spec: `Guaranteed` if the CPU and memory requests of all containers
/// equal their limits, `BestEffort` if there are none, and `Burstable` otherwise. Resources at Pod
/// level count instead of those of containers.
pub(super) fn class(spec: &Value) -> &'static str {
    let level = &spec["resources"];
    let all: Vec<&Value> = if level.is_object() {
        vec![level]
    } else {
        let lists = ["containers", "initContainers"].into_iter();
        let containers = lists.filter_map(|list| spec[list].as_array()).flatten();
        containers
            .map(|container| &container["resources"])
            .collect()
    };
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut limited = true;
    for resources in all {
        add(&mut requests, set(&resources["requests"]));
        let own = set(&resources["limits"]);
        limited &= own.len() == COMPUTE.len();
        add(&mut limits, own);
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Reads the amounts that are more than zero.
fn set(list: &Value) -> Amounts {
    let mut amounts = amounts(list);
    amounts.retain(|name, amount| {
        COMPUTE.contains(&name.as_str()) && !amount.is_zero() && !amount.is_negative()
    });
    amounts
}

fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let sum = total.entry(name).or_default();
        *sum = sum.plus(&amount);
    }
}
