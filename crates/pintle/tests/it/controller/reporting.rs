//! Status, conditions and events: each said once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Event, Service};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use pintle::{
    clock::Clock,
    conditions::{NewCondition, find_condition, set_condition},
    controller::{Action, Context, Controller, Predicate, ReconcileError},
    events::EventType,
    informer::InformerFactory,
};
use pintle_apiserver::ApiServer;
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

    /// The events, as `type reason: message`, by reporter.
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
