//! Reads of a full cache, by index and by selector.

use std::hint::black_box;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use pintle::cache::{Indexer, Lister, Reader, Selector};
use serde_json::Map;

use crate::{
    Flags,
    measure::{Outcome, Phase},
    small,
};

pub(crate) fn filled(objects: usize) -> Result<Indexer<Pod>> {
    let indexer = Indexer::<Pod>::new();
    indexer.index_field("node", "/spec/nodeName")?;
    let reader = Reader::<Pod>::new();
    for i in 0..objects {
        indexer.put(reader.read(small::pod(i, 1).as_bytes())?);
    }
    Ok(indexer)
}

fn by_index(lister: &Lister<Pod>, nodes: &[String], times: usize) -> Result<usize> {
    let mut found = 0;
    for i in 0..times {
        let pods = lister.by_index("node", &nodes[i * 7919 % nodes.len()])?;
        found += black_box(pods).len();
    }
    Ok(found)
}

fn by_selector(lister: &Lister<Pod>, selector: &Selector, times: usize) -> usize {
    (0..times)
        .map(|_| black_box(lister.list_matching(selector)).len())
        .sum()
}

pub(crate) fn reads(flags: &Flags) -> Result<Outcome> {
    let count = usize::try_from(flags.count())?;
    let lister = filled(flags.objects)?.lister();
    let nodes: Vec<String> = (0..flags.objects.div_ceil(20))
        .map(|node| format!("node-{node}"))
        .collect();
    let selector: Selector = "app=web-7".parse()?;
    by_index(&lister, &nodes, nodes.len())?;
    by_selector(&lister, &selector, 1);

    let phase = Phase::begin()?;
    let found_by_index = by_index(&lister, &nodes, count)?;
    let half = phase.so_far()?;
    let scans = (count / 10_000).max(10);
    let found_by_selector = by_selector(&lister, &selector, scans);
    let cost = phase.end()?;
    #[allow(clippy::cast_precision_loss, reason = "rounded for display")]
    let per = |sum: f64, times: usize| sum / times as f64;
    #[allow(clippy::cast_precision_loss, reason = "rounded for display")]
    let found = |sum: usize, times: usize| sum as f64 / times as f64;
    let extra = [
        ("by_index_ns", per(half * 1e9, count)),
        ("by_index_found", found(found_by_index, count)),
        ("selector_ns", per((cost.cpu_s() - half) * 1e9, scans)),
        ("selector_found", found(found_by_selector, scans)),
    ];
    let mut figures = Map::new();
    for (name, value) in extra {
        figures.insert(name.to_owned(), value.into());
    }
    Ok(Outcome {
        work: "reads",
        count: count as u64,
        cost,
        bytes_received: 0,
        extra: figures,
    })
}
