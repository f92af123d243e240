//! The log of a sync that keeps failing.

use std::{
    io::Write,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use http::{Method, StatusCode};
use sample_scenarios::{Crd, InProcess, Scene, failure};
use serde_json::json;
use tracing::{Dispatch, subscriber::NoSubscriber};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps a second subscriber alive. With only one, `tracing` checks interest in a log line on the
/// thread that reaches it first, and disables the line on all threads if that thread has no
/// subscriber.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Proves sample/says-what-is-wrong.
#[tokio::test(start_paused = true)]
async fn failing_sync_is_logged_at_a_falling_rate() {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = Log::default();
    let written = log.clone();
    // For this thread only; the whole test runs on it.
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || written.clone())
        .with_ansi(false)
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let failures = || {
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains("sync failed"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };

    let world = InProcess::new(Crd::Own).await;
    let world = world.intercept(|client, request| async move {
        let is_deployment = request.uri().path().ends_with("/deployments");
        if request.method() != Method::POST || !is_deployment {
            return client.send(request).await;
        }
        let message = "etcdserver: request timed out";
        Ok(failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            message,
        ))
    });
    let scene = Scene::new(world).await;
    scene
        .create_foo("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let first = failures();
    assert_eq!(first.len(), 1, "{first:#?}");
    let line = &first[0];
    for part in [
        " WARN ",
        "foo=default/a",
        r#"error="creating the Deployment failed: 500 InternalError: etcdserver: request timed out""#,
        "retry_in=5ms",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert_eq!(line.matches("request timed out").count(), 1, "{line}");

    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!((2..=8).contains(&failures().len()), "{:#?}", failures());
    running.stop().await;
}
