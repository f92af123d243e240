//! Test hooks around a commit.

use std::{future::pending, sync::Arc, time::Duration};

use crate::support::{tls::client_of, *};
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use parking_lot::Mutex;
use pintle_apiserver::{ApiServer, Hold, PodDeletion, Points, Write};
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceExt;

/// Records the hooks that run.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn add(&self, line: String) {
        self.0.lock().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Points for Journal {
    fn before_commit(&self, write: &Write<'_>) {
        let namespace = write.namespace.unwrap_or("-");
        let (resource, name) = (write.resource, write.name);
        self.add(format!("before {resource} {namespace} {name}"));
    }

    fn after_commit(&self, write: &Write<'_>, revision: u64) {
        let how = if write.removes { "removed" } else { "put" };
        self.add(format!("{how} {} {revision}", write.name));
    }

    fn before_answer(&self, method: &Method, path: &str, code: StatusCode) -> Option<Hold> {
        self.add(format!("answer {method} {path} {}", code.as_u16()));
        None
    }
}

/// Proves testing/points.
#[tokio::test]
async fn hooks_run_in_order() {
    let journal = Journal::default();
    let server = ApiServer::builder().points(journal.clone()).build();
    let http = http(&server);
    assert_eq!(journal.take(), [""; 0], "bootstrap is not a request");
    let (_, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let answer = |method: &str, path: &str, code: u16| format!("answer {method} {path} {code}");
    assert_eq!(
        journal.take(),
        [
            "before configmaps default a".to_owned(),
            format!("put a {version}"),
            answer("POST", CONFIG_MAPS, 201)
        ]
    );
    let one = format!("{CONFIG_MAPS}/a");
    http.get(&one).await;
    assert_eq!(journal.take(), [answer("GET", &one, 200)]);
    http.merge(&one, &json!({"data": {"k": "v"}})).await;
    assert_eq!(
        journal.take(),
        [answer("PATCH", &one, 200)],
        "a no-op commits nothing"
    );
    http.delete(&one).await;
    let lines = journal.take();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with("removed a "), "{lines:?}");
    let again = http.delete(&one).await;
    assert_eq!(again.0, 404);
    assert_eq!(journal.take(), [answer("DELETE", &one, 404)]);
}

/// Proves testing/points.
#[tokio::test(start_paused = true)]
async fn hooks_cover_requests_but_not_background_work() {
    let journal = Journal::default();
    let server = ApiServer::builder()
        .points(journal.clone())
        .pod_deletion(PodDeletion::AfterGrace)
        .build();
    let http = http(&server);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = "foos.example.com";
    let definition = json!({"metadata": {"name": name}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let writes = || {
        let lines = journal.take().into_iter();
        let commits = lines.filter(|line| line.starts_with("put ") || line.starts_with("removed "));
        let names = commits.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(http.post(definitions, &definition).await.0, 201);
    let put = format!("put {name}");
    assert_eq!(
        writes(),
        [put.as_str(), put.as_str()],
        "created, then accepted"
    );
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    assert_eq!(http.post("/apis/example.com/v1/foos", &foo).await.0, 201);
    assert_eq!(writes(), ["put f"]);
    assert_eq!(http.delete(&format!("{definitions}/{name}")).await.0, 200);
    assert_eq!(
        writes(),
        [put, "removed f".to_owned(), format!("removed {name}")]
    );

    let pods = "/api/v1/namespaces/default/pods";
    let one = format!("{pods}/p");
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(http.post(pods, &pod).await.0, 201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    http.post(&format!("{one}/binding"), &binding).await;
    http.delete(&one).await;
    assert_eq!(
        writes(),
        ["put p"; 3],
        "created, bound, marked for deletion"
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(http.get(&one).await.0, 404);
    assert_eq!(writes(), [""; 0]);
}

/// Commits a competing write before the next commit, if it has a server.
#[derive(Clone, Default)]
struct Rival(Arc<Mutex<Option<ApiServer>>>);

impl Points for Rival {
    fn before_commit(&self, write: &Write<'_>) {
        let path = format!("{CONFIG_MAPS}/{}", write.name);
        let patch = json!({"data": {"rival": "was here"}}).to_string();
        let request = Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(Full::new(Bytes::from(patch)))
            .unwrap();
        // Take the server, so that the competing write does not trigger another.
        let server = self.0.lock().take();
        if let Some(server) = server {
            let response = server.service().oneshot(request).now_or_never();
            response
                .expect("a write completes without waiting")
                .unwrap();
        }
    }
}

/// Proves testing/points.
#[tokio::test]
async fn hook_can_write_between_read_and_commit() {
    let rival = Rival::default();
    let server = ApiServer::builder().points(rival.clone()).build();
    let http = http(&server);
    let (_, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    let one = format!("{CONFIG_MAPS}/a");
    let mut next = created.clone();
    next["data"]["mine"] = "x".into();
    // A write with a resourceVersion conflicts; one without is retried.
    *rival.0.lock() = Some(server.clone());
    let (code, status) = http.put(&one, &next).await;
    assert_eq!(
        (code, &status["reason"]),
        (409, &json!("Conflict")),
        "{status}"
    );
    assert_eq!(http.delete(&one).await.0, 200);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
    *rival.0.lock() = Some(server.clone());
    let (code, merged) = http.merge(&one, &json!({"data": {"mine": "x"}})).await;
    assert_eq!(code, 200);
    assert_eq!(
        merged["data"],
        json!({"k": "v", "mine": "x", "rival": "was here"})
    );
}

/// Holds back the response to the first create forever.
struct LoseFirstResponse {
    reached: Arc<Notify>,
    once: Mutex<bool>,
}

impl Points for LoseFirstResponse {
    fn before_answer(&self, method: &Method, path: &str, _: StatusCode) -> Option<Hold> {
        if method != Method::POST || path != CONFIG_MAPS {
            return None;
        }
        if std::mem::replace(&mut *self.once.lock(), true) {
            return None;
        }
        self.reached.notify_one();
        Some(Box::pin(pending()))
    }
}

/// Proves testing/points.
#[tokio::test]
async fn write_with_a_lost_response_is_committed() {
    let reached = Arc::new(Notify::new());
    let hooks = LoseFirstResponse {
        reached: Arc::clone(&reached),
        once: Mutex::new(false),
    };
    let server = ApiServer::builder().points(hooks).build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let client = client_of(&bound.kubeconfig()).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map: ConfigMap = serde_json::from_value(config_map("a")).unwrap();

    let (first, wanted) = (maps.clone(), map.clone());
    let request = tokio::spawn(async move { first.create(&PostParams::default(), &wanted).await });
    reached.notified().await;
    // The object is visible, but its creator is still waiting.
    assert!(maps.get("a").await.is_ok());
    assert!(!request.is_finished());
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());

    // The client does not know that the create succeeded; a retry finds out.
    let again = maps.create(&PostParams::default(), &map).await;
    let kube::Error::Api(status) = again.unwrap_err() else {
        panic!("expected a status")
    };
    assert_eq!(
        (status.code, status.reason.as_str()),
        (409, "AlreadyExists")
    );
}

/// Hooks that panic.
struct Broken;

impl Points for Broken {
    fn before_commit(&self, write: &Write<'_>) {
        panic!("{}", write.name);
    }

    fn before_answer(&self, _: &Method, path: &str, _: StatusCode) -> Option<Hold> {
        panic!("{path}");
    }
}

/// A hook that returns a future that panics.
struct BrokenHold;

impl Points for BrokenHold {
    fn before_answer(&self, _: &Method, path: &str, _: StatusCode) -> Option<Hold> {
        let path = path.to_owned();
        Some(Box::pin(async move { panic!("{path}") }))
    }
}

/// Proves testing/points.
#[tokio::test]
async fn panic_in_a_hold_is_contained() {
    let server = ApiServer::builder().points(BrokenHold).build();
    let http = http(&server);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves testing/points.
#[tokio::test]
async fn panic_in_a_hook_is_contained() {
    let server = ApiServer::builder().points(Broken).build();
    let http = http(&server);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}
