//! Reads of a full store. There is no index; a filter over all objects replaces it.

use std::hint::black_box;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    core::Selector,
    runtime::reflector::{self, Store},
};

use crate::{
    Flags,
    measure::{Phase, cpu_seconds},
    small,
};

fn by_node(store: &Store<Pod>, nodes: &[String], times: usize) -> usize {
    (0..times)
        .map(|i| {
            let node = &nodes[i * 7919 % nodes.len()];
            let pods = store.state_filter(|pod| {
                pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(node)
            });
            black_box(pods).len()
        })
        .sum()
}

fn by_selector(store: &Store<Pod>, selector: &Selector, times: usize) -> usize {
    (0..times)
        .map(|_| black_box(store.state_filter_selector(selector)).len())
        .sum()
}

pub async fn run(flags: &Flags) -> Result<Phase> {
    let (store, mut writer) = reflector::store();
    small::fill(&mut writer, flags.objects);
    let nodes: Vec<String> = (0..flags.objects.div_ceil(20))
        .map(|node| format!("node-{node}"))
        .collect();
    let selector: Selector =
        kube::core::Expression::Equal("app".to_owned(), "web-7".to_owned()).into();
    by_node(&store, &nodes, 1);
    by_selector(&store, &selector, 1);

    let scans = (flags.count / 10_000).max(10);
    let mut phase = Phase::begin()?;
    let start = cpu_seconds()?;
    let found_by_node = by_node(&store, &nodes, scans);
    let middle = cpu_seconds()?;
    let found_by_selector = by_selector(&store, &selector, scans);
    let end = cpu_seconds()?;
    phase.end()?;
    #[allow(clippy::cast_precision_loss, reason = "rounded for display")]
    let (times, by_node, by_selector) =
        (scans as f64, found_by_node as f64, found_by_selector as f64);
    let extra = [
        ("by_index_ns", serde_json::Value::Null),
        ("by_index_reason", "no index".into()),
        ("by_filter_ns", ((middle - start) / times * 1e9).into()),
        ("by_filter_found", (by_node / times).into()),
        ("selector_ns", ((end - middle) / times * 1e9).into()),
        ("selector_found", (by_selector / times).into()),
    ];
    phase
        .extra
        .extend(extra.map(|(name, value)| (name.to_owned(), value)));
    phase.keep(writer);
    Ok(phase)
}
