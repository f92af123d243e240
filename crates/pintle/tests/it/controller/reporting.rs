//! Status, conditions and events are written only when they change.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    ClusterResourceScope,
    api::core::v1::{Event, Node, Service, ServiceStatus},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use pintle::{
    clock::Clock,
    conditions::{NewCondition, find_condition, set_condition},
    controller::{Action, Context, Controller, Predicate, ReconcileError},
    events::EventType,
    informer::InformerFactory,
};
use pintle_apiserver::ApiServer;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

const START: &str = "2026-01-01T00:00:00Z";

struct Fixture {
    services: Api<Service>,
    events: Api<Event>,
    shutdown: CancellationToken,
    informers: InformerFactory,
}

impl Fixture {
    async fn new() -> Self {
        let client = ApiServer::builder().build().client();
        let services = Api::namespaced(client.clone(), "default");
        let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        Self {
            services,
            events: Api::namespaced(client.clone(), "default"),
            shutdown: CancellationToken::new(),
            informers: InformerFactory::new(client),
        }
    }

    fn controller(&self) -> Controller<Service> {
        let clock = Clock::starting_at(START.parse().unwrap());
        let ours = Predicate::new(|_, service| service.key().name() == "web");
        Controller::new("services", &self.informers)
            .filter(ours)
            .clock(clock)
    }

    async fn version(&self) -> String {
        let service = self.services.get("web").await.unwrap();
        service.resource_version().unwrap()
    }

    /// Returns the events, as `object: type reason: message`.
    async fn events(&self) -> Vec<String> {
        let events = self.events.list(&ListParams::default()).await.unwrap();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let lines = events.iter().map(|event| {
            let about = text(&event.involved_object.name);
            let (kind, reason) = (text(&event.type_), text(&event.reason));
            format!("{about}: {kind} {reason}: {}", text(&event.message))
        });
        lines.collect()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the pool {0:?} is empty")]
struct PoolEmpty(&'static str);

async fn fail(service: Arc<Service>, cx: Context<AtomicU32>) -> Result<Action, ReconcileError> {
    cx.fetch_add(1, Ordering::Relaxed);
    let error = PoolEmpty("north");
    cx.report_error(&*service, "Ready", "NoAddress", &error)
        .await?;
    Err(error.into())
}

fn spawn_failing(fixture: &Fixture) -> JoinHandle<()> {
    let controller = fixture.controller().state(AtomicU32::new(0));
    let shutdown = fixture.shutdown.clone();
    tokio::spawn(async move {
        controller.run(fail, &shutdown).await.unwrap();
    })
}

/// Proves controller/report-error, controller/events.
#[tokio::test(start_paused = true)]
async fn error_becomes_one_condition_and_one_event() {
    let fixture = Fixture::new().await;
    let running = spawn_failing(&fixture);
    sleep(Duration::from_secs(2)).await;
    let service = fixture.services.get("web").await.unwrap();
    let conditions = service.status.unwrap().conditions.unwrap();
    let ready = find_condition(&conditions, "Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "NoAddress")
    );
    assert_eq!(ready.message, r#"the pool "north" is empty"#);
    assert_eq!(ready.last_transition_time.0.to_string(), START);
    let version = fixture.version().await;

    sleep(Duration::from_mins(10)).await;
    assert_eq!(fixture.version().await, version, "retries write nothing");
    fixture.shutdown.cancel();
    running.await.unwrap();
    let event = r#"web: Warning NoAddress: the pool "north" is empty"#;
    assert_eq!(fixture.events().await, [event]);
}

/// Proves controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn status_is_written_only_when_it_changes() {
    type Written = Arc<Mutex<Vec<bool>>>;
    async fn reconcile(service: Arc<Service>, cx: Context<Written>) -> Result<Action, kube::Error> {
        let mut status = service.status.clone().unwrap_or_default();
        let ready = NewCondition::new("Ready", true, "Assigned", "");
        set_condition(status.conditions.get_or_insert_default(), ready, cx.clock());
        let written = cx.update_status(&*service, &status).await?;
        cx.lock().unwrap().push(written);
        Ok(Action::await_change())
    }
    let fixture = Fixture::new().await;
    let written = Written::default();
    let controller = fixture.controller().state(written.clone());
    let shutdown = fixture.shutdown.clone();
    let running = tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(2)).await;
    let service = fixture.services.get("web").await.unwrap();
    assert_eq!(service.status.unwrap().conditions.unwrap().len(), 1);
    assert_eq!(*written.lock().unwrap(), [true, false]);
    fixture.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/events.
#[tokio::test(start_paused = true)]
async fn events_need_no_broadcaster_and_are_flushed_at_the_end() {
    let fixture = Fixture::new().await;
    let controller = fixture.controller();
    let shutdown = fixture.shutdown.clone();
    let reconcile = |_, cx: Context| async move {
        cx.event(EventType::Normal, "Seen", "looked at it");
        cx.shutdown().cancelled().await;
        cx.event(EventType::Normal, "Left", "going away");
        Ok::<_, kube::Error>(Action::await_change())
    };
    let running = tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(2)).await;
    fixture.shutdown.cancel();
    running.await.unwrap().unwrap();
    let mut events = fixture.events().await;
    events.sort();
    let expected = [
        "web: Normal Left: going away",
        "web: Normal Seen: looked at it",
    ];
    assert_eq!(events, expected);
}

#[derive(Debug, thiserror::Error)]
#[error("request {0} failed")]
struct RequestFailed(u32);

/// Proves controller/report-error.
#[tokio::test(start_paused = true)]
async fn varying_messages_do_not_defeat_back_off() {
    async fn fail(service: Arc<Service>, cx: Context<Runs>) -> Result<Action, ReconcileError> {
        let number = cx.fetch_add(1, Ordering::Relaxed);
        let error = RequestFailed(number);
        cx.report_error(&*service, "Ready", "Failed", &error)
            .await?;
        Err(error.into())
    }
    // Not an error for the queue, so no back-off slows down runs caused by the write itself.
    async fn requeue(service: Arc<Service>, cx: Context<Runs>) -> Result<Action, ReconcileError> {
        let error = RequestFailed(cx.fetch_add(1, Ordering::Relaxed));
        cx.report_error(&*service, "Ready", "Failed", &error)
            .await?;
        Ok(Action::requeue_after(Duration::from_secs(60)))
    }
    type Runs = Arc<AtomicU32>;
    for fails in [true, false] {
        let fixture = Fixture::new().await;
        let runs = Runs::default();
        let controller = fixture.controller().state(Arc::clone(&runs));
        let shutdown = fixture.shutdown.clone();
        let running = tokio::spawn(async move {
            if fails {
                controller.run(fail, &shutdown).await
            } else {
                controller.run(requeue, &shutdown).await
            }
        });
        sleep(Duration::from_mins(10)).await;
        let runs = runs.load(Ordering::Relaxed);
        // Back-off alone causes about 17 runs, the delay eleven; some writes add one each.
        assert!((8..40).contains(&runs), "{runs} runs");
        let service = fixture.services.get("web").await.unwrap();
        let conditions = service.status.unwrap().conditions.unwrap();
        let message = &find_condition(&conditions, "Ready").unwrap().message;
        assert_ne!(message, "request 0 failed", "the message is refreshed");
        fixture.shutdown.cancel();
        running.await.unwrap().unwrap();
    }
}

/// Proves controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn conditions_of_a_concurrent_writer_are_not_lost() {
    type Codes = Arc<Mutex<Vec<u16>>>;
    async fn reconcile(service: Arc<Service>, cx: Context<Codes>) -> Result<Action, kube::Error> {
        if !cx.lock().unwrap().is_empty() {
            return Ok(Action::await_change());
        }
        let services = Api::<Service>::namespaced(cx.client().clone(), "default");
        let other = json!({"status": {"conditions": [
            {"type": "Old", "status": "True", "reason": "A", "message": "",
                "lastTransitionTime": START},
            {"type": "Foreign", "status": "True", "reason": "A", "message": "",
                "lastTransitionTime": START}]}});
        let params = PatchParams::default();
        services
            .patch_status("web", &params, &Patch::Merge(other))
            .await?;
        let ready = NewCondition::new("Ready", true, "Assigned", "");
        let set = cx.set_condition(&*service, ready).await;
        let cleared = cx.update_status(&*service, &ServiceStatus::default()).await;
        let mut unversioned = (*service).clone();
        unversioned.metadata.resource_version = None;
        let ready = NewCondition::new("Ready", true, "Assigned", "");
        let blind = cx.set_condition(&unversioned, ready).await;
        let code = |result: Result<bool, kube::Error>| match result {
            Err(kube::Error::Api(status)) => status.code,
            Err(kube::Error::BuildRequest(_)) => 1,
            other => panic!("{other:?}"),
        };
        cx.lock().unwrap().extend([set, cleared, blind].map(code));
        Ok(Action::await_change())
    }
    let fixture = Fixture::new().await;
    let old = json!({"status": {"conditions": [{"type": "Old", "status": "True", "reason": "A",
        "message": "", "lastTransitionTime": START}]}});
    let params = PatchParams::default();
    fixture
        .services
        .patch_status("web", &params, &Patch::Merge(old))
        .await
        .unwrap();
    let codes = Codes::default();
    let controller = fixture.controller().state(codes.clone());
    let shutdown = fixture.shutdown.clone();
    let running = tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(2)).await;
    assert_eq!(*codes.lock().unwrap(), [409, 409, 1]);
    let service = fixture.services.get("web").await.unwrap();
    let conditions = service.status.unwrap().conditions.unwrap();
    assert!(find_condition(&conditions, "Foreign").is_some());
    fixture.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// A Node with standard conditions, which lack the fields that only Node conditions have.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SlimNode {
    metadata: ObjectMeta,
    status: Option<SlimStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Resource for SlimNode {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Proves controller/status-if-changed.
#[tokio::test(start_paused = true)]
async fn setting_a_condition_preserves_those_of_others() {
    async fn reconcile(node: Arc<SlimNode>, cx: Context) -> Result<Action, kube::Error> {
        let labelled = NewCondition::new("Labelled", true, "Done", "");
        cx.set_condition(&*node, labelled).await?;
        Ok(Action::await_change())
    }
    let client = ApiServer::builder().build().client();
    let nodes = Api::<Node>::all(client.clone());
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [ready]}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let shutdown = CancellationToken::new();
    let (stop, informers) = (shutdown.clone(), InformerFactory::new(client));
    let controller = Controller::<SlimNode>::new("nodes", &informers);
    let running = tokio::spawn(async move { controller.run(reconcile, &stop).await });
    sleep(Duration::from_secs(2)).await;
    let node = nodes.get("n").await.unwrap();
    let conditions = serde_json::to_value(node.status.unwrap().conditions).unwrap();
    assert_eq!(conditions[0], ready);
    assert_eq!(conditions[1]["type"], "Labelled");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
