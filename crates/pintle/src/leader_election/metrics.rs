//! What an election counts, under client-go's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::metrics::{Families, MetricSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ElectionMetrics {
    status: Family<NameLabel, Gauge>,
    slow_path: Family<NameLabel, Counter>,
    lost: Family<NameLabel, Counter>,
}

impl MetricSet for ElectionMetrics {
    fn register(&self, families: &mut Families) {
        families.register(
            "leader_election_master_status",
            "Whether this replica leads: 1 if it does, 0 if it does not",
            self.status.clone(),
        );
        families.register(
            "leader_election_slowpath",
            "Renewals that had to read the Lease first",
            self.slow_path.clone(),
        );
        families.register(
            "leader_election_lost",
            "Terms that ended because the Lease could not be renewed",
            self.lost.clone(),
        );
    }
}

impl ElectionMetrics {
    pub(super) fn of(&self, name: &str) -> Counters {
        let label = NameLabel {
            name: name.to_owned(),
        };
        Counters {
            leads: self.status.get_or_create_owned(&label),
            slow_path: self.slow_path.get_or_create_owned(&label),
            lost: self.lost.get_or_create_owned(&label),
        }
    }
}

/// The metrics of one Lease.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) leads: Gauge,
    pub(super) slow_path: Counter,
    pub(super) lost: Counter,
}
