//! Client-side rate limits, like those of client-go.
//!
//! A controller that retries too eagerly can overload an API server. Servers with API priority and
//! fairness protect themselves better than clients can, so there is no limit by default. Where you
//! want one, [`RateLimit`] is a tower layer for the client;
//! [`build_limited`](crate::client::build_limited) installs it.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use http::Request;
use tokio::{sync::Mutex, time::Instant};
use tower::{Layer, Service, ServiceExt};

use crate::{
    metrics::{Families, Family, Histogram, MetricSet, Metrics, exponential_buckets, label_set},
    token_bucket::{Bucket, Quota},
};

/// Limits the requests of a client to a burst, then a rate, first come, first served.
///
/// Requests are divided into lanes, each with the full allowance, so that urgent requests never
/// wait behind others:
///
/// | lane | requests | limit |
/// |---|---|---|
/// | watches | `?watch=true` | none: one request lasts for hours |
/// | leases | coordination.k8s.io | its own |
/// | events | core and events.k8s.io events | its own |
/// | rest | everything else | its own |
///
/// A request that is cancelled while it waits consumes nothing. Clones share one allowance, as do
/// all clients built with one limit.
///
/// # Examples
/// ```no_run
/// # fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use kube::client::ClientBuilder;
/// use pintle::limits::RateLimit;
///
/// let limit = RateLimit::new(20.0, 30)?;
/// let client = ClientBuilder::try_from(config)?.with_layer(&limit).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RateLimit {
    lanes: Option<Arc<Lanes>>,
    metrics: LimitMetrics,
}

/// Why a limit is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The rate is not finite, too high to be timed, or so low that the burst would take decades to
    /// come back.
    #[error("invalid rate: {0} requests per second")]
    Rate(f64),
    /// A burst of zero would never let a request through.
    #[error("invalid burst: must be at least 1")]
    Burst,
}

impl RateLimit {
    /// Returns a limit of `qps` requests per second in the long run and `burst` at once.
    ///
    /// A `qps` of zero or less means no limit. Differs from client-go, where zero means its default
    /// of 5.
    ///
    /// # Errors
    ///
    /// Fails if the burst is zero, or the rate is not finite, too high to be timed or too low to
    /// ever refill the burst.
    pub fn new(qps: f64, burst: u32) -> Result<Self, InvalidLimit> {
        if qps <= 0.0 {
            return Ok(Self::unlimited());
        }
        if burst == 0 {
            return Err(InvalidLimit::Burst);
        }
        let period = Duration::try_from_secs_f64(qps.recip()).ok();
        let quota = period
            .filter(|period| !period.is_zero())
            .map(|period| Quota::new(period, burst))
            .filter(Quota::refills);
        let quota = quota.ok_or(InvalidLimit::Rate(qps))?;
        Ok(Self {
            lanes: Some(Arc::new(Lanes::new(quota))),
            metrics: LimitMetrics::default(),
        })
    }

    /// Returns a limit that delays no request.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Registers the metric for the time that requests wait.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.set();
        self
    }

    /// Waits until a request of `lane` may be sent.
    async fn admit(&self, lane: Lane) {
        let lanes = self.lanes.as_deref();
        if let Some(limiter) = lanes.and_then(|lanes| lanes.of(lane)) {
            let start = Instant::now();
            limiter.take().await;
            let lane = lane.as_str();
            let waited = self.metrics.waited.get_or_create_owned(&LaneLabel { lane });
            let took = start.elapsed();
            waited.observe(took.as_secs_f64());
            #[cfg(feature = "inspect")]
            crate::inspect::limited(took);
        }
    }
}

/// The allowances, shared by all clients of one limit.
#[derive(Debug)]
struct Lanes {
    leases: Limiter,
    events: Limiter,
    rest: Limiter,
}

impl Lanes {
    fn new(quota: Quota) -> Self {
        Self {
            leases: Limiter::new(quota),
            events: Limiter::new(quota),
            rest: Limiter::new(quota),
        }
    }

    fn of(&self, lane: Lane) -> Option<&Limiter> {
        match lane {
            Lane::Watches => None,
            Lane::Leases => Some(&self.leases),
            Lane::Events => Some(&self.events),
            Lane::Rest => Some(&self.rest),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Watches,
    Leases,
    Events,
    Rest,
}

impl Lane {
    fn as_str(self) -> &'static str {
        match self {
            Self::Watches => "watches",
            Self::Leases => "leases",
            Self::Events => "events",
            Self::Rest => "rest",
        }
    }

    fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let watch = |query: &str| {
            query
                .split('&')
                .any(|p| matches!(p, "watch=true" | "watch=1"))
        };
        if uri.query().is_some_and(watch) {
            return Self::Watches;
        }
        let mut segments = uri.path().trim_matches('/').split('/');
        match (segments.next(), segments.next()) {
            (Some("apis"), Some("coordination.k8s.io")) => Self::Leases,
            (Some("apis"), Some("events.k8s.io")) => Self::Events,
            (Some("api"), Some("v1")) => match (segments.next(), segments.nth(1)) {
                (Some("namespaces"), Some("events")) | (Some("events"), None) => Self::Events,
                _ => Self::Rest,
            },
            _ => Self::Rest,
        }
    }
}

/// A token bucket whose waiters are served in order.
#[derive(Debug)]
struct Limiter {
    quota: Quota,
    /// Held by the caller that waits for a token; tokio's mutex queues the others fairly.
    bucket: Mutex<Bucket>,
}

impl Limiter {
    fn new(quota: Quota) -> Self {
        Self {
            quota,
            bucket: Mutex::default(),
        }
    }

    /// Waits for a token. Cancel safe: a cancelled call takes none.
    async fn take(&self) {
        let mut bucket = self.bucket.lock().await;
        while let Err(wait) = bucket.try_take(self.quota, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }
}

/// How long requests waited for the limit.
#[derive(Clone, Debug)]
struct LimitMetrics {
    waited: Family<LaneLabel, Histogram>,
}

label_set! {
    struct LaneLabel {
        lane: &'static str,
    }
}

impl Default for LimitMetrics {
    fn default() -> Self {
        let histogram = || Histogram::new(exponential_buckets(0.005, 4.0, 8));
        Self {
            waited: Family::new_with_constructor(histogram),
        }
    }
}

impl MetricSet for LimitMetrics {
    fn register(&self, families: &mut Families) {
        families.register(
            "rest_client_rate_limiter_duration_seconds",
            "Time that requests waited for the client-side rate limit",
            self.waited.clone(),
        );
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimited {
            inner: Arc::new(Mutex::new(inner)),
            limit: self.clone(),
        }
    }
}

/// A service that enforces a [`RateLimit`].
///
/// The inner service need not be `Clone`: calls start one at a time, but run concurrently.
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: Arc<Mutex<S>>,
    limit: RateLimit,
}

impl<S, B> Service<Request<B>> for RateLimited<S>
where
    S: Service<Request<B>> + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Whether a request has to wait depends on its lane, which is known only in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, limit) = (Arc::clone(&self.inner), self.limit.clone());
        async move {
            limit.admit(Lane::of(&request)).await;
            let response = inner.lock().await.ready().await?.call(request);
            response.await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
