//! The metrics of an election, under client-go's names where it has one.

#[cfg(feature = "metrics")]
mod encode;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::Leadership;
use crate::metrics::{Counter, Families, Family, Gauge, MetricSet, label_set};

label_set! {
    struct NameLabel {
        name: String,
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ElectionMetrics {
    status: Family<NameLabel, Gauge>,
    slow_path: Family<NameLabel, Counter>,
    lost: Family<NameLabel, Counter>,
    ages: LeaseAges,
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
        families.register_collector(self.ages.clone());
    }
}

impl ElectionMetrics {
    pub(super) fn of(&self, name: &str, leadership: &Leadership) -> Counters {
        let label = NameLabel {
            name: name.to_owned(),
        };
        let mut leaderships = self.ages.0.lock();
        leaderships.insert(name.to_owned(), leadership.clone());
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

/// The time since the last renewal of each Lease, computed when it is scraped. A standby, which
/// renews nothing, has none.
#[derive(Clone, Debug, Default)]
struct LeaseAges(Arc<Mutex<BTreeMap<String, Leadership>>>);
