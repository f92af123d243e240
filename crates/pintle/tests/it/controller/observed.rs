//! The metrics and the log of a controller.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use pintle::{
    controller::{Action, Controller, Predicate, ReconcileError},
    informer::InformerFactory,
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

async fn create(client: &Client, name: &str) {
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &map).await.unwrap();
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn metrics_have_controller_runtime_names() {
    let client = ApiServer::builder().build().client();
    for name in ["fine", "later", "fails", "invalid"] {
        create(&client, name).await;
    }
    let (metrics, shutdown) = (Metrics::new(), CancellationToken::new());
    let informers = InformerFactory::new(client);
    let controller = Controller::<ConfigMap>::new("maps", &informers)
        .workers(3)
        .metrics(&metrics);
    let stop = shutdown.clone();
    let running = tokio::spawn(async move {
        let reconcile = |key: pintle::cache::ObjectKey, _| async move {
            match key.name() {
                "later" => Ok(Action::requeue_after(Duration::from_secs(3600))),
                "fails" => Err(ReconcileError::retry("unavailable")),
                "invalid" => Err(ReconcileError::terminal("invalid")),
                _ => Ok(Action::await_change()),
            }
        };
        controller.run_by_key(reconcile, &stop).await
    });
    informers.start(&shutdown);
    // The failing key runs at 0, 5, 15 and 35 ms.
    sleep(Duration::from_millis(40)).await;
    let text = metrics.encode();
    for line in [
        r#"controller_runtime_reconcile_total{controller="maps",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="maps",result="requeue_after"} 1"#,
        r#"controller_runtime_reconcile_total{controller="maps",result="error"} 5"#,
        r#"controller_runtime_reconcile_errors_total{controller="maps"} 5"#,
        r#"controller_runtime_terminal_reconcile_errors_total{controller="maps"} 1"#,
        r#"controller_runtime_reconcile_panics_total{controller="maps"} 0"#,
        r#"controller_runtime_reconcile_timeouts_total{controller="maps"} 0"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="maps"} 7"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="maps"} 3"#,
        r#"controller_runtime_active_workers{controller="maps"} 0"#,
        r#"workqueue_adds_total{name="maps",controller="maps"} 7"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/span.
#[tokio::test(start_paused = true)]
async fn log_lines_of_a_reconcile_carry_its_span() {
    // For the whole process; lines of other tests are filtered out below.
    let text = Arc::new(Mutex::new(Vec::new()));
    let log = Text(text.clone());
    tracing_subscriber::fmt()
        .with_writer(move || log.clone())
        .with_ansi(false)
        .init();

    let client = ApiServer::builder().build().client();
    for name in ["one", "two"] {
        create(&client, name).await;
    }
    let shutdown = CancellationToken::new();
    let informers = InformerFactory::new(client);
    informers.start(&shutdown);
    let controller = Controller::<ConfigMap>::new("maps", &informers);
    let stop = shutdown.clone();
    let running = tokio::spawn(async move {
        let reconcile = |_, cx: pintle::controller::Context| async move {
            tracing::info!(id = cx.reconcile_id(), "hello from inside");
            Ok(Action::await_change())
        };
        controller.run_by_key(reconcile, &stop).await
    });
    sleep(Duration::from_secs(1)).await;
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("hello from inside"))
        .collect();
    let mut seen = Vec::new();
    for (line, name) in lines.iter().zip(["one", "two"]) {
        assert!(line.contains(r#"controller="maps""#), "{line}");
        assert!(line.contains(r#"namespace="default""#), "{line}");
        assert!(line.contains("attempt=1"), "{line}");
        assert!(line.contains(&format!(r#"name="{name}""#)), "{line}");
        let id = line.split(" id=").nth(1).unwrap().trim();
        assert!(line.contains(&format!("reconcile_id={id}")), "{line}");
        seen.push(id);
    }
    seen.dedup();
    assert_eq!(seen.len(), 2, "{text}");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[derive(Clone)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Proves controller/predicates.
#[tokio::test(start_paused = true)]
async fn object_filtered_by_a_predicate_is_cached() {
    let client = ApiServer::builder().build().client();
    for name in ["one", "two"] {
        create(&client, name).await;
    }
    let shutdown = CancellationToken::new();
    let informers = InformerFactory::new(client);
    let maps = informers.informer::<ConfigMap>().lister();
    informers.start(&shutdown);
    let (seen, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
    let only_one = Predicate::new(|_, map| map.key().name() == "one");
    let controller = Controller::<ConfigMap>::new("maps", &informers).filter(only_one);
    let stop = shutdown.clone();
    let running = tokio::spawn(async move {
        let reconcile = move |key: pintle::cache::ObjectKey, _| {
            seen.send(key.name().to_owned()).unwrap();
            async { Ok(Action::await_change()) }
        };
        controller.run_by_key(reconcile, &stop).await
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(reconciled.try_recv().unwrap(), "one");
    assert!(reconciled.try_recv().is_err());
    let names: Vec<_> = maps
        .namespace("default")
        .list()
        .iter()
        .map(|map| map.key().name().to_owned())
        .collect();
    assert!(names.contains(&"two".to_owned()), "{names:?}");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
