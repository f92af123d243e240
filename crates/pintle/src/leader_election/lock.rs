//! The Lease as one replica sees and writes it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ObjectMeta, PostParams, WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::{
    JITTER, LeaderElection, Leadership,
    lease::{self, Observed},
    metrics::Counters,
};
use crate::clock;

/// How long the API server may keep one watch of a candidate open.
const WATCH_SECONDS: u32 = 290;

/// The state that a candidate shares with its terms.
pub(super) struct Shared {
    pub(super) settings: LeaderElection,
    pub(super) identity: String,
    pub(super) api: Api<Lease>,
    pub(super) leadership: Leadership,
    pub(super) counters: Counters,
}

/// Why a request for the Lease failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Refused(#[from] kube::Error),
    #[error("no response within {0:?}")]
    Timeout(Duration),
}

impl Failure {
    /// Returns whether the Lease was changed, or created, since it was read.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 409)
    }
}

/// Returns whether the API server may have executed a request without this replica knowing.
fn is_unanswered<T>(answer: &Result<T, Failure>) -> bool {
    match answer {
        Ok(_) | Err(Failure::Refused(kube::Error::Api(_))) => false,
        Err(_) => true,
    }
}

/// The outcome of one attempt to acquire the Lease.
enum Attempt {
    /// Acquired by a request that was sent at this time.
    Won(Instant),
    /// Held by another replica until this time, or longer if it renews.
    Held(Instant),
}

/// The Lease as this replica last saw it.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) shared: Arc<Shared>,
    lease: Option<Lease>,
    observed: Option<Observed>,
    /// Whether a claim has been sent and not been answered.
    pub(super) claiming: bool,
}

impl Lock {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            lease: None,
            observed: None,
            claiming: false,
        }
    }

    /// Competes for the Lease until this replica has it; returns the time at which the winning
    /// request was sent.
    pub(super) async fn win(&mut self) -> Instant {
        let mut failures: u32 = 0;
        loop {
            match self.attempt().await {
                Ok(Attempt::Won(sent)) => return sent,
                Ok(Attempt::Held(until)) => {
                    failures = 0;
                    self.wait_until_free(until).await;
                }
                // Another replica was faster. Wait for its Lease right away: a candidate that
                // pauses first would miss a release in the meantime.
                Err(error) if error.is_conflict() && failures == 0 => failures = 1,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let (lease, wait) = (self.shared.leadership.lease(), self.shared.pause());
                    // Log often enough to be noticed in an outage, but not once per attempt.
                    if failures.is_power_of_two() {
                        warn!(lease, %error, failures, retry_in = ?wait, "cannot acquire the lease; retrying");
                    }
                    sleep(wait).await;
                }
            }
        }
    }

    /// Reads the Lease and claims it if it is free.
    async fn attempt(&mut self) -> Result<Attempt, Failure> {
        let shared = Arc::clone(&self.shared);
        let (api, name) = (&shared.api, shared.settings.name.as_str());
        let found = shared.request(api.get_opt(name)).await?;
        let exists = found.is_some();
        if let Some(lease) = found {
            self.observe(lease);
        }
        // Deleting a Lease does not end the term of its holder, which may not have noticed yet.
        if let Some(until) = self.held_until(Instant::now()) {
            return Ok(Attempt::Held(until));
        }
        if exists {
            return self.replace().await.map(Attempt::Won);
        }
        let sent = Instant::now();
        let lease = self.claim(None);
        let params = PostParams::default();
        self.claiming = true;
        let created = shared.request(api.create(&params, &lease)).await;
        self.claiming = is_unanswered(&created);
        self.observe(created?);
        Ok(Attempt::Won(sent))
    }

    /// Renews the Lease; returns the time at which the request was sent, or `None` if the Lease is
    /// no longer ours.
    pub(super) async fn renew(&mut self) -> Result<Option<Instant>, Failure> {
        // Only the holder writes a Lease that is held, so it is normally as we left it.
        if let Ok(sent) = self.replace().await {
            return Ok(Some(sent));
        }
        let shared = Arc::clone(&self.shared);
        shared.counters.slow_path.inc();
        let name = shared.settings.name.as_str();
        let lease = shared.request(shared.api.get_opt(name)).await?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(lease::holder).map(str::to_owned);
        match lease {
            Some(lease) => self.observe(lease),
            None => shared.leadership.observe(None),
        }
        if holder.as_deref() != Some(&shared.identity) {
            return Ok(None);
        }
        self.replace().await.map(Some)
    }

    /// Writes a claim over the Lease as it was last seen; returns the time at which the request was
    /// sent.
    ///
    /// Its `resourceVersion` makes the API server reject the claim if another replica wrote in the
    /// meantime.
    async fn replace(&mut self) -> Result<Instant, Failure> {
        let shared = Arc::clone(&self.shared);
        let claim = self.claim(self.lease.clone());
        let (params, name) = (PostParams::default(), shared.settings.name.as_str());
        let sent = Instant::now();
        self.claiming = true;
        let replaced = shared.api.replace(name, &params, &claim);
        let replaced = shared.request(replaced).await;
        self.claiming = is_unanswered(&replaced);
        self.observe(replaced?);
        Ok(sent)
    }

    fn claim(&self, lease: Option<Lease>) -> Lease {
        let settings = &self.shared.settings;
        let before = lease.as_ref().and_then(|lease| lease.spec.clone());
        let before = lease.as_ref().map(|_| before.unwrap_or_default());
        let observed = self.observed.as_ref();
        let claim = lease::Claim {
            identity: &self.shared.identity,
            lease_duration: settings.lease_duration,
            now: settings.clock.now(),
            unchanged: observed.map_or(Duration::ZERO, |seen| seen.unchanged(Instant::now())),
        };
        let mut metadata = lease.map_or_else(
            || ObjectMeta {
                name: Some(settings.name.clone()),
                namespace: Some(settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            |lease| lease.metadata,
        );
        if !settings.labels.is_empty() {
            let labels = metadata.labels.get_or_insert_default();
            labels.extend(settings.labels.clone());
        }
        Lease {
            metadata,
            spec: Some(claim.over(before)),
        }
    }

    fn observe(&mut self, lease: Lease) {
        let spec = lease.spec.clone().unwrap_or_default();
        self.shared.leadership.observe(lease::holder(&spec));
        let now = Instant::now();
        match &mut self.observed {
            Some(observed) => observed.update(spec, now),
            None => self.observed = Some(Observed::new(spec, now)),
        }
        self.lease = Some(lease);
    }

    fn held_until(&self, now: Instant) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        observed.held_until(&self.shared.identity, now)
    }

    pub(super) fn transitions(&self) -> i32 {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.map_or(0, lease::transitions)
    }

    /// Waits until the Lease, which is believed to be held until `until`, may be free.
    ///
    /// Follows the Lease by a watch, so that a release is seen immediately. A watch that lags or
    /// fails can only delay this replica: every attempt begins with a read.
    async fn wait_until_free(&mut self, mut until: Instant) {
        let shared = Arc::clone(&self.shared);
        let metadata = self.lease.as_ref().map(|lease| &lease.metadata);
        let version = metadata.and_then(|metadata| metadata.resource_version.clone());
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", shared.settings.name))
            .timeout(WATCH_SECONDS);
        let version = version.unwrap_or_default();
        let watch = shared.request(shared.api.watch(&params, &version)).await;
        let mut events = match watch {
            Ok(events) => std::pin::pin!(events),
            Err(error) => {
                debug!(lease = shared.leadership.lease(), %error, "cannot watch the lease; polling");
                return sleep_until(until.min(clock::after(Instant::now(), shared.pause()))).await;
            }
        };
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = sleep_until(until) => return,
            };
            match event {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    self.observe(lease);
                    match self.held_until(Instant::now()) {
                        Some(later) => until = later,
                        None => return,
                    }
                }
                Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                    let pause = clock::after(Instant::now(), shared.pause());
                    return sleep_until(until.min(pause)).await;
                }
            }
        }
    }

    /// Releases the Lease if this replica holds it; logs a failure.
    pub(super) async fn release_quietly(&mut self) {
        let limit = self.shared.settings.renew_deadline;
        let error = match timeout(limit, self.release()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => Failure::Timeout(limit),
        };
        let lease = self.shared.leadership.lease();
        warn!(lease, %error, "cannot release the lease; it will expire");
    }

    async fn release(&mut self) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let (api, name) = (&shared.api, shared.settings.name.as_str());
        loop {
            let Some(mut lease) = shared.request(api.get_opt(name)).await? else {
                return Ok(());
            };
            self.observe(lease.clone());
            let spec = lease.spec.take().unwrap_or_default();
            // Trust the server, not the local copy: a former leader must not release its
            // successor's Lease.
            if lease::holder(&spec) != Some(&shared.identity) {
                return Ok(());
            }
            lease.spec = Some(lease::released(spec, shared.settings.clock.now()));
            let params = PostParams::default();
            match shared.request(api.replace(name, &params, &lease)).await {
                Ok(released) => {
                    self.observe(released);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Shared {
    /// Returns until when a term may write if its last successful renewal was sent at `sent`.
    pub(super) fn until(&self, sent: Instant) -> Instant {
        clock::after(sent, self.settings.renew_deadline)
    }

    /// How long to wait before the next attempt.
    fn pause(&self) -> Duration {
        let factor = 1.0 + JITTER * self.settings.rng.f64();
        self.settings.retry_period.mul_f64(factor)
    }

    async fn request<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let limit = self.settings.request_timeout();
        match timeout(limit, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::Timeout(limit)),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("lease", &self.leadership.lease())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
