//! Scraped metrics have the names that existing dashboards use.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use pintle::{
    controller::{Action, Controller},
    informer::{InformerFactory, Namespaces, WatchInput},
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use prometheus_client::{encoding::text, metrics::counter::Counter, registry::Registry};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::{SECOND, config_map, create, delete};

/// Runs a controller over one ConfigMap with `metrics`, until it is idle.
async fn reconcile_once(metrics: &Metrics) {
    let client = ApiServer::builder().build().client();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    create(&maps, &config_map("a", "1")).await;
    let informers = InformerFactory::new(client).metrics(metrics.clone());
    let controller = Controller::<ConfigMap>::new("maps", &informers).metrics(metrics);
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let running = tokio::spawn(async move {
        let reconcile = |_, _| async { Ok(Action::await_change()) };
        controller.run_by_key(reconcile, &stop).await
    });
    sleep(SECOND).await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn scrape_has_the_names_of_controller_runtime() {
    let metrics = Metrics::new();
    reconcile_once(&metrics).await;
    let text = metrics.encode();
    for series in [
        r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#,
        r#"controller_runtime_reconcile_total{controller="maps",result="error"}"#,
        r#"controller_runtime_reconcile_total{controller="maps",result="requeue_after"}"#,
        r#"controller_runtime_reconcile_errors_total{controller="maps"}"#,
        r#"controller_runtime_terminal_reconcile_errors_total{controller="maps"}"#,
        r#"controller_runtime_reconcile_panics_total{controller="maps"}"#,
        r#"controller_runtime_reconcile_timeouts_total{controller="maps"}"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="maps"}"#,
        r#"controller_runtime_active_workers{controller="maps"}"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="maps"}"#,
        r#"workqueue_depth{name="maps",controller="maps"}"#,
        r#"workqueue_adds_total{name="maps",controller="maps"}"#,
        r#"workqueue_retries_total{name="maps",controller="maps"}"#,
        r#"workqueue_queue_duration_seconds_count{name="maps",controller="maps"}"#,
        r#"workqueue_work_duration_seconds_count{name="maps",controller="maps"}"#,
        r#"workqueue_unfinished_work_seconds{name="maps",controller="maps"}"#,
        r#"workqueue_longest_running_processor_seconds{name="maps",controller="maps"}"#,
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(series)),
            "{series} is not in\n{text}"
        );
    }
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn metrics_join_a_registry_of_the_program() {
    let mut registry = Registry::with_prefix("shop");
    let orders = Counter::<u64>::default();
    registry.register("orders", "Orders placed", orders.clone());
    let metrics = Metrics::new();
    // Registered before any metric exists, and still complete when it is scraped.
    let mut joined = Registry::default();
    joined.register_collector(Box::new(metrics.clone()));
    reconcile_once(&metrics).await;
    let mut text = String::new();
    text::encode(&mut text, &joined).unwrap();
    assert_eq!(text, metrics.encode(), "the same as on its own");
    let reconciled = r#"controller_runtime_reconcile_total{controller="maps",result="success"} 1"#;
    assert!(text.contains(reconciled), "{text}");

    // The other way round: the program's registry is served with Pintle's metrics.
    let both = Metrics::with_registry(registry);
    orders.inc();
    reconcile_once(&both).await;
    let text = both.encode();
    assert!(text.contains("shop_orders_total 1"), "{text}");
    assert!(text.contains(reconciled), "without the prefix: {text}");
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn cache_size_is_a_metric() {
    let (server, metrics) = (ApiServer::builder().build(), Metrics::new());
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for name in ["a", "b"] {
        create(&maps, &config_map(name, "1")).await;
    }
    let informers = InformerFactory::new(server.client()).metrics(metrics.clone());
    informers.start(&CancellationToken::new());
    let size = || -> i64 {
        let (text, name) = (
            metrics.encode(),
            "informer_store_objects{name=\"\",resource=\"configmaps\"} ",
        );
        let size = text.lines().find_map(|line| line.strip_prefix(name));
        size.unwrap().parse().unwrap()
    };
    let tenants = Namespaces::new(["default"]);
    let input = WatchInput::<ConfigMap>::new().labels("value=1");
    let followed = informers.informer_from(&input.clone().follow_namespaces(&tenants));
    let other = informers.informer_from(&input.all_namespaces());
    sleep(SECOND).await;
    assert_eq!(size(), 4, "two caches of one resource");
    create(&maps, &config_map("c", "1")).await;
    delete(&maps, "a").await;
    delete(&maps, "b").await;
    sleep(SECOND).await;
    assert_eq!(size(), 2);
    tenants.remove("default");
    sleep(SECOND).await;
    assert_eq!(size(), 1);
    drop((followed, other));
    sleep(SECOND).await;
    assert_eq!(size(), 0);
}
