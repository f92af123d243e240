//! Writes of a former leader.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Oracle, Violation};
use crate::{
    gateway::request::is_bookkeeping,
    plan::Fault,
    trace::{Commit, Request, Trace},
};

/// A process wrote while another one held the Lease that it had held before.
///
/// Requests that the fault itself delayed do not count: they were sent in time, and only the API
/// server could refuse them.
pub(super) fn written_without(trace: &Trace) -> Option<Violation> {
    let late = [Fault::LateWrite, Fault::Paused].map(Fault::name);
    let mut all: Vec<(&Commit, &Request)> = trace
        .requests
        .iter()
        .flat_map(|request| request.commits.iter().map(move |commit| (commit, request)))
        .collect();
    all.sort_by_key(|(commit, _)| commit.revision);
    // By Lease: the holder, and the identity under which each process held it.
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let mut identities: BTreeMap<(String, u32), String> = BTreeMap::new();
    for (commit, request) in all {
        if commit.resource.plural == "leases" {
            if let Some(holder) = holder(&request.body) {
                let process = (commit.key.clone(), request.process);
                if !holder.is_empty() {
                    identities.insert(process, holder.clone());
                }
                holders.insert(commit.key.clone(), holder);
            }
            continue;
        }
        if is_bookkeeping(&commit.resource)
            || request.fault.as_ref().is_some_and(|it| late.contains(it))
        {
            continue;
        }
        for ((lease, process), identity) in &identities {
            let holder = holders.get(lease).map_or("", String::as_str);
            if *process == request.process && !holder.is_empty() && holder != identity {
                let text = format!(
                    "{} by process {process}, after another process took over the Lease {lease}",
                    request.fingerprint
                );
                return Some(Violation::new(Oracle::Fenced, text).at(request.step));
            }
        }
    }
    None
}

/// Returns the holder that a write of a Lease sets.
fn holder(body: &[u8]) -> Option<String> {
    let lease: Value = serde_json::from_slice(body).ok()?;
    let holder = lease["spec"].get("holderIdentity")?;
    Some(holder.as_str().unwrap_or_default().to_owned())
}
