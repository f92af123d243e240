//! How fast a program may ask the API server, as every client-go program has it.
//!
//! Off unless asked for: a server with priority and fairness protects itself better than its
//! clients can. Where a limit is wanted, [`RateLimit`] is a tower layer for the client;
//! [`build_limited`](crate::client::build_limited) puts it in its place.

use std::{
    fmt,
    num::NonZeroU32,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use governor::{Quota, RateLimiter, clock, middleware::NoOpMiddleware, state};
use http::Request;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::{sync::Mutex, time::Instant};
use tower::{Layer, Service, ServiceExt};

use crate::metrics::{MetricSet, Metrics};

/// Limits the requests of a client: `burst` at once, then so many per second, in the order in which
/// they came.
///
/// Requests travel in lanes, each with the full allowance of its own, so that what must not be late
/// never waits behind what may be:
///
/// | lane | requests | limit |
/// |---|---|---|
/// | watches | `?watch=true` | none: one request for hours |
/// | leases | coordination.k8s.io | its own |
/// | events | core and events.k8s.io events | its own |
/// | the rest | everything else | its own |
///
/// A request that is cancelled while it waits takes nothing from those behind it.
///
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
///
/// Clones share one allowance, as do all clients built with one limit.
#[derive(Clone, Debug, Default)]
pub struct RateLimit {
    lanes: Option<Arc<Lanes>>,
    metrics: LimitMetrics,
}

/// How long a whole burst may take to come back: the governor counts nanoseconds in 64 bits, and
/// overflows beyond.
const LONGEST: Duration = Duration::from_nanos(u64::MAX / 2);

/// A limit that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The rate is not finite, or so close to zero that the burst would take centuries to come back.
    #[error("{0} requests per second is no rate")]
    Rate(f64),
    /// With a burst of zero nothing could ever be sent.
    #[error("a burst of zero lets nothing through")]
    Burst,
}

impl RateLimit {
    /// `qps` requests per second on the long run, `burst` at once after a pause.
    ///
    /// A `qps` of zero or less is no limit. (To client-go less than zero is, and zero means its
    /// default of 5.)
    pub fn new(qps: f64, burst: u32) -> Result<Self, InvalidLimit> {
        if qps <= 0.0 {
            return Ok(Self::unlimited());
        }
        let burst = NonZeroU32::new(burst).ok_or(InvalidLimit::Burst)?;
        let period = Duration::try_from_secs_f64(qps.recip()).ok();
        let quota = period
            .filter(|period| {
                period
                    .checked_mul(burst.get())
                    .is_some_and(|all| all <= LONGEST)
            })
            .and_then(Quota::with_period);
        let quota = quota.ok_or(InvalidLimit::Rate(qps))?.allow_burst(burst);
        Ok(Self {
            lanes: Some(Arc::new(Lanes::new(quota))),
            metrics: LimitMetrics::default(),
        })
    }

    /// Lets everything through at once: what a client does without any layer.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Where the time requests had to wait is registered.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.set();
        self
    }
}

impl RateLimit {
    /// Waits until a request of `lane` may go. Cancel safe.
    async fn admit(&self, lane: Lane) {
        let lanes = self.lanes.as_deref();
        if let Some(bucket) = lanes.and_then(|lanes| lanes.of(lane)) {
            let start = Instant::now();
            bucket.take().await;
            let lane = lane.as_str();
            let waited = self.metrics.waited.get_or_create_owned(&LaneLabel { lane });
            waited.observe(start.elapsed().as_secs_f64());
        }
    }
}

/// The allowances, shared by all clients of one limit.
#[derive(Debug)]
struct Lanes {
    leases: Bucket,
    events: Bucket,
    rest: Bucket,
}

impl Lanes {
    fn new(quota: Quota) -> Self {
        Self {
            leases: Bucket::new(quota),
            events: Bucket::new(quota),
            rest: Bucket::new(quota),
        }
    }

    fn of(&self, lane: Lane) -> Option<&Bucket> {
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

/// A token bucket on tokio's time whose waiters are served in order.
struct Bucket {
    /// Whoever waits for a token holds this; the lock itself is first come, first served.
    turn: Mutex<()>,
    limiter: Limiter,
}

type Limiter =
    RateLimiter<state::NotKeyed, state::InMemoryState, TokioClock, NoOpMiddleware<Duration>>;

impl Bucket {
    fn new(quota: Quota) -> Self {
        let limiter = Limiter::direct_with_clock(
            quota,
            TokioClock {
                origin: Instant::now(),
            },
        );
        Self {
            turn: Mutex::new(()),
            limiter,
        }
    }

    /// Waits for a token. Cancel safe: whoever gives up has taken none.
    async fn take(&self) {
        let _turn = self.turn.lock().await;
        while let Err(early) = self.limiter.check() {
            let wait = early.wait_time_from(clock::Clock::now(self.limiter.clock()));
            tokio::time::sleep(wait).await;
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

/// tokio's time, which tests can pause, as the limiter wants it told.
#[derive(Clone, Debug)]
struct TokioClock {
    origin: Instant,
}

impl clock::Clock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// How long requests waited for the limit.
#[derive(Clone, Debug)]
pub struct LimitMetrics {
    waited: Family<LaneLabel, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
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
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_rate_limiter_duration_seconds",
            "How long requests waited for the client's own rate limit",
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

/// A client's service that keeps to a [`RateLimit`].
///
/// The service behind it need not be `Clone`, as a client's is not: calls take turns in starting,
/// not in running.
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
            let answer = inner.lock().await.ready().await?.call(request);
            answer.await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::ready};

    use futures::future::join_all;
    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PODS: &str = "/api/v1/namespaces/shop/pods";

    /// Sends `requests` at once; when each was let through, counted from the start.
    async fn times(limit: &RateLimit, requests: &[&str]) -> Vec<Duration> {
        let start = Instant::now();
        let sent = requests.iter().map(|uri| {
            let service = tower::service_fn(move |_: Request<()>| {
                ready(Ok::<_, Infallible>(start.elapsed()))
            });
            let request = Request::get(*uri).body(()).expect("a request");
            limit.layer(service).oneshot(request)
        });
        join_all(sent)
            .await
            .into_iter()
            .map(|time| time.expect("an answer"))
            .collect()
    }

    fn seconds(times: &[Duration]) -> Vec<u64> {
        times.iter().map(Duration::as_secs).collect()
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_one_by_one_in_order() {
        let limit = RateLimit::new(0.5, 3).expect("a limit");
        assert_eq!(
            seconds(&times(&limit, &[PODS; 6]).await),
            [0, 0, 0, 2, 4, 6]
        );
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(
            seconds(&times(&limit, &[PODS; 4]).await),
            [0, 0, 0, 2],
            "full again, not more"
        );
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test(start_paused = true)]
    async fn who_comes_just_when_a_token_does_waits_behind_those_who_waited() {
        let limit = RateLimit::new(0.3, 1).expect("a limit");
        times(&limit, &[PODS]).await;
        let (start, order) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let come = |name: &'static str, after: Duration| {
            let (limit, order) = (limit.clone(), Arc::clone(&order));
            async move {
                tokio::time::sleep_until(start + after).await;
                times(&limit, &[PODS]).await;
                order.lock().await.push(name);
            }
        };
        let late = [3333, 3334].map(|ms| tokio::spawn(come("late", Duration::from_millis(ms))));
        // Last, so that its timer is the last of those that fire in one instant.
        let early = tokio::spawn(come("waited", Duration::ZERO));
        early.await.expect("done");
        join_all(late).await;
        assert_eq!(*order.lock().await, ["waited", "late", "late"]);
    }

    /// Proves limits/lanes.
    #[tokio::test(start_paused = true)]
    async fn watches_leases_and_events_do_not_wait_behind_the_rest() {
        let limit = RateLimit::new(1.0, 1).expect("a limit");
        let requests = [
            PODS,
            PODS,
            "/api/v1/pods?watch=true&timeoutSeconds=300",
            "/apis/apps/v1/deployments?allowWatchBookmarks=true&watch=1",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/me",
            "/api/v1/namespaces/shop/events",
            "/apis/events.k8s.io/v1/namespaces/shop/events/e",
            "/api/v1/namespaces/events/pods",
        ];
        assert_eq!(
            seconds(&times(&limit, &requests).await),
            [0, 1, 0, 0, 0, 0, 1, 2]
        );
    }

    #[test]
    fn a_lane_is_told_by_the_path() {
        let lane = |uri: &str| Lane::of(&Request::get(uri).body(()).expect("a request"));
        assert_eq!(lane("/api/v1/events"), Lane::Events);
        assert_eq!(lane("/api/v1/namespaces/shop/events/web.1"), Lane::Events);
        assert_eq!(lane("/apis/events.k8s.io/v1"), Lane::Events);
        assert_eq!(lane("/api/v1/namespaces/events"), Lane::Rest);
        assert_eq!(lane("/api/v1/namespaces/shop/pods/events"), Lane::Rest);
        assert_eq!(lane("/api/v1/pods?watch=false"), Lane::Rest);
        assert_eq!(lane("/apis/example.org/v1/events"), Lane::Rest);
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_takes_nothing_from_those_behind() {
        let limit = RateLimit::new(1.0, 1).expect("a limit");
        times(&limit, &[PODS]).await;
        let (gave_up, times) = tokio::join!(
            timeout(SECOND / 2, times(&limit, &[PODS])),
            times(&limit, &[PODS, PODS])
        );
        assert!(gave_up.is_err());
        assert_eq!(seconds(&times), [1, 2]);
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test(start_paused = true)]
    async fn no_limit_is_the_default_and_what_a_rate_of_zero_means() {
        for limit in [
            RateLimit::default(),
            RateLimit::new(0.0, 0).expect("no limit"),
            RateLimit::new(-1.0, 0).expect("no limit"),
        ] {
            assert_eq!(seconds(&times(&limit, &[PODS; 50]).await), [0; 50]);
        }
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test]
    async fn a_limit_that_makes_no_sense_is_not_made() {
        assert_eq!(RateLimit::new(5.0, 0).err(), Some(InvalidLimit::Burst));
        for qps in [f64::INFINITY, 1e-300] {
            assert_eq!(RateLimit::new(qps, 1).err(), Some(InvalidLimit::Rate(qps)));
        }
        let slow = 1e-8; // One request in three years.
        assert!(RateLimit::new(slow, 1).is_ok());
        let refused = Some(InvalidLimit::Rate(slow));
        assert_eq!(RateLimit::new(slow, u32::MAX).err(), refused);
        assert!(RateLimit::new(f64::NAN, 1).is_err());
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test(start_paused = true)]
    async fn the_wait_is_measured() {
        let metrics = Metrics::new();
        let limit = RateLimit::new(1.0, 1).expect("a limit").metrics(&metrics);
        times(&limit, &[PODS, PODS]).await;
        let name = r#"rest_client_rate_limiter_duration_seconds_count{lane="rest"} 2"#;
        assert!(metrics.encode().contains(name), "{}", metrics.encode());
    }
}
