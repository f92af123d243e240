//! Pods from a server's bytes, or from the delta FIFO, to handlers.

use std::{
    convert::Infallible,
    hint::black_box,
    mem,
    sync::{Arc, mpsc},
};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc as stream_mpsc, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, client::Body};
use pintle::{
    cache::{Object, Reader},
    delta_fifo::DeltaFifo,
    informer::{Registration, SharedInformer},
    source::{KubeSource, ListOptions, ListWatch, Page, RawItem, Scope, SourceError, WatchEvent},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Counter, measured,
    pods::{self, FIRST_VERSION, Form},
    runtime, small,
};

/// One TLS record, which is what a connection delivers at a time.
const CHUNK: usize = 16 * 1024;

/// Small Pods in the cache.
pub(crate) const OBJECTS: usize = 1000;

fn chunks(body: &str) -> Vec<Bytes> {
    let chunks = body.as_bytes().chunks(CHUNK);
    chunks.map(Bytes::copy_from_slice).collect()
}

fn list_body(count: usize) -> Vec<Bytes> {
    let items: Vec<String> = (0..count)
        .map(|i| pods::pod(i, None, FIRST_VERSION, Form::Item))
        .collect();
    chunks(&format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{FIRST_VERSION}"}},"items":[{}]}}"#,
        items.join(",")
    ))
}

fn watch_body(count: usize, version: u64) -> Vec<Bytes> {
    let events: Vec<String> = (0..count)
        .map(|i| pods::pod(i, None, version, Form::Whole))
        .map(|pod| format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}\n"))
        .collect();
    chunks(&events.concat())
}

type Chunks = stream_mpsc::UnboundedReceiver<Bytes>;

/// A server that returns `list` for every list and streams `watch` to the first watch.
fn client(list: Vec<Bytes>, watch: Chunks) -> Client {
    let watch = std::sync::Mutex::new(Some(watch));
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            let watch = watch.lock().unwrap().take();
            watch.map_or_else(|| stream::pending().boxed(), StreamExt::boxed)
        } else {
            stream::iter(list.clone()).boxed()
        };
        let frames = body.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        async { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
    });
    Client::new(service, "default")
}

/// A running informer, with a count of delivered events.
struct Follower {
    log: Arc<DeltaFifo<Pod>>,
    handled: Arc<Counter>,
    handlers: Vec<Registration>,
}

impl Follower {
    fn start(source: impl ListWatch, handlers: usize) -> Self {
        let (send, log) = mpsc::channel();
        let pods = SharedInformer::<Pod>::builder(source)
            .reflector(move |reflector| {
                send.send(Arc::clone(reflector.sink())).unwrap();
                reflector.watch_list(false)
            })
            .build();
        pods.index_field("node", "/spec/nodeName").unwrap();
        let handled = Arc::new(Counter::default());
        let handlers = (0..handlers).map(|_| {
            let handled = Arc::clone(&handled);
            pods.on_event(move |event| {
                black_box(event.key());
                handled.one();
            })
        });
        let handlers = handlers.collect();
        tokio::spawn(async move { pods.run(&CancellationToken::new()).await });
        Self {
            log: log.recv().unwrap(),
            handled,
            handlers,
        }
    }

    async fn synced(self) -> Self {
        for handler in &self.handlers {
            assert!(handler.synced().await);
        }
        self
    }

    /// Pushes updates like the reflector and waits for the handlers.
    async fn follow(&self, updates: Vec<Object<Pod>>) {
        let wanted = self.handled.count() + updates.len() * self.handlers.len();
        for update in updates {
            self.log.ready().await;
            self.log.update(update);
        }
        self.handled.reaches(wanted).await;
    }
}

pub(crate) fn sync(count: usize) {
    let runtime = runtime();
    let list = list_body(count);
    let sync = async || {
        let (_open, watch) = stream_mpsc::unbounded();
        let source = KubeSource::<Pod>::new(client(list.clone(), watch), Scope::all());
        Follower::start(source, 1).synced().await
    };
    let first = runtime.block_on(sync());
    let mut second = None;
    measured(&mut || second = Some(runtime.block_on(sync())));
    for follower in [Some(first), second].into_iter().flatten() {
        assert_eq!(follower.handled.count(), count);
    }
}

pub(crate) fn watch(count: usize) {
    let runtime = runtime();
    let (send, watch) = stream_mpsc::unbounded();
    let follower = runtime.block_on(async {
        let source = KubeSource::<Pod>::new(client(list_body(count), watch), Scope::all());
        Follower::start(source, 1).synced().await
    });
    let change = |body: &mut Vec<Bytes>| {
        let wanted = follower.handled.count() + count;
        for chunk in mem::take(body) {
            send.unbounded_send(chunk).unwrap();
        }
        runtime.block_on(follower.handled.reaches(wanted));
    };
    change(&mut watch_body(count, FIRST_VERSION + 1));
    let mut body = watch_body(count, FIRST_VERSION + 2);
    measured(&mut || change(&mut body));
}

/// A source that lists small Pods and never reports a change.
pub(crate) struct Recorded;

impl ListWatch for Recorded {
    type Watch = stream::Pending<Result<WatchEvent, SourceError>>;

    fn resource(&self) -> &'static str {
        "pods"
    }

    fn supports_watch_list(&self) -> bool {
        false
    }

    async fn list(
        &self,
        _: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        for i in 0..OBJECTS {
            on_item(RawItem::Json(small::pod(i, 1).as_bytes()));
        }
        Ok(Page {
            resource_version: "1".to_owned(),
            ..Page::default()
        })
    }

    async fn watch(&self, _: ListOptions) -> Result<Self::Watch, SourceError> {
        Ok(stream::pending())
    }
}

/// Sends `count` updates to `handlers`, `burst` at a time.
fn events(count: usize, handlers: usize, burst: usize) {
    let runtime = runtime();
    let follower = runtime.block_on(async { Follower::start(Recorded, handlers).synced().await });
    let reader = Reader::new();
    let updates = |rounds: u64| {
        let mut updates = (0..count)
            .map(|n| small::pod(n % OBJECTS, rounds * 1_000_000 + n as u64))
            .map(|pod| reader.read(pod.as_bytes()).unwrap());
        let mut bursts = Vec::new();
        while bursts.len() * burst < count {
            bursts.push(updates.by_ref().take(burst).collect::<Vec<_>>());
        }
        bursts
    };
    let follow = |bursts: &mut Vec<Vec<_>>| {
        runtime.block_on(async {
            for updates in mem::take(bursts) {
                follower.follow(updates).await;
            }
        });
    };
    follow(&mut updates(1));
    let mut bursts = updates(2);
    measured(&mut || follow(&mut bursts));
}

pub(crate) fn event(count: usize) {
    events(count, 1, 100);
}

pub(crate) fn event_alone(count: usize) {
    events(count, 1, 1);
}

pub(crate) fn event_4(count: usize) {
    events(count, 4, 100);
}
