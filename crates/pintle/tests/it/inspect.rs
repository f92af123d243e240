//! The contract of the inspector, on the embedded API server.

use std::time::Duration;

use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch},
    client::Body,
};
use pintle::{
    cache::ObjectKey,
    client::describe,
    controller::{Action, Context, Controller, Primary, ReconcileError},
    informer::InformerFactory,
    inspect::{Inspector, KeyLife, KeyState, Query, ServeError, Settings, Verdict, What},
    manager::Manager,
};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{SECOND, create, forbidden, patch, slow_watches};

/// A controller of ServiceAccounts that maintains a ConfigMap and a Secret for each.
struct World {
    client: Client,
    inspector: Inspector,
    shutdown: CancellationToken,
}

impl World {
    /// Runs the controller through `client`.
    fn run(client: Client, server: &ApiServer) -> Self {
        let world = Self {
            client: server.client(),
            inspector: Inspector::new("tests"),
            shutdown: CancellationToken::new(),
        };
        let informers = InformerFactory::new(client);
        let controller = Controller::<ServiceAccount>::new("accounts", &informers)
            .owns::<ConfigMap>()
            .owns::<Secret>()
            .inspector(&world.inspector);
        let shutdown = world.shutdown.clone();
        tokio::spawn(async move { controller.run_by_key(reconcile, &shutdown).await });
        world
    }

    async fn account(&self, name: &str) {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount {
            metadata,
            ..ServiceAccount::default()
        };
        create(&self.api::<ServiceAccount>(), &account).await;
        sleep(SECOND).await;
    }

    async fn annotate(&self, name: &str, annotation: &str, value: &str) {
        let change = json!({"metadata": {"annotations": {annotation: value}}});
        patch(&self.api::<ServiceAccount>(), name, change).await;
        sleep(SECOND).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    fn life(&self, name: &str) -> KeyLife {
        let key = ObjectKey::namespaced("default", name);
        self.inspector.key("accounts", &key).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Writes the annotation `value` of an account into its ConfigMap and creates its Secret, then
/// fails, panics, requeues or hangs as its annotation `do` requests.
async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Primary::Live(account) = cx.primary::<ServiceAccount>()? else {
        return Ok(Action::await_change());
    };
    let account = account.get()?;
    let annotation = |name: &str| account.annotations().get(name).cloned();
    let value = annotation("value").unwrap_or_default();
    let wanted = json!({"metadata": {"name": key.name()}, "data": {"value": value}});
    let map: ConfigMap = serde_json::from_value(wanted).unwrap();
    cx.apply_owned(map).await?;
    let wanted = json!({
        "metadata": {"name": key.name()},
        "stringData": {"password": format!("hunter{}", value.len())},
    });
    let secret: Secret = serde_json::from_value(wanted).unwrap();
    if cx.lister::<Secret>()?.get(&key).is_none() {
        cx.apply_owned(secret).await?;
    }
    match annotation("do").as_deref() {
        Some("fail") => Err(ReconcileError::from(std::io::Error::other(
            "the region is full",
        ))),
        Some("panic") => panic!("a bug"),
        Some("requeue") => Ok(Action::requeue_after(Duration::from_secs(60))),
        Some("hang") => std::future::pending().await,
        _ => Ok(Action::await_change()),
    }
}

/// One line per entry, without numbers that depend on timing.
fn lines(life: &KeyLife) -> Vec<String> {
    let line = |what: &What| match what {
        What::Woke {
            kind,
            object,
            change,
            via,
            fields,
            ..
        } => format!("woke by {kind} {object} {change} via {via} {fields:?}"),
        What::Reconcile {
            cause,
            attempt,
            outcome,
            ..
        } => format!("reconcile {attempt} because {cause}: {outcome}"),
        What::Write {
            verb,
            kind,
            object,
            fields,
            status,
            ..
        } => format!("{verb} {kind} {object} {fields:?}: {status}"),
        What::Delay { reason, .. } => format!("delay {reason}"),
        What::Note { text } => text.clone(),
    };
    life.entries.iter().map(|entry| line(&entry.what)).collect()
}

fn has(life: &KeyLife, line: &str) {
    let lines = lines(life);
    assert!(
        lines.iter().any(|known| known == line),
        "{line:?} is not in {lines:#?}"
    );
}

/// Proves inspect/record.
#[tokio::test(start_paused = true)]
async fn life_of_a_key_shows_causes_writes_and_outcomes() {
    let server = ApiServer::builder().build();
    let world = World::run(server.client(), &server);
    world.account("a").await;
    world.annotate("a", "value", "x").await;
    let life = world.life("a");
    has(&life, "woke by ServiceAccount default/a added via own []");
    has(&life, "reconcile 1 because ServiceAccount added: ok");
    has(
        &life,
        r#"apply ConfigMap default/a ["data.value", "metadata.ownerReferences"]: 201"#,
    );
    has(&life, "woke by ConfigMap default/a added via owner []");
    has(
        &life,
        r#"woke by ServiceAccount default/a updated via own ["metadata.annotations"]"#,
    );
    has(&life, r#"apply ConfigMap default/a ["data.value"]: 200"#);
    has(
        &life,
        r#"woke by ConfigMap default/a updated via owner ["data.value"]"#,
    );
    has(&life, "reconcile 1 because ConfigMap updated: ok");
    assert_eq!(life.why.verdict, Verdict::Fine, "{}", life.why.sentence);

    let tree: Vec<_> = life
        .tree
        .iter()
        .map(|node| format!("{} {} {}", node.role, node.kind, node.status))
        .collect();
    assert_eq!(
        tree,
        [
            "self ServiceAccount Current",
            "child ConfigMap Current",
            "child Secret Current"
        ]
    );
    let map = &life.tree[1];
    assert_eq!(map.controller, "ServiceAccount default/a");
    assert_eq!(map.parent, life.tree[0].uid);
    assert_eq!(
        (map.diff[0].path.as_str(), &map.diff[0].after),
        ("data.value", &json!("x"))
    );
}

/// Proves inspect/secrets.
#[tokio::test(start_paused = true)]
async fn secrets_never_leave_the_process() {
    let server = ApiServer::builder().build();
    let world = World::run(server.client(), &server);
    world.account("a").await;
    world.annotate("a", "api-token", "s3cr3t").await;
    patch(
        &world.api::<Secret>(),
        "a",
        json!({"stringData": {"password": "changed"}}),
    )
    .await;
    sleep(SECOND).await;
    let life = world.life("a");
    has(
        &life,
        r#"woke by Secret default/a updated via owner ["data.password"]"#,
    );
    let trace = serde_json::to_string(&world.inspector.trace()).unwrap();
    assert!(trace.contains("(hidden)"));
    // "hunter0" and "changed" in base64.
    for secret in ["s3cr3t", "hunter0", "aHVudGVyMA", "Y2hhbmdlZA"] {
        assert!(!trace.contains(secret), "{secret} in {trace}");
    }
}

/// Proves inspect/record.
#[tokio::test(start_paused = true)]
async fn failures_show_error_attempt_and_back_off() {
    let server = ApiServer::builder().build();
    let world = World::run(server.client(), &server);
    world.account("a").await;
    world.annotate("a", "do", "fail").await;
    sleep(10 * SECOND).await;
    let life = world.life("a");
    has(&life, "reconcile 2 because retried: error");
    has(&life, "delay backOff");
    assert!(
        matches!(life.state, KeyState::Delayed { .. }),
        "{:?}",
        life.state
    );
    assert_eq!(life.why.verdict, Verdict::Failing);
    let why = &life.why.sentence;
    assert!(
        why.contains("its reconcile failed: the region is full"),
        "{why}"
    );
    assert!(why.contains("It is retried in "), "{why}");
    world.annotate("a", "do", "panic").await;
    let life = world.life("a");
    assert!(
        life.why.sentence.contains("its reconcile panicked: a bug"),
        "{}",
        life.why.sentence
    );
    let now = world.inspector.now(&Query::default());
    assert_eq!(now.controllers[0].queue.delayed, 1);
    assert!(now.controllers[0].totals.failures > 2);
}

/// Proves inspect/record.
#[tokio::test(start_paused = true)]
async fn delays_show_their_reasons() {
    let server = ApiServer::builder().build();
    let late = slow_watches(&server, "configmaps", Duration::from_secs(4));
    let world = World::run(late, &server);
    // The first list is delayed too.
    sleep(10 * SECOND).await;
    world.account("a").await;
    world.annotate("a", "value", "x").await;
    let life = world.life("a");
    assert!(
        matches!(life.state, KeyState::Parked { .. }),
        "{:?}",
        life.state
    );
    assert!(
        life.why.sentence.contains("for the caches to show"),
        "{}",
        life.why.sentence
    );
    sleep(30 * SECOND).await;
    has(&world.life("a"), "delay ownWrite");
    world.annotate("a", "do", "requeue").await;
    sleep(600 * SECOND).await;
    let life = world.life("a");
    has(&life, "delay requeue");
    let runs = life.entries.iter().map(|entry| entry.times).max();
    assert!(
        runs >= Some(8),
        "equal runs are counted: {:#?}",
        lines(&life)
    );
    world.annotate("a", "do", "hang").await;
    sleep(20 * SECOND).await;
    let life = world.life("a");
    assert!(
        matches!(life.state, KeyState::Processing { .. }),
        "{:?}",
        life.state
    );
    assert!(
        life.why.sentence.contains("has not returned"),
        "{}",
        life.why.sentence
    );
}

/// A client whose requests for `resource` with `method` are forbidden.
fn refusing(server: &ApiServer, method: http::Method, resource: &'static str) -> Client {
    let service = server.service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let hit = *request.method() == method && request.uri().path().contains(resource);
        let service = service.clone();
        async move {
            if hit {
                return Ok(forbidden(resource));
            }
            let answer = service.oneshot(request).await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = http_body_util::BodyStream::new(body);
                http_body_util::StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
            }))
        }
    });
    Client::new(service, "default")
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn rejected_write_is_the_reason() {
    let server = ApiServer::builder().build();
    let client = refusing(&server, http::Method::PATCH, "configmaps");
    let world = World::run(client, &server);
    world.account("a").await;
    let life = world.life("a");
    let why = &life.why.sentence;
    let expected = "ServiceAccount default/a is not ready: the API server refused to apply ConfigMap \
                    default/a: 403 configmaps is forbidden. It is retried in ";
    assert!(why.starts_with(expected), "{why}");
    let row = &world.inspector.now(&Query::default()).keys[0];
    assert_eq!((row.verdict, &row.why), (Verdict::Failing, why));
}

/// Proves inspect/why.
#[tokio::test(start_paused = true)]
async fn informer_without_permissions_is_the_reason() {
    let server = ApiServer::builder().build();
    let client = refusing(&server, http::Method::GET, "configmaps");
    let world = World::run(client, &server);
    world.account("a").await;
    let why = world.life("a").why;
    assert_eq!(why.verdict, Verdict::Failing);
    let begins = "Nothing is reconciled until the cache of ConfigMap is filled: configmaps at cluster \
                  scope is retrying in ";
    assert!(why.sentence.starts_with(begins), "{}", why.sentence);
    assert!(why.sentence.contains("403 Forbidden"), "{}", why.sentence);
    assert!(
        why.sentence
            .ends_with("grant the operator list and watch on configmaps.")
    );
    let now = world.inspector.now(&Query::default());
    let stuck = now.informers.iter().find(|one| one.kind == "ConfigMap");
    assert_eq!(stuck.unwrap().state, "syncing");
}

/// Sends a request without a body, and returns the status and the body of the response.
async fn get(address: std::net::SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, body.to_owned())
}

/// Proves inspect/access.
#[tokio::test]
async fn api_needs_the_token_and_only_reads() {
    let server = ApiServer::builder().build();
    let world = World::run(server.client(), &server);
    world.account("a").await;
    let serving = world.inspector.serve("127.0.0.1:0").await.unwrap();
    let address = serving.address();
    let url = serving.url();
    let token = url.split_once("token=").unwrap().1;
    assert_eq!(token.len(), 32);
    for path in [
        "/",
        "/api/v1/now",
        "/api/v1/trace",
        "/api/v1/stream",
        "/other",
    ] {
        assert_eq!(
            get(address, &format!("GET {path}"), "").await.0,
            401,
            "{path}"
        );
        let wrong = format!("GET {path}?token={}", "0".repeat(32));
        assert_eq!(get(address, &wrong, "").await.0, 401, "{path}");
    }
    let (status, page) = get(address, &format!("GET /?token={token}"), "").await;
    assert_eq!(status, 200);
    assert!(page.contains("<!doctype html>"), "{page}");
    let bearer = format!("authorization: Bearer {token}\r\n");
    let (status, now) = get(address, "GET /api/v1/now", &bearer).await;
    assert_eq!(status, 200);
    let now: Value = serde_json::from_str(&now).unwrap();
    assert_eq!(now["controllers"][0]["name"], "accounts");
    assert_eq!(now["keys"][0]["key"], "default/a");
    let path = "GET /api/v1/key?controller=accounts&key=default%2Fa";
    let (_, life) = get(address, path, &bearer).await;
    let life: KeyLife = serde_json::from_str(&life).unwrap();
    has(&life, "reconcile 1 because ServiceAccount added: ok");
    for (path, status) in [
        ("GET /api/v1/key", 400),
        ("GET /api/v1/key?controller=x&key=a/b", 404),
        ("GET /nothing", 404),
        ("POST /api/v1/now", 405),
        ("DELETE /api/v1/now", 405),
    ] {
        assert_eq!(get(address, path, &bearer).await.0, status, "{path}");
    }
    serving.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err());
}

/// Proves inspect/access.
#[tokio::test]
async fn without_a_token_only_loopback_is_served() {
    let inspector = Settings::new("tests").without_token().build();
    let refused = inspector.serve("0.0.0.0:0").await.unwrap_err();
    assert!(matches!(refused, ServeError::NeedsToken(_)), "{refused}");
    let serving = inspector.serve("127.0.0.1:0").await.unwrap();
    let address = serving.address();
    assert_eq!(get(address, "GET /api/v1/now", "").await.0, 200);
    // DNS rebinding: a web site whose name resolves to this machine.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /api/v1/now HTTP/1.1\r\nhost: evil.example.com\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// Proves inspect/live.
#[tokio::test]
async fn stream_sends_changes_as_they_happen() {
    let server = ApiServer::builder().build();
    let world = World::run(server.client(), &server);
    world.account("a").await;
    let serving = world.inspector.serve("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(serving.address()).await.unwrap();
    let query = serving.url().split_once('?').unwrap().1.to_owned();
    let path = format!("/api/v1/stream?{query}&view=key&controller=accounts&key=default/a");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async |wanted: &str| {
        let found = async {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the stream continues");
                if line.starts_with("data: ") && line.contains(wanted) {
                    return line;
                }
            }
        };
        timeout(Duration::from_mins(1), found).await.expect(wanted)
    };
    next("ServiceAccount added").await;
    let fails = json!({"metadata": {"annotations": {"do": "fail"}}});
    patch(&world.api::<ServiceAccount>(), "a", fails).await;
    let line = next("the region is full").await;
    let life: KeyLife = serde_json::from_str(&line["data: ".len()..]).unwrap();
    assert_eq!(life.why.verdict, Verdict::Failing);
}

/// Proves inspect/record.
#[tokio::test(start_paused = true)]
async fn hand_written_workers_are_recorded() {
    let server = ApiServer::builder().build();
    let inspector = Inspector::new("tests");
    let informers = InformerFactory::new(server.client());
    inspector.caches(&informers);
    let queue = pintle::queue::WorkQueue::<ObjectKey>::new("maps");
    let record = inspector.record::<ConfigMap>("maps", &queue);
    record.workers(1);
    let client = inspector.client(&server.client());
    let (woken, added) = (record.clone(), queue.clone());
    let maps = informers.informer::<ConfigMap>();
    let _handler = maps.on_event(move |event| {
        woken.woke(event.key(), &event);
        added.add(event.key().clone());
    });
    let shutdown = CancellationToken::new();
    informers.start(&shutdown);
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    create(&api, &crate::support::config_map("a", "1")).await;
    let item = queue.get().await.unwrap();
    let key = item.key().clone();
    let label = json!({"metadata": {"labels": {"done": "true"}}});
    let run = async {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        maps.patch(
            "a",
            &kube::api::PatchParams::default(),
            &Patch::Merge(label),
        )
        .await
    };
    let result = record.reconcile(&key, run, |error| describe(error)).await;
    assert!(result.is_ok());
    item.forget();
    let life = inspector.key("maps", &key).unwrap();
    has(&life, "woke by ConfigMap default/a added via own []");
    has(
        &life,
        r#"patch ConfigMap default/a ["metadata.labels.done"]: 200"#,
    );
    shutdown.cancel();
}

/// Proves inspect/access.
#[tokio::test]
async fn manager_serves_its_inspector() {
    let server = ApiServer::builder().build();
    let inspector = Settings::new("operator").token("fixed").build();
    let mut manager = Manager::builder("operator", server.client())
        .inspector(&inspector)
        .inspect("127.0.0.1:0")
        .build();
    let controller = Controller::<ServiceAccount>::new("accounts", manager.informers());
    manager.add(
        controller
            .owns::<ConfigMap>()
            .owns::<Secret>()
            .build_by_key(reconcile),
    );
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let running = tokio::spawn(async move { manager.run_until(&stop).await });
    let has_started = async {
        while inspector.now(&Query::default()).controllers.is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_mins(1), has_started).await.unwrap();
    shutdown.cancel();
    running.await.unwrap().unwrap();
    let manager = Manager::builder("operator", server.client())
        .inspector(&Settings::new("operator").without_token().build())
        .inspect("0.0.0.0:0")
        .build();
    let error = manager
        .run_until(&CancellationToken::new())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("cannot serve the inspector on 0.0.0.0:0"),
        "{text}"
    );
}
