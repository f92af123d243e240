//! Readiness and liveness over the whole life of the informers, under virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures::stream;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body};
use pintle::{
    informer::{InformerFactory, SharedInformer, WatchInput},
    probes::Probes,
    source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};
use pintle_apiserver::ApiServer;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{SECOND, forbidden};

/// The state of the connection to the API server.
#[derive(Clone, Default)]
struct Link(Arc<AtomicU8>);

const UP: u8 = 0;
const DOWN: u8 = 1;
/// Requests for Secrets are forbidden.
const NO_SECRETS: u8 = 2;

impl Link {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::SeqCst);
    }

    /// A client of `server` over this link. Open responses end when the link goes down.
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
                if state == NO_SECRETS && to_secrets {
                    return Ok(forbidden("secrets").map(BodyExt::boxed_unsync));
                }
                let Ok(answer) = service.oneshot(request).await;
                Ok(answer.map(|body| {
                    let frames = stream::unfold((body, link), move |(mut body, link)| async move {
                        loop {
                            let now = link.0.load(Ordering::SeqCst);
                            if now == DOWN || now == NO_SECRETS && to_secrets {
                                return None;
                            }
                            // Check the link once a second.
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
    /// Two informers that synced a minute ago and are healthy.
    async fn new() -> Self {
        let (server, link) = (ApiServer::builder().build(), Link::default());
        let informers = InformerFactory::new(link.client(&server));
        let probes = Probes::new(&CancellationToken::new()).caches(&informers);
        let caches = (informers.informer(), informers.informer());
        informers.start(&CancellationToken::new());
        informers.wait_for_sync().await.expect("synced");
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

/// Proves probes/readyz.
#[tokio::test(start_paused = true)]
async fn readyz_fails_while_the_api_server_is_down() {
    let world = World::new().await;
    world.link.set(DOWN);
    sleep(20 * SECOND).await;
    assert_eq!(world.reasons(), "", "a short outage is tolerated");
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
    assert_eq!(
        world.probes.not_alive(),
        [""; 0],
        "a restart would not help"
    );

    world.link.set(UP);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.reasons(), "");
    world.informers.shutdown().await;
}

/// Proves probes/readyz.
#[tokio::test(start_paused = true)]
async fn readyz_names_the_informer_that_lost_access() {
    let world = World::new().await;
    world.link.set(NO_SECRETS);
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

/// Proves probes/readyz.
#[tokio::test(start_paused = true)]
async fn readyz_does_not_flap_with_a_flapping_watch() {
    let world = World::new().await;
    // Up for two seconds of every ten: never long enough to count as a watch.
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

/// Lists nothing and panics when watched.
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
        panic!("broken source");
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
    informers.adopt(&WatchInput::new(), &secrets);
    let maps = informers.informer::<ConfigMap>();
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    assert_eq!(probes.not_ready(), ["informers: not started"]);
    assert_eq!(probes.not_alive(), [""; 0]);
    informers.start(&CancellationToken::new());
    assert!(maps.synced().await);
    sleep(SECOND).await;
    let dead = "informer secrets: its task panicked: broken source";
    assert_eq!(probes.not_ready(), [dead]);
    assert_eq!(probes.not_alive(), [dead]);

    informers.shutdown().await;
    assert_eq!(probes.not_ready(), ["informers: stopped"]);
    assert_eq!(probes.not_alive(), [""; 0], "stopped gracefully");
}

/// Proves probes/liveness.
#[tokio::test(start_paused = true)]
async fn replacement_does_not_revive_a_panicked_informer() {
    let server = ApiServer::builder().build();
    let informers = InformerFactory::new(server.client());
    let secrets = SharedInformer::<Secret>::new(Panicking);
    informers.adopt(&WatchInput::new(), &secrets);
    let probes = Probes::new(&CancellationToken::new()).caches(&informers);
    informers.start(&CancellationToken::new());
    sleep(SECOND).await;
    let dead = "informer secrets: its task panicked: broken source";
    assert_eq!(probes.not_alive(), [dead]);

    let replacement = informers.informer::<Secret>();
    assert!(replacement.synced().await);
    assert_eq!(probes.not_alive(), [dead], "its handlers are never called");
    assert_eq!(probes.not_ready(), [dead]);

    drop((secrets, replacement));
    assert_eq!(probes.not_alive(), [""; 0], "it is no longer in use");
    let fresh = informers.informer::<Secret>();
    assert!(fresh.synced().await);
    sleep(SECOND).await;
    assert_eq!(probes.not_ready(), [""; 0]);
    informers.shutdown().await;
}
