//! `kubectl logs`, and requests that are rejected because no containers run.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use pintle_cluster::{Behavior, LogLine, Script};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Kubectl, start, virtual_cluster};

async fn create(kubectl: &Kubectl, name: &str, annotations: &Value, containers: &[&str]) {
    let containers = containers.iter();
    let containers: Vec<_> = containers
        .map(|name| json!({ "name": name, "image": "x" }))
        .collect();
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": name, "labels": { "app": name }, "annotations": annotations },
            "spec": { "containers": containers },
        }))
        .await;
}

/// Proves pods/logs.
#[tokio::test(start_paused = true)]
async fn logs_come_from_the_script() {
    let script = "pods: [{ selector: app=web, logs: [one, { after: 30s, line: two }] }]";
    let builder = virtual_cluster().script(Script::parse(script).unwrap());
    let (cluster, kubectl) = start(builder).await;
    create(&kubectl, "web", &Value::Null, &["main"]).await;
    create(&kubectl, "silent", &Value::Null, &["main"]).await;
    let annotations = json!({ Behavior::LOGS: "hello\nworld" });
    create(&kubectl, "annotated", &annotations, &["main"]).await;
    sleep(Duration::from_secs(11)).await;
    let pods = kubectl.api::<Pod>();
    let logs = async |name: &str, params: LogParams| pods.logs(name, &params).await.unwrap();
    assert_eq!(logs("web", LogParams::default()).await, "one\n");
    assert_eq!(logs("silent", LogParams::default()).await, "");
    assert_eq!(
        logs("annotated", LogParams::default()).await,
        "hello\nworld\n"
    );

    sleep(Duration::from_secs(30)).await;
    assert_eq!(logs("web", LogParams::default()).await, "one\ntwo\n");
    let tail = LogParams {
        tail_lines: Some(1),
        timestamps: true,
        ..LogParams::default()
    };
    let text = logs("web", tail).await;
    assert!(
        text.starts_with("2026-01-01T00:00:3") && text.ends_with("Z two\n"),
        "{text}"
    );
    let since = LogParams {
        since_seconds: Some(20),
        ..LogParams::default()
    };
    assert_eq!(logs("web", since).await, "two\n");
    let limit = LogParams {
        limit_bytes: Some(2),
        ..LogParams::default()
    };
    assert_eq!(logs("web", limit).await, "on");

    cluster.pods().logs([LogLine::from("for all")]).unwrap();
    assert_eq!(logs("silent", LogParams::default()).await, "for all\n");
    assert_eq!(logs("web", LogParams::default()).await, "for all\n");
    cluster.stop().await;
}

/// Proves pods/logs.
#[tokio::test(start_paused = true)]
async fn logs_follow_the_runs_of_a_container() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let behavior = json!({
        Behavior::ANNOTATION: "exit code=3 after=5s",
        Behavior::LOGS: "started",
    });
    create(&kubectl, "crash", &behavior, &["main"]).await;
    create(&kubectl, "two", &Value::Null, &["a", "b"]).await;
    let stuck = json!({ Behavior::ANNOTATION: "fail-image-pull" });
    create(&kubectl, "stuck", &stuck, &["main"]).await;
    let pods = kubectl.api::<Pod>();
    let previous = || LogParams {
        previous: true,
        ..LogParams::default()
    };
    let refused = async |name: &str, params: LogParams| match pods.logs(name, &params).await {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    };
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        refused("crash", previous()).await,
        (
            400,
            r#"previous terminated container "main" in pod "crash" not found"#.into()
        )
    );
    sleep(Duration::from_secs(60)).await;
    for params in [previous(), LogParams::default()] {
        assert_eq!(pods.logs("crash", &params).await.unwrap(), "started\n");
    }
    let why =
        r#"container "main" in pod "stuck" is waiting to start: trying and failing to pull image"#;
    assert_eq!(
        refused("stuck", LogParams::default()).await,
        (400, why.into())
    );
    let why = "a container name must be specified for pod two, choose one of: [a b]";
    assert_eq!(
        refused("two", LogParams::default()).await,
        (400, why.into())
    );
    let unknown = LogParams {
        container: Some("c".into()),
        ..LogParams::default()
    };
    let why = "container c is not valid for pod two";
    assert_eq!(refused("two", unknown).await, (400, why.into()));
    assert_eq!(refused("none", LogParams::default()).await.0, 404);
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let why = "this server does not implement following a log";
    assert_eq!(refused("crash", follow).await, (501, why.into()));

    // No container runs, so there is nothing to connect to.
    for sub in ["exec?command=sh", "attach", "portforward"] {
        let uri = format!("/api/v1/namespaces/default/pods/two/{sub}");
        let request = http::Request::post(uri).body(Vec::new()).unwrap();
        let refused = cluster.client().request::<Value>(request).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(
            (status.code, status.reason.as_str()),
            (501, "NotImplemented")
        );
    }
    cluster.stop().await;
}
