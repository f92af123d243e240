//! Scenarios with a scripted server, a recording sink and virtual time.

mod failures;
mod lists;
mod model;
mod server;
mod streaming;
mod watches;
mod wire;

use std::{
    collections::VecDeque,
    fmt::Write as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{Reflector, Sink, Status};
use crate::{
    clock::Rng,
    metrics::Metrics,
    object::{Object, Reader},
    source::{ApiError, ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn object(name: &str, version: &str) -> Bytes {
    let object = json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version}});
    object.to_string().into()
}

pub(super) fn added(name: &str, version: &str) -> Script {
    Script::Event(WatchEvent::Added(object(name, version)))
}

pub(super) fn modified(name: &str, version: &str) -> Script {
    Script::Event(WatchEvent::Modified(object(name, version)))
}

pub(super) fn deleted(name: &str, version: &str) -> Script {
    Script::Event(WatchEvent::Deleted(object(name, version)))
}

pub(super) fn bookmark(version: &str) -> Script {
    Script::Event(WatchEvent::Bookmark {
        resource_version: version.into(),
        initial_events_end: false,
    })
}

pub(super) fn marker(version: &str) -> Script {
    Script::Event(WatchEvent::Bookmark {
        resource_version: version.into(),
        initial_events_end: true,
    })
}

pub(super) fn error(code: u16, reason: &str) -> Script {
    Script::Event(WatchEvent::Error(ApiError::new(code, reason, "reason")))
}

pub(super) fn api(code: u16, reason: &str) -> SourceError {
    ApiError::new(code, reason, "reason").into()
}

pub(super) fn refused() -> SourceError {
    SourceError::transport(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
}

/// One step of a scripted watch.
#[derive(Debug)]
pub(super) enum Script {
    Event(WatchEvent),
    Pause(Duration),
    Break(SourceError),
    /// The stream stays open without further events.
    Hang,
}

/// The response to a scripted list.
#[derive(Debug)]
pub(super) enum Listed {
    Page {
        items: Vec<Bytes>,
        version: &'static str,
        token: Option<&'static str>,
    },
    Fail(SourceError),
    Hang,
}

pub(super) fn page(items: &[(&str, &str)], version: &'static str) -> Listed {
    let items = items
        .iter()
        .map(|(name, version)| object(name, version))
        .collect();
    Listed::Page {
        items,
        version,
        token: None,
    }
}

/// A server that follows a script. Beyond the script, lists are empty at `resourceVersion` 1, and
/// watches stay open without events.
#[derive(Clone, Default)]
pub(super) struct Fake {
    state: Arc<Mutex<FakeState>>,
    open: Arc<AtomicUsize>,
    streaming: bool,
}

/// How a call beyond the script fails, if it does.
type Fails = fn() -> Option<SourceError>;

#[derive(Default)]
struct FakeState {
    lists: VecDeque<Listed>,
    watches: VecDeque<Result<Vec<Script>, SourceError>>,
    /// How every list and watch beyond the script fails.
    always: Option<(Fails, Fails)>,
    calls: Vec<(Instant, String, ListOptions)>,
}

impl Fake {
    /// Returns a server that does not support streaming lists.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns a server that supports streaming lists.
    pub(super) fn streaming() -> Self {
        Self {
            streaming: true,
            ..Self::default()
        }
    }

    pub(super) fn list(self, answer: Listed) -> Self {
        self.state.lock().lists.push_back(answer);
        self
    }

    pub(super) fn watch(self, script: impl Into<Vec<Script>>) -> Self {
        self.state.lock().watches.push_back(Ok(script.into()));
        self
    }

    pub(super) fn watch_fails(self, error: SourceError) -> Self {
        self.state.lock().watches.push_back(Err(error));
        self
    }

    pub(super) fn always(self, list: Fails, watch: Fails) -> Self {
        self.state.lock().always = Some((list, watch));
        self
    }

    fn note(&self, options: &ListOptions, verb: &str) {
        let version = options.resource_version.as_deref().unwrap_or_default();
        let mut call = format!("{verb} {version:?}");
        if let Some(limit) = options.limit {
            let _ = write!(call, " limit {limit}");
        }
        if let Some(token) = &options.continue_token {
            let _ = write!(call, " continue {token}");
        }
        self.state
            .lock()
            .calls
            .push((Instant::now(), call, options.clone()));
    }

    /// Returns the requests in order: `list "5" limit 500`, `watch "5"`, `stream ""`.
    pub(super) fn calls(&self) -> Vec<String> {
        self.state
            .lock()
            .calls
            .iter()
            .map(|(_, call, _)| call.clone())
            .collect()
    }

    pub(super) fn times(&self) -> Vec<Instant> {
        self.state
            .lock()
            .calls
            .iter()
            .map(|(at, _, _)| *at)
            .collect()
    }

    pub(super) fn options(&self) -> Vec<ListOptions> {
        self.state
            .lock()
            .calls
            .iter()
            .map(|(_, _, options)| options.clone())
            .collect()
    }

    /// Returns the number of open watches.
    pub(super) fn open_watches(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

struct Opened(Arc<AtomicUsize>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ListWatch for Fake {
    type Watch = Pin<Box<dyn Stream<Item = Result<WatchEvent, SourceError>> + Send>>;

    fn resource(&self) -> &'static str {
        "configmaps"
    }

    fn describe(&self) -> String {
        "configmaps at cluster scope".into()
    }

    fn expected_type(&self) -> Option<(&str, &str)> {
        Some(("v1", "ConfigMap"))
    }

    fn supports_watch_list(&self) -> bool {
        self.streaming
    }

    async fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        self.note(&options, "list");
        let answer = {
            let mut state = self.state.lock();
            let always = state.always;
            state
                .lists
                .pop_front()
                .or_else(|| always.and_then(|(list, _)| list()).map(Listed::Fail))
        };
        match answer.unwrap_or_else(|| page(&[], "1")) {
            Listed::Page {
                items,
                version,
                token,
            } => {
                for item in &items {
                    on_item(RawItem::Json(item));
                }
                Ok(Page {
                    resource_version: version.into(),
                    continue_token: token.map(Into::into),
                    remaining: None,
                })
            }
            Listed::Fail(error) => Err(error),
            Listed::Hang => std::future::pending().await,
        }
    }

    async fn watch(&self, options: ListOptions) -> Result<Self::Watch, SourceError> {
        self.note(
            &options,
            if options.send_initial_events {
                "stream"
            } else {
                "watch"
            },
        );
        let script = {
            let mut state = self.state.lock();
            let always = state.always;
            state
                .watches
                .pop_front()
                .or_else(|| always.and_then(|(_, watch)| watch()).map(Err))
        };
        let script = VecDeque::from(script.unwrap_or_else(|| Ok(vec![Script::Hang]))?);
        self.open.fetch_add(1, Ordering::SeqCst);
        let guard = Opened(self.open.clone());
        Ok(Box::pin(stream::unfold(
            (script, guard),
            |(mut script, guard)| async move {
                loop {
                    let item = match script.pop_front()? {
                        Script::Event(event) => Ok(event),
                        Script::Break(error) => Err(error),
                        Script::Pause(time) => {
                            sleep(time).await;
                            continue;
                        }
                        Script::Hang => std::future::pending().await,
                    };
                    return Some((item, (script, guard)));
                }
            },
        )))
    }
}

/// A sink that records its calls: `replace a@1 b@2 @5`, `add c@6`, `bookmark 7`.
#[derive(Default)]
pub(super) struct Recorder {
    events: Mutex<Vec<(Instant, String)>>,
    /// While true, `ready` blocks.
    pub(super) full: watch::Sender<bool>,
}

impl Recorder {
    fn note(&self, event: String) {
        self.events.lock().push((Instant::now(), event));
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.events
            .lock()
            .iter()
            .map(|(_, event)| event.clone())
            .collect()
    }

    pub(super) fn times_of(&self, event: &str) -> Vec<Instant> {
        self.events
            .lock()
            .iter()
            .filter(|(_, recorded)| recorded == event)
            .map(|(at, _)| *at)
            .collect()
    }
}

fn show(object: &Object<ConfigMap>) -> String {
    format!("{}@{}", object.key().name(), object.resource_version())
}

impl Sink<ConfigMap> for Recorder {
    fn replace(&self, items: Vec<Object<ConfigMap>>, resource_version: &str) {
        let items: String = items.iter().map(|item| show(item) + " ").collect();
        self.note(format!("replace {items}@{resource_version}"));
    }

    fn add(&self, object: Object<ConfigMap>) {
        self.note(format!("add {}", show(&object)));
    }

    fn update(&self, object: Object<ConfigMap>) {
        self.note(format!("update {}", show(&object)));
    }

    fn delete(&self, object: Object<ConfigMap>) {
        self.note(format!("delete {}", show(&object)));
    }

    fn bookmark(&self, resource_version: &str) {
        self.note(format!("bookmark {resource_version}"));
    }

    fn resync(&self) {
        self.note("resync".into());
    }

    async fn ready(&self) {
        let _ = self.full.subscribe().wait_for(|full| !full).await;
    }
}

/// A running reflector.
pub(super) struct Scene {
    pub(super) fake: Fake,
    pub(super) sink: Arc<Recorder>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) metrics: Metrics,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
    pub(super) started: Instant,
}

type Subject = Reflector<ConfigMap, Fake, Recorder>;

impl Scene {
    pub(super) fn start(fake: Fake) -> Self {
        Self::with(fake, |reflector| reflector)
    }

    pub(super) fn with(fake: Fake, set: impl FnOnce(Subject) -> Subject) -> Self {
        Self::reading(fake, Reader::new(), set)
    }

    pub(super) fn reading(
        fake: Fake,
        reader: Reader<ConfigMap>,
        set: impl FnOnce(Subject) -> Subject,
    ) -> Self {
        let (sink, metrics) = (Arc::new(Recorder::default()), Metrics::new());
        let reflector = Reflector::new(fake.clone(), reader, sink.clone())
            .rng(Rng::with_seed(7))
            .metrics(metrics.clone());
        let reflector = set(reflector);
        let (status, stop) = (reflector.status(), CancellationToken::new());
        let token = stop.clone();
        let task = tokio::spawn(async move { reflector.run(&token).await });
        Self {
            fake,
            sink,
            status,
            metrics,
            stop,
            task,
            started: Instant::now(),
        }
    }

    /// Returns the scene after this time has passed.
    pub(super) async fn after(self, time: Duration) -> Self {
        sleep(time).await;
        self
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.fake.calls()
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.sink.events()
    }

    pub(super) fn status_line(&self) -> String {
        self.status.borrow().to_string()
    }

    /// Stops the reflector. Returns whether it ended immediately and closed its watch.
    pub(super) async fn stops_immediately(self) -> bool {
        let now = Instant::now();
        self.stop.cancel();
        self.task.await.unwrap();
        now == Instant::now() && self.fake.open_watches() == 0
    }
}
