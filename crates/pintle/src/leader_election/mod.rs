//! Leader election: of several replicas of a program, at most one writes.
//!
//! Replicas compete for a `coordination.k8s.io/v1` Lease, by the same rules and in the same format
//! as client-go, so that Go and Rust replicas can share one. The holder renews the Lease every
//! [retry period](LeaderElection::retry_period); a candidate takes over when the holder gives it up
//! or has not changed it for a whole [lease duration](LeaderElection::lease_duration).
//!
//! ```text
//!              acquired                     resigned: released, taken over immediately
//! candidate ─────────────► leader (a Term) ─┤
//!     ▲                                     lost: not renewed within the renew deadline,
//!     └──────────── acquire again ────────  or another replica holds the Lease
//! ```
//!
//! Two things differ from client-go. A candidate watches the Lease rather than polling it, so a
//! hand-over takes milliseconds rather than seconds (without permission to watch, it polls). And
//! writes are gated: [`Leadership::gate`] returns a client that rejects writes outside this
//! replica's term and cancels writes in flight when the term ends.
//!
//! # What is promised
//!
//! - **One term at a time.** A term ends one renew deadline after the last successful renewal *was
//!   sent*. A candidate takes over one lease duration after it *saw* that renewal, which is later.
//!   In between, no replica starts a write for at least the difference of the two, five seconds by
//!   default. A term that is resigned ends before its Lease is released.
//! - **Wall clocks do not matter.** No replica compares timestamps of different machines. Each
//!   measures on its own monotonic clock how long the Lease has not changed. The holder's wall
//!   clock may be wrong, jump or stop: every renewal changes the Lease.
//! - **The holder's lease duration counts.** A candidate waits as long as `leaseDurationSeconds` in
//!   the Lease says, whatever its own settings are.
//! - **Writes stop with the term.** A gated client checks the monotonic clock before every write,
//!   so a process that was paused past its term finds the gate closed, and it cancels the writes
//!   that are in flight when the term ends.
//!
//! # What is not promised
//!
//! A Lease is not a lock: the API server does not check it when it executes a write. Two replicas
//! can have writes executed at the same time if
//!
//! - a write is in flight when its term is lost, and the network or the API server delays it by
//!   more than the difference between lease duration and renew deadline. Cancelling it does not
//!   recall it;
//! - a term is resigned while a write is in flight: the Lease is free immediately, so there is no
//!   time left for the write to arrive. Finish the work first, then [resign](Term::resign);
//! - the process is paused after the check and before the request leaves it, for longer than that
//!   difference. This affects only requests that have just passed the gate;
//! - the monotonic clocks of two machines run at rates that differ by more than the ratio of lease
//!   duration to renew deadline, or a machine's monotonic clock stops while it is suspended;
//! - something other than its holder writes or deletes the Lease. A candidate that has seen a Lease
//!   waits for it to expire even if it is deleted, but one that starts later finds nothing to wait
//!   for;
//! - the program writes with a client that is not gated, or continues to use a
//!   [connection](Leadership::gate) through the API server after its term.
//!
//! Where that could hurt, write with a `resourceVersion` precondition, as
//! [`replace`](kube::Api::replace) does: the API server then rejects a write that is based on a
//! stale state. Pass [`Term::transitions`] to other systems, so that they can reject a former
//! leader.
//!
//! # Sharing a Lease with client-go
//!
//! A replica that uses client-go follows the same rules, but three things are weaker:
//!
//! - It does not gate its writes. After a pause it may keep writing until its next failed renewal.
//! - As a candidate it compares the times in a Lease by whole seconds. If renewals are less than a
//!   second apart, it may take over up to a second early: make the lease duration exceed the renew
//!   deadline by more than that, as the defaults do.
//! - With `ReleaseOnCancel`, a leader that was paused during a renewal can release the Lease that
//!   its successor already holds. The successor notices at its next renewal.

mod elector;
mod gate;
mod leadership;
mod lease;
mod lock;
mod metrics;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, time::Duration};

use kube::Client;

pub use self::{
    elector::{Elector, Term},
    gate::NotLeading,
    leadership::Leadership,
};
use crate::{
    clock::{Clock, Rng},
    metrics::Metrics,
};

/// Configures a candidate for a Lease.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use pintle::leader_election::LeaderElection;
/// use tokio_util::sync::CancellationToken;
///
/// let shutdown = CancellationToken::new();
/// let mut elector = LeaderElection::new(client.clone(), "shop-operator").build()?;
/// let client = elector.leadership().gate(&client);
/// while let Some(term) = elector.acquire(&shutdown).await {
///     // Write with the gated client until the term ends.
///     term.ended().cancelled().await;
///     term.resign().await;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a candidate does nothing until it is built and acquires"]
pub struct LeaderElection {
    client: Client,
    namespace: String,
    name: String,
    identity: Option<String>,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
    labels: BTreeMap<String, String>,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
}

/// Why a candidate cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidElection {
    /// The Lease has no name.
    #[error("Lease name must not be empty")]
    Name,
    /// An empty holder means that no replica holds the Lease.
    #[error("the identity must not be empty")]
    Identity,
    /// The Lease could expire while its holder still tries to renew it.
    #[error("lease duration {lease:?} must be greater than the renew deadline {renew:?}")]
    LeaseDuration {
        /// The requested lease duration.
        lease: Duration,
        /// The requested renew deadline.
        renew: Duration,
    },
    /// A Lease holds whole seconds.
    #[error("lease duration {0:?} must be a whole number of seconds, at most {max}", max = i32::MAX)]
    WholeSeconds(Duration),
    /// A single failed renewal would end the term.
    #[error("renew deadline {renew:?} must be greater than 1.2 times the retry period {retry:?}")]
    RenewDeadline {
        /// The requested renew deadline.
        renew: Duration,
        /// The requested retry period.
        retry: Duration,
    },
    /// The Lease would be renewed without pause.
    #[error("the retry period must be greater than zero")]
    RetryPeriod,
}

/// The jitter of waits between attempts, as in client-go.
const JITTER: f64 = 1.2;

impl LeaderElection {
    /// Creates a candidate for the Lease `name` in the client's default namespace, with client-go's
    /// timing: a lease duration of 15 s, a renew deadline of 10 s and a retry period of 2 s.
    ///
    /// `client` must not be gated: it writes the Lease itself.
    pub fn new(client: Client, name: impl Into<String>) -> Self {
        Self {
            namespace: client.default_namespace().to_owned(),
            client,
            name: name.into(),
            identity: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            labels: BTreeMap::new(),
            clock: Clock::default(),
            rng: Rng::default(),
            metrics: Metrics::new(),
        }
    }

    /// Returns the namespace of the Lease.
    pub(crate) fn in_namespace(&self) -> &str {
        &self.namespace
    }

    /// Sets the namespace of the Lease.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the name under which this replica holds the Lease.
    ///
    /// It must be unique to the process: two processes with one identity both believe that they
    /// lead. By default it is the host's name and a random UUID.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Sets how long candidates wait after the last change of a Lease before they take it over.
    ///
    /// A replica that dies without releasing its Lease leaves the program without a leader for this
    /// long.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// Sets how long the leader continues to lead after its last successful renewal.
    ///
    /// The lease duration minus this is the time in which no replica writes. It has to cover
    /// requests that are in flight when a term ends.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = deadline;
        self
    }

    /// Sets how often the leader renews its Lease, and how long candidates wait after a failure.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period;
        self
    }

    /// Adds a label that the holder sets on the Lease. Other labels of the Lease are left alone.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Sets the clock whose time is written into the Lease. It is informational: no decision
    /// depends on it.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of jitter and of the default identity.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Sets where metrics are registered.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Builds the candidate.
    ///
    /// # Errors
    ///
    /// Returns an error if the name or identity is empty, the lease duration is not a whole number
    /// of seconds, or the durations cannot work together by client-go's rules.
    pub fn build(self) -> Result<Elector, InvalidElection> {
        self.validate()?;
        Ok(Elector::new(self))
    }

    fn validate(&self) -> Result<(), InvalidElection> {
        let (lease, renew) = (self.lease_duration, self.renew_deadline);
        if self.name.is_empty() {
            return Err(InvalidElection::Name);
        }
        if self.identity.as_deref() == Some("") {
            return Err(InvalidElection::Identity);
        }
        if self.retry_period.is_zero() {
            return Err(InvalidElection::RetryPeriod);
        }
        if lease.subsec_nanos() != 0 || i32::try_from(lease.as_secs()).is_err() {
            return Err(InvalidElection::WholeSeconds(lease));
        }
        if lease <= renew {
            return Err(InvalidElection::LeaseDuration { lease, renew });
        }
        let retry = self.retry_period;
        if renew.as_secs_f64() <= retry.as_secs_f64() * JITTER {
            return Err(InvalidElection::RenewDeadline { renew, retry });
        }
        Ok(())
    }

    /// How long one request for the Lease may take: short enough for a second one before the renew
    /// deadline.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    fn default_identity(&self) -> String {
        let named = |name: &String| !name.is_empty();
        let host = std::env::var("HOSTNAME").ok().filter(named);
        let host = host.or_else(|| {
            let name = std::fs::read_to_string("/etc/hostname").ok()?;
            Some(name.trim().to_owned()).filter(named)
        });
        let host = host.unwrap_or_else(|| "pintle".to_owned());
        format!("{host}_{}", self.rng.uuid())
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("lease_duration", &self.lease_duration)
            .field("renew_deadline", &self.renew_deadline)
            .field("retry_period", &self.retry_period)
            .finish_non_exhaustive()
    }
}
