//! The log of a reconcile that keeps failing.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller, ReconcileError},
    informer::InformerFactory,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::Log;

fn map(name: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "namespace": "default"}});
    serde_json::from_value(map).unwrap()
}

/// Fails for `a` and `b` because the object already exists, and for `c` with a terminal error.
async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    match key.name() {
        "a" | "b" => {
            cx.create(&map(key.name())).await?;
        }
        "c" => return Err(ReconcileError::terminal("no such schedule")),
        _ => {}
    }
    Ok(Action::await_change())
}

/// Proves controller/failure-log.
#[tokio::test(start_paused = true)]
async fn repeated_failure_is_one_short_line_at_a_falling_rate() {
    let (log, _guard) = Log::capture();

    let client = ApiServer::builder().build().client();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name))
            .await
            .unwrap();
    }
    let shutdown = CancellationToken::new();
    let informers = InformerFactory::new(client);
    let controller = Controller::<ConfigMap>::new("maps", &informers);
    let stop = shutdown.clone();
    let running = tokio::spawn(async move { controller.run_by_key(reconcile, &stop).await });

    // `a` and `b` are tried ten times each.
    sleep(Duration::from_secs(3)).await;
    let lines = log.lines("reconcile failed; retrying");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, name) in lines.iter().zip(["a", "b"]) {
        let message = format!("409 AlreadyExists: configmaps \"{name}\" already exists");
        let quoted = message.replace('"', "\\\"");
        assert_eq!(line.matches(&quoted).count(), 1, "{line}");
        assert_eq!(line.matches("already exists").count(), 1, "{line}");
        assert!(line.contains("retry_in=5ms"), "{line}");
        assert!(!line.contains("Status"), "{line}");
    }
    let terminal = "reconcile failed with a terminal error; not retrying";
    assert_eq!(log.lines(terminal).len(), 1);

    sleep(Duration::from_mins(10)).await;
    let lines = log.lines("reconcile failed; retrying");
    assert!((6..=14).contains(&lines.len()), "{lines:#?}");
    assert!(lines.last().unwrap().contains("unlogged="), "{lines:#?}");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
