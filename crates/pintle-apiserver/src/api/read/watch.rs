//! Watches: a cursor over the event log, encoded as one JSON document per line.
//!
//! A watch first sends the state it starts from, if the request asks for it. Then it follows the
//! log: it sends the events the log has and sleeps until a commit, the next bookmark or its end. It
//! has no event queue: besides the chunk that it is sending, it holds only the initial state, until
//! that is sent. The log is bounded in events and bytes: a client that reads too slowly falls
//! behind it, during the initial state or after it, gets one `ERROR` event with a 410 `Expired`
//! status, and has to list again.
//!
//! A watch of a custom resource also ends when its CRD changes. A client that reconnects gets
//! objects of the new CRD, or 404.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use http::{HeaderValue, Response};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{parse_version, websocket};
use crate::{
    api::{
        Answer, Api, ApiError, Body, Call,
        request::{negotiate::Form, selector::Selector},
        response::{self, view::View},
    },
    registry::Resource,
    schema::field::FieldError,
    store::{Cursor, Event, EventKind, Lost, Object, key_range, namespace_bounds},
};

/// The interval between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How long before its end a watch sends the last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The minimum duration of a watch without a timeout; the maximum is twice as long.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);
/// The size of one chunk, in bytes.
const CHUNK: usize = 64 * 1024;

impl Api {
    /// Handles a watch.
    pub(crate) async fn watch(self: &Arc<Self>, call: &Call) -> Answer {
        let collection = call.collection()?;
        let selector = Selector::read(&call.target, &call.query)?;
        let version = parse_version(call.query.get("resourceVersion"))
            .map_err(|why| ApiError::new(500, "", why))?;
        let initial = initial_events(call)?;
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let timeout = match call.query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX).min(1 << 32))
            }
            _ => DEFAULT_TIMEOUT.mul_f64(1.0 + self.rng.f64()),
        };
        let start = match (initial, version.unwrap_or(0)) {
            (Some(true), wanted) => {
                if let Err(error) = self.wait_for(wanted).await {
                    let event = stream::once(async move { error_event(&error) });
                    return Ok(call.stream(event));
                }
                Start::State {
                    end_bookmark: bookmarks,
                }
            }
            (Some(false), 0) => Start::After(self.store.revision()),
            (None, 0) => Start::State {
                end_bookmark: false,
            },
            (_, revision) => Start::After(revision),
        };
        let mut pending = Vec::new();
        if call.form == Form::Yaml {
            return Err(ApiError::not_acceptable());
        }
        let filter = Filter {
            view: call.view(&self.clock),
            namespace: call.target.namespace.clone(),
            selector,
            sent_columns: false,
        };
        let after = match start {
            Start::After(revision) => revision,
            Start::State { .. } => {
                let snapshot = self
                    .store
                    .snapshot(collection)
                    .map_err(|_| ApiError::unknown_resource())?;
                let bounds = filter.namespace.as_deref().map(namespace_bounds);
                let range = key_range(bounds.as_ref(), None);
                let objects = snapshot
                    .objects
                    .range::<str, _>(range)
                    .map(|(_, object)| object);
                let resource = &filter.view.resource;
                let selected = |object: &&Arc<Object>| filter.selector.matches(resource, object);
                pending = if resource.is_converted() {
                    let all = self.all_shown(resource, objects.cloned().collect()).await?;
                    all.iter().filter(selected).cloned().collect()
                } else {
                    objects.filter(selected).cloned().collect()
                };
                snapshot.revision
            }
        };
        let cursor = self
            .store
            .cursor(collection, after)
            .map_err(|_| ApiError::unknown_resource())?;
        let end = Instant::now() + timeout;
        let watcher = Watcher {
            filter,
            initial: pending,
            initial_at: 0,
            end_mark: match start {
                Start::State { end_bookmark: true } => EndMark::Now,
                _ if initial.is_none() && version.is_none() => EndMark::WithBookmark,
                _ => EndMark::None,
            },
            cursor,
            seen: after,
            bookmarks,
            next_bookmark: next_bookmark(Instant::now(), end),
            end,
            closing: call.closing.clone(),
            superseded: superseded(&call.target.resource),
            converting: call
                .target
                .resource
                .is_converted()
                .then(|| Arc::clone(self)),
            over: false,
        };
        let stream = stream::unfold(watcher, |mut watcher| async move {
            watcher.next().await.map(|chunk| (chunk, watcher))
        });
        Ok(call.stream(stream))
    }
}

impl Call {
    /// Streams events over HTTP or a WebSocket, as the client requested.
    fn stream(&self, events: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
        if websocket::is_requested(&self.method, &self.headers) {
            let (upgrade, closing) = (self.upgrade.clone(), self.closing.clone());
            return websocket::answer(&self.headers, upgrade, events, closing);
        }
        let json = HeaderValue::from_static("application/json");
        response::with(200, json, Body::events(events))
    }
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// With the current state.
    State {
        end_bookmark: bool,
    },
    After(u64),
}

/// Returns `sendInitialEvents`, after checking the parameters that go with it.
fn initial_events(call: &Call) -> Result<Option<bool>, ApiError> {
    let send = call.query.optional_flag("sendInitialEvents");
    let matching = call.query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    let forbidden = |field: &str, detail: &str| FieldError::forbidden(field, detail);
    match send {
        Some(_) if matching != "NotOlderThan" => errors.push(forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        None if !matching.is_empty() => errors.push(forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        _ => {}
    }
    if !matching.is_empty() && matching != "NotOlderThan" {
        errors.push(FieldError::not_supported(
            "resourceVersionMatch",
            matching,
            &["NotOlderThan"],
        ));
    }
    if errors.is_empty() {
        Ok(send)
    } else {
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors))
    }
}

/// Returns when the next bookmark is due: after a minute, or shortly before the end.
fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let regular = now + BOOKMARK_EVERY;
    let last = end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(end);
    if last > now {
        regular.min(last)
    } else {
        regular
    }
}

/// Selects the events of a watch and renders them.
#[derive(Debug)]
struct Filter {
    view: View,
    namespace: Option<String>,
    selector: Selector,
    /// Whether the column definitions of a table were sent; they are sent once.
    sent_columns: bool,
}

impl Filter {
    fn selects(&self, object: &Object) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|ns| object.namespace() == Some(ns))
            && self.selector.matches(&self.view.resource, object)
    }

    /// Appends an event as the client sees it: an object that starts to match is added, one that
    /// stops matching is deleted with its last matching state.
    fn write(&mut self, out: &mut Vec<u8>, event: &Event) {
        let now = event.kind != EventKind::Deleted && self.selects(&event.object);
        let before = event
            .previous
            .as_deref()
            .is_some_and(|previous| self.selects(previous));
        let kind = match (before, now) {
            (false, false) => return,
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
        };
        match (kind, &event.previous) {
            (EventKind::Deleted, Some(previous)) if event.kind != EventKind::Deleted => {
                let last = Object {
                    key: Arc::clone(&previous.key),
                    revision: event.revision(),
                    content: Arc::clone(&previous.content),
                };
                self.write_object(out, kind, &last);
            }
            _ => self.write_object(out, kind, &event.object),
        }
    }
}

impl Filter {
    fn write_object(&mut self, out: &mut Vec<u8>, kind: EventKind, object: &Object) {
        let columns = !std::mem::replace(&mut self.sent_columns, true);
        write_event(out, kind, &self.view, object, columns);
    }
}

/// An estimate of the size of an event beyond the encoded bytes of its object.
const FRAME: usize = 160;

fn write_event(out: &mut Vec<u8>, kind: EventKind, view: &View, object: &Object, columns: bool) {
    // Reserve once, instead of growing with each part.
    out.reserve(object.content.len() + FRAME);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.name().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    view.write(out, object, columns);
    out.extend_from_slice(b"}\n");
}

/// How the end of the initial state is marked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EndMark {
    #[default]
    None,
    /// By a bookmark right after it.
    Now,
    /// By the next regular bookmark: the client did not ask for the initial state explicitly.
    WithBookmark,
}

/// One running watch.
struct Watcher {
    filter: Filter,
    /// The initial state; objects before `initial_at` have been sent.
    initial: Vec<Arc<Object>>,
    initial_at: usize,
    end_mark: EndMark,
    cursor: Cursor,
    /// Every event up to this revision was sent or filtered out.
    seen: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    closing: CancellationToken,
    /// Cancelled when the CRD changes.
    superseded: CancellationToken,
    /// Set if a webhook converts the objects.
    converting: Option<Arc<Api>>,
    over: bool,
}

/// Returns the token that ends the watches of a custom resource when its CRD changes. The token of
/// a built-in kind is never cancelled.
fn superseded(resource: &Resource) -> CancellationToken {
    let custom = resource.custom.as_ref();
    custom.map_or_else(CancellationToken::new, |custom| custom.superseded.clone())
}

impl Watcher {
    /// Returns the next chunk, or `None` when the watch has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe unless a webhook converts the objects. Without one, there is no await between
    /// reading the log and returning the events.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over() {
            return None;
        }
        // The client will have to list again anyway, so drop the rest of the initial state.
        if !self.initial.is_empty() && self.cursor.is_compacted() {
            self.initial = Vec::new();
            self.initial_at = 0;
            self.end_mark = EndMark::None;
        }
        if let Some(chunk) = self.next_initial() {
            return Some(chunk);
        }
        loop {
            // Check timers before the log, or a busy log would starve them.
            let now = Instant::now();
            if self.is_over() || now >= self.end {
                return None;
            }
            let bookmark = self.bookmarks && now >= self.next_bookmark;
            let events = match self.converting.clone() {
                None => self.read_events(),
                Some(api) => self.read_converted(&api).await,
            };
            match events {
                // A bookmark follows the events it covers.
                Ok(mut chunk) if bookmark => {
                    self.next_bookmark = next_bookmark(now, self.end);
                    let mark = std::mem::take(&mut self.end_mark);
                    let first = mark == EndMark::WithBookmark;
                    chunk.extend_from_slice(&self.bookmark(first));
                    return Some(chunk.into());
                }
                Ok(chunk) if !chunk.is_empty() => return Some(chunk.into()),
                Ok(_) => {}
                Err(error) => {
                    self.over = true;
                    return error.map(|error| error_event(&error));
                }
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = self.superseded.cancelled() => return None,
                () = sleep_until(self.end) => return None,
                () = sleep_until(self.next_bookmark), if self.bookmarks => {}
                alive = self.cursor.changed() => {
                    if !alive {
                        return None;
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over || self.closing.is_cancelled() || self.superseded.is_cancelled()
    }

    fn next_initial(&mut self) -> Option<Bytes> {
        if self.initial_at >= self.initial.len() && self.end_mark != EndMark::Now {
            return None;
        }
        let mut out = Vec::new();
        while let Some(object) = self.initial.get(self.initial_at).cloned() {
            if out.len() >= CHUNK {
                return Some(out.into());
            }
            self.filter
                .write_object(&mut out, EventKind::Added, &object);
            self.initial_at += 1;
        }
        self.initial = Vec::new();
        self.initial_at = 0;
        if self.end_mark == EndMark::Now {
            self.end_mark = EndMark::None;
            out.extend_from_slice(&self.bookmark(true));
        }
        Some(out.into())
    }

    /// Returns the encoded events of the next batches of the log that hold any for this client.
    ///
    /// An error ends the watch, with an `ERROR` event if it is `Some`.
    fn read_events(&mut self) -> Result<Vec<u8>, Option<ApiError>> {
        let mut out = Vec::new();
        loop {
            let (events, seen) = self.next_batch()?;
            self.seen = seen;
            for event in &events {
                self.filter.write(&mut out, event);
            }
            if events.is_empty() || !out.is_empty() {
                return Ok(out);
            }
        }
    }

    fn next_batch(&mut self) -> Result<(Vec<Arc<Event>>, u64), Option<ApiError>> {
        self.cursor.next_batch().map_err(|lost| match lost {
            Lost::Compacted { floor } => {
                let message = format!("too old resource version: {} ({floor})", self.seen);
                Some(ApiError::expired(message))
            }
            Lost::NotServed | Lost::Future { .. } => None,
        })
    }

    /// Like [`read_events`](Self::read_events), for objects that a webhook converts. A conversion
    /// that fails ends the watch with an `ERROR` event, and the client has to list again.
    async fn read_converted(&mut self, api: &Api) -> Result<Vec<u8>, Option<ApiError>> {
        let mut out = Vec::new();
        loop {
            let (events, seen) = self.next_batch()?;
            let converted = tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(None),
                () = self.superseded.cancelled() => return Err(None),
                converted = api.events_shown(&self.filter.view.resource, &events) => converted,
            };
            self.seen = seen;
            for event in &converted.map_err(Some)? {
                self.filter.write(&mut out, event);
            }
            if events.is_empty() || !out.is_empty() {
                return Ok(out);
            }
        }
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.seen.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.filter.view.bookmark(&metadata);
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
    }
}

fn error_event(error: &ApiError) -> Bytes {
    // Encoding plain fields into memory cannot fail.
    let status = serde_json::to_string(&error.status()).unwrap_or_default();
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
}
