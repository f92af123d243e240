//! The age of each Lease, computed when it is scraped.

use std::fmt;

use prometheus_client::{encoding::DescriptorEncoder, metrics::MetricType, registry::Unit};

use super::{LeaseAges, NameLabel};
use crate::{leader_election::Leadership, metrics::Encode};

impl Encode for LeaseAges {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let leaderships = self.0.lock();
        let age = |(name, leadership): (&String, &Leadership)| {
            Some((name.clone(), leadership.lease_age()?.as_secs_f64()))
        };
        let ages: Vec<(String, f64)> = leaderships.iter().filter_map(age).collect();
        drop(leaderships);
        if ages.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "leader_election_lease_age",
            "Time since this replica, which leads, last renewed the Lease.",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for (name, age) in ages {
            let label = NameLabel { name };
            family.encode_family(&label)?.encode_gauge(&age)?;
        }
        Ok(())
    }
}
