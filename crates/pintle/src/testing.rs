//! Test support, such as an in-memory server whose watches can be cut and whose history can be
//! compacted.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, Once},
};

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use proptest::{collection, prelude::*};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    object::{Object, ObjectKey, Reader},
    source::{ApiError, ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent},
};

/// The kind of all test objects.
pub(crate) type Thing = ConfigMap;

/// Generates JSON of up to a few dozen values.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        r#"[\\"{}\[\],:a]{0,80}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(".{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns the JSON of an object with this identity and value.
pub(crate) fn json_of(key: &str, uid: &str, version: u64, value: &str) -> Value {
    let key: ObjectKey = key.parse().unwrap();
    json!({
        "metadata": {
            "name": key.name(), "namespace": key.namespace(), "uid": uid,
            "resourceVersion": version.to_string(), "labels": {"value": value},
        },
        "data": {"value": value},
    })
}

pub(crate) fn object(key: &str, uid: &str, version: u64, value: &str) -> Object<Thing> {
    Reader::new()
        .read(json_of(key, uid, version, value).to_string().as_bytes())
        .unwrap()
}

/// A server with one kind.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    /// Wakes watches: the current version, and how many times watches were cut.
    progress: watch::Sender<(u64, u64)>,
}

#[derive(Default)]
struct State {
    version: u64,
    uids: u64,
    objects: BTreeMap<String, Value>,
    history: Vec<(u64, WatchEvent)>,
    /// Watches from before this version have expired.
    oldest: u64,
    list_errors: Vec<ApiError>,
    lists: u64,
    watches: u64,
}

impl Server {
    pub(crate) fn new() -> Self {
        let state = State {
            version: 1,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            progress: watch::Sender::new((1, 0)),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let version = state.version;
        self.progress.send_modify(|progress| progress.0 = version);
        result
    }

    /// Creates or changes an object.
    pub(crate) fn put(&self, key: &str, value: &str) -> u64 {
        self.change(|state| {
            state.version += 1;
            let uid = if let Some(old) = state.objects.get(key) {
                old["metadata"]["uid"].as_str().unwrap().to_owned()
            } else {
                state.uids += 1;
                format!("u{}", state.uids)
            };
            let json = json_of(key, &uid, state.version, value);
            let bytes = Bytes::from(json.to_string());
            let event = match state.objects.insert(key.to_owned(), json) {
                Some(_) => WatchEvent::Modified(bytes),
                None => WatchEvent::Added(bytes),
            };
            state.history.push((state.version, event));
            state.version
        })
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, key: &str) {
        self.change(|state| {
            if let Some(mut last) = state.objects.remove(key) {
                state.version += 1;
                last["metadata"]["resourceVersion"] = state.version.to_string().into();
                let event = WatchEvent::Deleted(last.to_string().into());
                state.history.push((state.version, event));
            }
        });
    }

    /// Advances the version without a change and sends a bookmark.
    pub(crate) fn bookmark(&self) -> u64 {
        self.change(|state| {
            state.version += 1;
            let resource_version = state.version.to_string();
            let event = WatchEvent::Bookmark {
                resource_version,
                initial_events_end: false,
            };
            state.history.push((state.version, event));
            state.version
        })
    }

    /// Sends an arbitrary event to watches.
    pub(crate) fn say(&self, event: WatchEvent) {
        self.change(|state| {
            state.version += 1;
            state.history.push((state.version, event));
        });
    }

    /// Closes every open watch.
    pub(crate) fn cut_watches(&self) {
        self.progress.send_modify(|progress| progress.1 += 1);
    }

    /// Compacts the history and closes every watch, so that the next watch has expired.
    pub(crate) fn forget_history(&self) {
        {
            let mut state = self.state.lock();
            state.version += 1;
            state.oldest = state.version;
            state.history.clear();
        }
        self.cut_watches();
    }

    /// Fails the next list with this error.
    pub(crate) fn refuse_list(&self, error: ApiError) {
        self.state.lock().list_errors.push(error);
    }

    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    pub(crate) fn lists(&self) -> u64 {
        self.state.lock().lists
    }

    pub(crate) fn watches(&self) -> u64 {
        self.state.lock().watches
    }

    /// Returns keys with their UIDs, versions and values, sorted.
    pub(crate) fn contents(&self) -> Vec<(String, String, String, String)> {
        let state = self.state.lock();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let row = |(key, json): (&String, &Value)| {
            let meta = &json["metadata"];
            let value = text(&json["data"]["value"]);
            (
                key.clone(),
                text(&meta["uid"]),
                text(&meta["resourceVersion"]),
                value,
            )
        };
        state.objects.iter().map(row).collect()
    }
}

/// Like [`Server::contents`], for objects.
pub(crate) fn contents(objects: &[Object<Thing>]) -> Vec<(String, String, String, String)> {
    let mut rows: Vec<_> = objects
        .iter()
        .map(|object| {
            let value = object.get().unwrap().data.as_ref().unwrap()["value"].clone();
            let (uid, version) = (
                object.uid().to_owned(),
                object.resource_version().to_owned(),
            );
            (object.key().to_string(), uid, version, value)
        })
        .collect();
    rows.sort();
    rows
}

impl ListWatch for Server {
    type Watch = BoxStream<'static, Result<WatchEvent, SourceError>>;

    fn resource(&self) -> &'static str {
        "things"
    }

    fn supports_watch_list(&self) -> bool {
        false
    }

    async fn list(
        &self,
        _options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        let mut state = self.state.lock();
        state.lists += 1;
        if let Some(error) = state.list_errors.pop() {
            return Err(error.into());
        }
        for json in state.objects.values() {
            on_item(RawItem::Json(json.to_string().as_bytes()));
        }
        Ok(Page {
            resource_version: state.version.to_string(),
            ..Page::default()
        })
    }

    async fn watch(&self, options: ListOptions) -> Result<Self::Watch, SourceError> {
        let from: u64 = options
            .resource_version
            .unwrap_or_default()
            .parse()
            .unwrap_or_default();
        self.state.lock().watches += 1;
        let mut progress = self.progress.subscribe();
        let cuts = progress.borrow_and_update().1;
        let server = self.clone();
        let events = stream::unfold((from, progress), move |(from, mut progress)| {
            let server = server.clone();
            async move {
                loop {
                    if progress.borrow_and_update().1 != cuts {
                        return None;
                    }
                    {
                        let state = server.state.lock();
                        if from < state.oldest {
                            let error = ApiError::new(410, "Expired", "too old");
                            return Some((Ok(WatchEvent::Error(error)), (u64::MAX, progress)));
                        }
                        if let Some((version, event)) =
                            state.history.iter().find(|(version, _)| *version > from)
                        {
                            return Some((Ok(event.clone()), (*version, progress)));
                        }
                    }
                    progress.changed().await.ok()?;
                }
            }
        });
        Ok(events.boxed())
    }
}

thread_local! {
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Captures the log of this thread until dropped.
///
/// The subscriber is global and writes each line to the thread that logs it. A subscriber of one
/// thread would miss call sites that another thread reaches first, because tracing caches their
/// interest.
pub(crate) struct Log;

impl Log {
    pub(crate) fn capture() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            tracing_subscriber::fmt()
                .with_writer(|| ThisThread)
                .with_ansi(false)
                .init();
        });
        LOGGED.set(Some(Vec::new()));
        Self
    }

    #[expect(clippy::unused_self, reason = "the log is captured while this exists")]
    pub(crate) fn text(&self) -> String {
        LOGGED.with_borrow(|text| String::from_utf8(text.clone().unwrap()).unwrap())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LOGGED.set(None);
    }
}

struct ThisThread;

impl std::io::Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|text| {
            if let Some(text) = text {
                text.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
