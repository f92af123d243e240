use std::{convert::Infallible, future::ready};

use futures::future::join_all;
use tokio::time::timeout;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Sends `requests` concurrently. Returns how long after the start each was admitted.
async fn times(limit: &RateLimit, requests: &[&str]) -> Vec<Duration> {
    let start = Instant::now();
    let sent = requests.iter().map(|uri| {
        let service =
            tower::service_fn(move |_: Request<()>| ready(Ok::<_, Infallible>(start.elapsed())));
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
async fn burst_passes_then_one_request_per_period() {
    let limit = RateLimit::new(0.5, 3).expect("a limit");
    assert_eq!(
        seconds(&times(&limit, &[PODS; 6]).await),
        [0, 0, 0, 2, 4, 6]
    );
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        seconds(&times(&limit, &[PODS; 4]).await),
        [0, 0, 0, 2],
        "full again, but not more"
    );
}

/// Proves limits/burst-and-rate.
#[tokio::test(start_paused = true)]
async fn late_request_queues_behind_waiting_ones() {
    let limit = RateLimit::new(0.3, 1).expect("a limit");
    times(&limit, &[PODS]).await;
    let (start, order) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let arrive = |name: &'static str, after: Duration| {
        let (limit, order) = (limit.clone(), Arc::clone(&order));
        async move {
            tokio::time::sleep_until(start + after).await;
            times(&limit, &[PODS]).await;
            order.lock().await.push(name);
        }
    };
    let late = [3333, 3334].map(|ms| tokio::spawn(arrive("late", Duration::from_millis(ms))));
    // Spawned last, so that its timer fires last among those of the same instant.
    let early = tokio::spawn(arrive("waited", Duration::ZERO));
    early.await.expect("done");
    join_all(late).await;
    assert_eq!(*order.lock().await, ["waited", "late", "late"]);
}

/// Proves limits/lanes.
#[tokio::test(start_paused = true)]
async fn urgent_lanes_do_not_wait_behind_the_rest() {
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
fn lane_depends_on_the_path() {
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
async fn cancelled_request_consumes_no_token() {
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
async fn default_and_zero_rate_are_unlimited() {
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
async fn invalid_limits_are_rejected() {
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
async fn waiting_time_is_measured() {
    let metrics = Metrics::new();
    let limit = RateLimit::new(1.0, 1).expect("a limit").metrics(&metrics);
    times(&limit, &[PODS, PODS]).await;
    let name = r#"rest_client_rate_limiter_duration_seconds_count{lane="rest"} 2"#;
    assert!(metrics.encode().contains(name), "{}", metrics.encode());
}
