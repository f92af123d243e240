//! The elections of a manager: one Lease for each group of components.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Component, Left, ManagerError,
    builder::{Common, Configure},
    run::{Control, Member, run_all},
};
use crate::leader_election::{Elector, LeaderElection, Term};

/// How long a new leader waits for watches that an outage has broken.
const WATCHES_WITHIN: Duration = Duration::from_secs(30);
/// How often a standby looks for keys of objects that are gone.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// How the manager's elections are held.
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

/// The components that one election decides about.
pub(super) struct Group {
    /// The name of the Lease.
    pub(super) name: String,
    pub(super) elector: Elector,
    pub(super) members: Vec<Component>,
}

/// Competes for a Lease and runs the members during every term, until `stop`. Returns what was left
/// at the end.
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
        wait_for_watches(&control, &term).await;
        let dropped = run_all(&members, &control, term.ended()).await;
        // Members may end by themselves, but the Lease is held to the end of the term: another
        // replica must not start them again.
        term.ended().cancelled().await;
        if dropped.is_empty() {
            // Members have stopped, so another replica may start. A lost Lease is not released.
            term.resign().await;
        } else {
            // What was dropped may still be on its way.
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

/// Waits until the caches follow the API server: after an outage the Lease may be free before the
/// watches are open again, and the caches show a past that another leader has changed since.
async fn wait_for_watches(control: &Control, term: &Term) {
    let watching = control.informers().wait_for_watches(WATCHES_WITHIN);
    let stale = tokio::select! {
        biased;
        () = term.ended().cancelled() => return,
        stale = watching => stale,
    };
    if !stale.is_empty() {
        let informers = stale.join(", ");
        warn!(
            informers,
            "caches have no watch at the start of a term; working from what they show"
        );
    }
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
