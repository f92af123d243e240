//! Scores the nodes that can run a Pod: Kubernetes' default scores, in whole numbers.

use super::{
    affinity,
    pod::{PodInfo, Resources},
    spread,
    world::{NodeInfo, View},
};
use crate::pods::fit;

/// The best score of each criterion.
const MAX: i64 = 100;

/// Returns the best node: by highest score, then by fewest Pods, then by name.
pub(super) fn best<'a>(
    pod: &PodInfo,
    nodes: &[&'a NodeInfo],
    view: &View<'_>,
) -> Option<&'a NodeInfo> {
    if let [only] = nodes {
        return Some(only);
    }
    let weighted = [
        (3, taints(pod, nodes)),
        (2, preferred_nodes(pod, nodes)),
        (
            1,
            nodes
                .iter()
                .map(|node| least_allocated(pod, node))
                .collect(),
        ),
        (2, spread::scores(pod, nodes, view)),
        (2, affinity::scores(pod, nodes, view)),
        (1, nodes.iter().map(|node| balanced(pod, node)).collect()),
    ];
    let total = |index: usize| -> i64 {
        let scores = weighted.iter();
        scores.map(|(weight, scores)| weight * scores[index]).sum()
    };
    // `nodes` are sorted by name, and `min_by_key` returns the first of equal ones.
    let best = nodes.iter().enumerate();
    let best = best.min_by_key(|(index, node)| (-total(*index), node.pods.len()));
    best.map(|(_, node)| *node)
}

/// Scales scores so that the highest becomes the best, or the worst if they are `reversed`.
fn normalized(scores: Vec<i64>, reversed: bool) -> Vec<i64> {
    let max = scores.iter().max().copied().unwrap_or_default();
    let scaled = |score| if max == 0 { 0 } else { MAX * score / max };
    let scores = scores.into_iter().map(scaled);
    scores
        .map(|score| if reversed { MAX - score } else { score })
        .collect()
}

/// Prefers nodes with fewer `PreferNoSchedule` taints that the Pod does not tolerate.
fn taints(pod: &PodInfo, nodes: &[&NodeInfo]) -> Vec<i64> {
    let spec = pod.pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let count = |node: &&NodeInfo| fit::untolerated_preferences(tolerations, &node.node);
    normalized(nodes.iter().map(count).collect(), true)
}

/// Prefers the nodes that the preferred node affinity matches.
fn preferred_nodes(pod: &PodInfo, nodes: &[&NodeInfo]) -> Vec<i64> {
    let weight = |node: &&NodeInfo| {
        let spec = pod.pod.spec.as_ref();
        spec.map_or(0, |spec| fit::preference(spec, &node.node))
    };
    normalized(nodes.iter().map(weight).collect(), false)
}

/// Prefers nodes with more free CPU and memory.
fn least_allocated(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let free = usages(&pod.scored, &node.scored, node);
    let scores = free.map(|(requested, _, capacity)| {
        let free = (capacity - requested).max(0);
        i64::try_from(i128::from(free) * i128::from(MAX) / i128::from(capacity)).unwrap_or(MAX)
    });
    let scores: Vec<i64> = scores.collect();
    let count = i64::try_from(scores.len()).unwrap_or(1);
    scores.into_iter().sum::<i64>() / count.max(1)
}

/// Prefers nodes whose CPU and memory would be used more evenly than without the Pod.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "fractions between 0 and 1"
)]
fn balanced(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let amount = |name| pod.requests.get(name).copied().unwrap_or_default();
    if amount("cpu") == 0 && amount("memory") == 0 {
        return 0;
    }
    let usages: Vec<_> = usages(&pod.requests, &node.requested, node).collect();
    let score = |of: fn(&(i64, i64, i64)) -> i64| {
        let fraction = |usage: &(i64, i64, i64)| (of(usage) as f64 / usage.2 as f64).min(1.0);
        let deviation = match usages.as_slice() {
            [cpu, memory] => ((fraction(cpu) - fraction(memory)) / 2.0).abs(),
            _ => 0.0,
        };
        ((1.0 - deviation) * MAX as f64) as i64
    };
    let (with, without) = (score(|usage| usage.0), score(|usage| usage.1));
    MAX / 2 + (MAX / 2 + with - without) / 2
}

/// Returns the requests with and without a Pod, and the capacity, for CPU and memory.
fn usages(
    wanted: &Resources,
    held: &Resources,
    node: &NodeInfo,
) -> impl Iterator<Item = (i64, i64, i64)> {
    ["cpu", "memory"].into_iter().filter_map(|name| {
        let of = |amounts: &Resources| amounts.get(name).copied().unwrap_or_default();
        let (wanted, held, capacity) = (of(wanted), of(held), of(&node.allocatable));
        (capacity > 0).then_some((held + wanted, held, capacity))
    })
}
