//! A rate-limited client over a real connection.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use pintle::{client::build_limited, limits::RateLimit, metrics::Metrics};
use pintle_apiserver::{ApiServer, Bound};

async fn client_of(bound: &Bound, limit: &RateLimit) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&bound.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.expect("a config");
    build_limited(config, "shop/1", limit).expect("a client")
}

/// Proves limits/lanes.
#[tokio::test]
async fn leases_and_events_pass_when_the_limit_is_reached() {
    let bound = ApiServer::builder().build().serve("127.0.0.1:0").await;
    let bound = bound.expect("a free port");
    let metrics = Metrics::new();
    // The second request of a lane would have to wait for eleven days.
    let limit = RateLimit::new(1e-6, 1).expect("a limit").metrics(&metrics);
    let client = client_of(&bound, &limit).await;
    let list = ListParams::default();

    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.list(&list).await.expect("the burst");
    let waits = {
        let (maps, list) = (maps.clone(), list.clone());
        tokio::spawn(async move { maps.list(&list).await.is_ok() })
    };
    let leases = Api::<Lease>::default_namespaced(client.clone());
    let events = Api::<Event>::default_namespaced(client.clone());
    let others = async {
        leases.list(&list).await.expect("an answer");
        events.list(&list).await.expect("an answer");
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), others).await;
    waited.expect("leases and events have their own allowances");
    assert!(!waits.is_finished(), "the lane is exhausted");
    waits.abort();

    let text = metrics.encode();
    for lane in ["rest", "leases", "events"] {
        let count = format!("rest_client_rate_limiter_duration_seconds_count{{lane=\"{lane}\"}} 1");
        assert!(text.contains(&count), "{text}");
    }
    bound.shutdown().await;
}
