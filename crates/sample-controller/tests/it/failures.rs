//! What the log says of a Foo whose sync fails again and again.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use pintle::clock::Clock;
use sample_scenarios::{Crd, InProcess, Pace, Scene, World};
use serde_json::json;

/// A world in which no Deployment can be created.
struct Failing(InProcess);

impl World for Failing {
    fn client(&self) -> Client {
        self.0.client()
    }

    fn controller_client(&self) -> Client {
        let inner = self.0.client();
        let failing = tower::service_fn(move |request: Request<Body>| {
            let inner = inner.clone();
            async move {
                let deployments = request.uri().path().ends_with("/deployments");
                if request.method() != Method::POST || !deployments {
                    return inner.send(request).await;
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                    "reason": "InternalError", "message": "etcdserver: request timed out",
                });
                let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                Ok(answer)
            }
        });
        Client::new(failing, "default")
    }

    fn namespace(&self) -> String {
        self.0.namespace()
    }

    fn pace(&self) -> Pace {
        self.0.pace()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }
}

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

/// Proves sample/says-what-is-wrong.
#[tokio::test(start_paused = true)]
async fn failing_sync_is_one_short_line_at_a_falling_rate() {
    let log = Log::default();
    let written = log.clone();
    // Of this thread alone, on which everything here runs.
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || written.clone())
        .with_ansi(false)
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let told = || {
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains("sync failed"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };

    let scene = Scene::new(Failing(InProcess::new(Crd::Today).await)).await;
    scene
        .apply("a", json!({"deploymentName": "web", "replicas": 1}))
        .await;
    let running = scene.run();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let first = told();
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
    assert!((2..=8).contains(&told().len()), "{:#?}", told());
    running.stop().await;
}
