//! Readiness and liveness follow the informers all their life, under virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body};
use pintle::{
    informer::{InformerFactory, SharedInformer},
    probes::Probes,
    source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);

/// What the link to the API server does: 0 works, 1 is down, anything else is answered to Secrets.
#[derive(Clone, Default)]
struct Link(Arc<AtomicU16>);

const UP: u16 = 0;
const DOWN: u16 = 1;

impl Link {
    fn set(&self, state: u16) {
        self.0.store(state, Ordering::SeqCst);
    }

    /// A client of `server` over this link. Whatever comes over it is cut when its state changes.
    fn client(&self, server: &ApiServer) -> Client {
        let (service, link) = (server.service(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, link) = (service.clone(), link.clone());
            async move {
                let state = link.0.load(Ordering::SeqCst);
                let to_secrets = request.uri().path().contains("secrets");
                if state == DOWN {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                if state > DOWN && to_secrets {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": state,
                        "reason": "Forbidden", "message": "secrets is forbidden",
                    });
                    let mut answer = Response::new(Full::from(status.to_string()).boxed_unsync());
                    *answer.status_mut() = StatusCode::from_u16(state).expect("a status");
                    return Ok(
                        answer.map(|body| body.map_err(|never| match never {}).boxed_unsync())
                    );
                }
                let Ok(answer) = service.oneshot(request).await;
                Ok(answer.map(|body| {
                    let frames = stream::unfold((body, link), move |(mut body, link)| async move {
                        loop {
                            let now = link.0.load(Ordering::SeqCst);
                            if now == DOWN || now > DOWN && to_secrets {
                                return None;
                            }
                            // Looks once a second whether the link still holds.
                            match tokio::time::timeout(SECOND, body.frame()).await {
                                Ok(Some(Ok(frame))) => return Some((Ok(frame), (body, link))),
                                Ok(_) => return None,
                                Err(_) => {}
                            }
                        }
                    });
                    StreamBody::new(frames).boxed_unsync()
                }))
            }
        });
        Client::new(service, "default")
    }
}

struct World {
    link: Link,
    informers: InformerFactory,
    probes: Probes,
    _caches: (SharedInformer<ConfigMap>, SharedInformer<Secret>),
}

impl World {
    /// Two informers that have synced and have been well for a while.
    async fn new() -> Self {
        let (server, link) = (ApiServer::builder().build(), Link::default());
        let informers = InformerFactory::new(link.client(&server));
        let probes = Probes::new(&CancellationToken::new()).caches(&informers);
        let caches = (informers.informer(), informers.informer());
        informers.start(&CancellationToken::new());
        informers.wait_for_sync().await.expect("in sync");
        sleep(60 * SECOND).await;
        assert_eq!(probes.not_ready(), [""; 0]);
        Self {
            link,
            informers,
            probes,
            _caches: caches,
        }
    }

    fn reasons(&self) -> String {
        self.probes.not_ready().join("\n")
    }
}

/// Proves probes/readiness-follows-informers.
#[tokio::test(start_paused = true)]
async fn readyz_fails_while_the_api_server_is_down() {
    let world = World::new().await;
    world.link.set(DOWN);
    sleep(20 * SECOND).await;
    assert_eq!(world.reasons(), "", "a short outage is no news");
    sleep(20 * SECOND).await;
    let reasons = world.reasons();
    for cache in [
        "configmaps at cluster scope: ",
        "secrets at cluster scope: ",
    ] {
        assert!(reasons.contains(&format!("informer {cache}")), "{reasons}");
    }
    assert!(reasons.contains("cannot reach the API server"), "{reasons}");
    sleep(Duration::from_hours(1)).await;
    assert!(
        world.reasons().contains("no watch for 36"),
        "{}",
        world.reasons()
    );
    assert_eq!(world.probes.not_alive(), [""; 0], "no restart helps");

    world.link.set(UP);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.reasons(), "");
    world.informers.shutdown().await;
}

/// Proves probes/readiness-follows-informers.
#[tokio::test(start_paused = true)]
async fn readyz_names_the_informer_that_lost_its_rights() {
    let world = World::new().await;
    world.link.set(403);
    sleep(60 * SECOND).await;
    let reasons = world.reasons();
    assert!(
        reasons.starts_with("informer secrets at cluster scope: "),
        "{reasons}"
    );
    assert!(reasons.contains("403 Forbidden"), "{reasons}");
    assert!(reasons.contains("secrets is forbidden"), "{reasons}");
    assert!(!reasons.contains("configmaps"), "{reasons}");
    world.link.set(UP);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.reasons(), "");
    world.informers.shutdown().await;
}

/// Proves probes/readiness-follows-informers.
#[tokio::test(start_paused = true)]
async fn readyz_does_not_flap_with_a_watch_that_does() {
    let world = World::new().await;
    // Up for two seconds of every ten or more: never long enough to count.
    let mut ready = Vec::new();
    for _ in 0..60 {
        world.link.set(DOWN);
        sleep(8 * SECOND).await;
        world.link.set(UP);
        sleep(2 * SECOND).await;
        ready.push(world.reasons().is_empty());
    }
    let changes = ready.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 1, "{ready:?}");
    assert_eq!(ready.last(), Some(&false), "{ready:?}");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.reasons(), "");
    world.informers.shutdown().await;
}

/// Lists nothing, and panics when it is watched.
struct Panicking;

impl ListWatch for Panicking {
    type Watch = stream::Pending<Result<WatchEvent, SourceError>>;

    fn resource(&self) -> &'static str {
        "secrets"
    }

    async fn list(
        &self,
        _: ListOptions,
        _: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        Ok(Page {
            resource_version: "1".into(),
            ..Page::default()
        })
    }

    async fn watch(&self, _: ListOptions) -> Result<Self::Watch, SourceError> {
        panic!("out of luck");
    }

    fn supports_watch_list(&self) -> bool {
        false
    }
}

/// Proves probes/liveness.
#[tokio::test(start_paused = true)]
async fn panicked_informer_fails_readiness_and_liveness() {
    let server = ApiServer::builder().build();
    let informers = InformerFactory::new(server.client());
    let secrets = SharedInformer::<Secret>::new(Panicking);
    informers.adopt(&(), &secrets);
    let maps = informers.informer::<ConfigMap>();
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    assert_eq!(probes.not_ready(), ["informers: not started"]);
    assert_eq!(probes.not_alive(), [""; 0]);
    informers.start(&CancellationToken::new());
    assert!(maps.synced().await);
    sleep(SECOND).await;
    let told = "informer secrets: its task panicked: out of luck";
    assert_eq!(probes.not_ready(), [told]);
    assert_eq!(probes.not_alive(), [told]);

    informers.shutdown().await;
    assert_eq!(probes.not_ready(), ["informers: stopped"]);
    assert_eq!(probes.not_alive(), [""; 0], "stopped in order");
}

/// Proves probes/liveness.
#[tokio::test(start_paused = true)]
async fn a_replacement_does_not_revive_a_panicked_informer() {
    let server = ApiServer::builder().build();
    let informers = InformerFactory::new(server.client());
    let secrets = SharedInformer::<Secret>::new(Panicking);
    informers.adopt(&(), &secrets);
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    informers.start(&CancellationToken::new());
    sleep(SECOND).await;
    let told = "informer secrets: its task panicked: out of luck";
    assert_eq!(probes.not_alive(), [told]);

    let replacement = informers.informer::<Secret>();
    assert!(replacement.synced().await);
    assert_eq!(probes.not_alive(), [told], "its handlers are never called");
    assert_eq!(probes.not_ready(), [told]);

    drop((secrets, replacement));
    assert_eq!(probes.not_alive(), [""; 0], "nobody relies on it any more");
    let fresh = informers.informer::<Secret>();
    assert!(fresh.synced().await);
    sleep(SECOND).await;
    assert_eq!(probes.not_ready(), [""; 0]);
    informers.shutdown().await;
}
