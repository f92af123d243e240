//! Writes of a former leader.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{Oracle, Violation};
use crate::trace::{Request, Trace};

/// How long a change of the holder takes to be applied, and to be noticed.
const SETTLED: Duration = Duration::from_millis(500);

/// Reports a write by a process whose Lease another process had taken over.
///
/// Only writes that were issued after the Lease had been taken over count. Earlier ones may arrive
/// late, and only the API server could reject them. It does not matter whether a write changed
/// something: its successor may have made the same change.
pub(super) fn written_without(trace: &Trace) -> Option<Violation> {
    let mut all: Vec<&Request> = trace
        .requests
        .iter()
        .filter(|request| request.target.verb.is_write())
        .collect();
    all.sort_by_key(|request| {
        if is_lease(request) {
            request.at + SETTLED
        } else {
            request.issued
        }
    });
    // By Lease: the holder, and the identity under which each process held it.
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let mut identities: BTreeMap<(String, u32), String> = BTreeMap::new();
    for request in all {
        if is_lease(request) {
            let Some(commit) = request.commits.last() else {
                continue;
            };
            if let Some(holder) = holder(&request.body) {
                let process = (commit.key.clone(), request.process);
                if !holder.is_empty() {
                    identities.insert(process, holder.clone());
                }
                holders.insert(commit.key.clone(), holder);
            }
            continue;
        }
        let applied = request.status.is_some_and(|code| code < 300) || request.changed_state();
        if request.target.is_bookkeeping() || !applied {
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

fn is_lease(request: &Request) -> bool {
    request.target.resource.plural == "leases"
}

/// Returns the holder that a write of a Lease sets.
fn holder(body: &[u8]) -> Option<String> {
    let lease: Value = serde_json::from_slice(body).ok()?;
    let holder = lease["spec"].get("holderIdentity")?;
    Some(holder.as_str().unwrap_or_default().to_owned())
}
