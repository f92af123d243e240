//! The elections of a manager: one Lease for each group of components.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Component, Left, ManagerError,
    builder::{Common, Configure},
    member::{Member, run_all},
    run::Control,
};
use crate::leader_election::{Elector, LeaderElection};

/// How often a standby drops the keys of deleted objects.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// The settings of the manager's elections.
pub(super) struct ElectionPlan {
    base: Option<Configure>,
}

impl ElectionPlan {
    pub(super) fn new(base: Option<Configure>) -> Self {
        Self { base }
    }

    /// Returns a candidate for the Lease `name`.
    pub(super) fn candidate(&self, common: &Common, name: &str) -> Result<Elector, ManagerError> {
        let election = self.configured(common, name);
        election.build().map_err(|source| ManagerError::Election {
            name: name.to_owned(),
            source,
        })
    }

    /// Returns the namespace of the Leases.
    pub(super) fn namespace(&self, common: &Common) -> String {
        let election = self.configured(common, &common.name);
        election.in_namespace().to_owned()
    }

    fn configured(&self, common: &Common, name: &str) -> LeaderElection {
        let election = LeaderElection::new(common.client.clone(), name)
            .clock(common.clock.clone())
            .rng(common.rng.clone())
            .metrics(&common.metrics);
        match &self.base {
            Some(configure) => configure(election),
            None => election,
        }
    }
}

/// The components that share an election.
pub(super) struct Group {
    /// The name of the Lease.
    pub(super) name: String,
    pub(super) elector: Elector,
    pub(super) members: Vec<Component>,
}

/// Competes for a Lease and runs the members during every term, until `stop`. Returns the work that
/// the shutdown dropped.
pub(super) async fn lead(
    mut elector: Elector,
    members: Vec<Arc<Member>>,
    control: Arc<Control>,
    stop: CancellationToken,
) -> Vec<Left> {
    let mut left = Vec::new();
    let mut first = true;
    loop {
        let term = tokio::select! {
            biased;
            term = elector.acquire(&stop) => term,
            never = stand_by(&members) => match never {},
        };
        let Some(term) = term else { break };
        if !first {
            for member in &members {
                member.begin_another_term();
            }
        }
        first = false;
        let dropped = run_all(&members, &control, term.ended()).await;
        // Members may end early, but the Lease is held until the end of the term: another replica
        // must not start them again.
        term.ended().cancelled().await;
        if dropped.is_empty() {
            // Members have stopped, so another replica may start. A lost Lease is not released.
            term.resign().await;
        } else {
            // Requests of dropped reconciles may still be in flight.
            term.abandon().await;
        }
        if stop.is_cancelled() {
            left = dropped;
        }
    }
    for member in &members {
        member.close().await;
    }
    left
}

/// Bounds the queues of a standby.
async fn stand_by(members: &[Arc<Member>]) -> Infallible {
    loop {
        sleep(SWEEP_PERIOD).await;
        for member in members {
            member.drop_gone_keys().await;
        }
    }
}
