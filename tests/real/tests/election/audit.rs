//! Reads from the audit log which replica wrote when and which one held the Lease, in commit order.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde::Deserialize;

/// A change of the Lease.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Its `resourceVersion`, which orders all objects of one etcd.
    pub(super) revision: u64,
    /// Empty if no replica holds it.
    pub(super) holder: String,
    /// The server's time.
    pub(super) at: Timestamp,
    /// The holder's time.
    pub(super) renewed: Timestamp,
}

/// A ConfigMap that a replica created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) revision: u64,
    pub(super) writer: String,
    pub(super) at: Timestamp,
}

/// The record of one Lease and of all writes in its namespace, both by revision.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) changes: Vec<Change>,
    pub(super) writes: Vec<Write>,
}

/// The relevant contents of an audit event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    response_object: Option<serde_json::Value>,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct ObjectRef {
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

impl History {
    /// Reads the audit log. `revision_of` returns the `resourceVersion` of a ConfigMap, which
    /// nothing changes after its creation.
    pub(super) fn read(
        log: &str,
        namespace: &str,
        lease: &str,
        revision_of: impl Fn(&str) -> Option<u64>,
    ) -> Self {
        let mut history = Self::default();
        for line in log.lines() {
            let event: Event = serde_json::from_str(line).unwrap();
            let (Some(object), Some(status)) = (event.object_ref, event.response_status) else {
                continue;
            };
            if object.namespace != namespace || !(200..300).contains(&status.code) {
                continue;
            }
            match object.resource.as_str() {
                "leases" if object.name == lease => {
                    let lease: Lease =
                        serde_json::from_value(event.response_object.unwrap()).unwrap();
                    let spec = lease.spec.unwrap_or_default();
                    history.changes.push(Change {
                        revision: lease.metadata.resource_version.unwrap().parse().unwrap(),
                        holder: spec.holder_identity.unwrap_or_default(),
                        at: event.stage_timestamp,
                        renewed: spec.renew_time.unwrap().0,
                    });
                }
                "configmaps" => {
                    // Others, such as kube-root-ca.crt, have no number.
                    let name = object.name.rsplit_once('.');
                    let Some((writer, _)) = name.filter(|(_, n)| n.parse::<u64>().is_ok()) else {
                        continue;
                    };
                    history.writes.push(Write {
                        revision: revision_of(&object.name).unwrap(),
                        writer: writer.to_owned(),
                        at: event.stage_timestamp,
                    });
                }
                _ => {}
            }
        }
        history.changes.sort_by_key(|change| change.revision);
        history.writes.sort_by_key(|write| write.revision);
        history
    }

    /// Returns the writes that were committed while their writer did not hold the Lease.
    pub(super) fn outside_a_term(&self) -> Vec<&Write> {
        let outside = |write: &&Write| {
            let after = self
                .changes
                .partition_point(|change| change.revision < write.revision);
            let before = after.checked_sub(1).map(|index| &self.changes[index]);
            before.is_none_or(|change| change.holder != write.writer)
        };
        self.writes.iter().filter(outside).collect()
    }

    /// Returns how long after `since` a replica other than `former` acquired the Lease, and how
    /// long until it wrote.
    pub(super) fn takeover(
        &self,
        former: &str,
        since: Timestamp,
    ) -> (SignedDuration, SignedDuration) {
        let other = |holder: &str| !holder.is_empty() && holder != former;
        let mut changes = self.changes.iter();
        let acquired = changes.find(|change| change.at >= since && other(&change.holder));
        let acquired = acquired.unwrap_or_else(|| panic!("no replica succeeded {former}"));
        let mut writes = self.writes.iter();
        let wrote = writes
            .find(|write| write.revision > acquired.revision && write.writer == acquired.holder);
        let wrote = wrote.unwrap_or_else(|| panic!("{} never wrote", acquired.holder));
        (
            acquired.at.duration_since(since),
            wrote.at.duration_since(since),
        )
    }

    /// Returns the longest time without a write between two points in time.
    pub(super) fn longest_gap(&self, from: Timestamp, to: Timestamp) -> SignedDuration {
        let times = self.writes.iter().map(|write| write.at);
        let mut times: Vec<_> = times.filter(|at| (from..to).contains(at)).collect();
        times.extend([from, to]);
        times.sort_unstable();
        let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        gaps.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
