//! Serves recorded Pods, with every response prepared in advance.
//!
//! The server speaks plain HTTP/1.1 on loopback and has one kind. `GET /api/v1/pods` lists in
//! pages, or watches; events are objects with another `resourceVersion`. `POST
//! /_bench/events?count=M` modifies M objects in turn, and `POST /_bench/expire` ends every watch
//! with 410 and adds a Pod to the list. Events are derived from their number, so a watch that opens
//! late misses nothing, whatever its `resourceVersion`.

use std::{convert::Infallible, ops::Range, sync::Arc};

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, net::TcpListener, sync::watch};

use crate::pods::{self, Form};

/// The Pod that appears after a watch has expired, in the namespace of the first.
pub(crate) const MARKER: &str = "relist-marker";

/// The `resourceVersion` of the first list: higher than every Pod's, and of the same width.
const LIST_VERSION: u64 = 20_000_000;

/// Chunk size of a watch.
const FRAME: usize = 64 * 1024;

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of Pods
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Port to listen on; 0 for any free port
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Serves until standard input is closed, so that the server never outlives its parent. Prints the
/// URL as the first line.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", args.port))
        .await
        .with_context(|| format!("cannot listen on port {}", args.port))?;
    let server = Arc::new(Server::new(args.objects));
    println!("http://{}", listener.local_addr()?);
    let serve = async move {
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let server = Arc::clone(&server);
            let service = service_fn(move |request: Request<Incoming>| {
                let server = Arc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(&request)) }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                // Every run ends with a client that disconnects.
                let _ = connection.await;
            });
        }
    };
    let closed = async {
        let mut input = tokio::io::stdin();
        let mut ignored = [0; 64];
        while input.read(&mut ignored).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        biased;
        closed = closed => closed,
        served = serve => served,
    }
}

/// The state that watches follow.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// The number of events so far.
    events: u64,
    /// How many times the watches have been expired.
    expired: u32,
}

struct Server {
    /// The list items, separated by commas.
    items: Bytes,
    /// The range of each item.
    places: Vec<Range<usize>>,
    /// The additional item of lists after an expiry.
    marker: Bytes,
    events: Vec<Event>,
    progress: watch::Sender<Progress>,
}

/// The line of an event, and the position of its `resourceVersion`.
struct Event {
    line: Bytes,
    version: usize,
}

impl Event {
    fn new(i: usize) -> Self {
        let object = pods::pod(i, None, pods::FIRST_VERSION, Form::Whole);
        let line = format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
        let version = line
            .find("\"resourceVersion\":\"")
            .map_or(0, |at| at + "\"resourceVersion\":\"".len());
        Self {
            line: line.into(),
            version,
        }
    }

    fn write(&self, version: u64, into: &mut BytesMut) {
        let digits = version.to_string();
        into.extend_from_slice(&self.line[..self.version]);
        into.extend_from_slice(digits.as_bytes());
        into.extend_from_slice(&self.line[self.version + digits.len()..]);
    }
}

impl Server {
    fn new(objects: usize) -> Self {
        let mut items = BytesMut::new();
        let mut places = Vec::with_capacity(objects);
        for i in 0..objects {
            if i > 0 {
                items.extend_from_slice(b",");
            }
            let begin = items.len();
            let pod = pods::pod(i, None, pods::FIRST_VERSION + i as u64, Form::Item);
            items.extend_from_slice(pod.as_bytes());
            places.push(begin..items.len());
        }
        let marker = pods::pod(0, Some(MARKER), LIST_VERSION, Form::Item);
        Self {
            items: items.freeze(),
            places,
            marker: unlike_the_first(&marker, objects).into(),
            events: (0..objects).map(Event::new).collect(),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    fn answer(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        let query = Query(request.uri().query().unwrap_or_default());
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/api/v1/pods") if query.is_true("watch") => {
                if query.is_true("sendInitialEvents") {
                    return no_watch_list();
                }
                self.watch(query.number("resourceVersion"))
            }
            (&Method::GET, "/api/v1/pods") => self.list(
                query.number("limit").unwrap_or_default(),
                query.number("continue").unwrap_or_default(),
            ),
            (&Method::POST, "/_bench/events") => {
                let count = query.number("count").unwrap_or_default();
                self.progress.send_modify(|now| now.events += count);
                json_body(StatusCode::OK, &json!({"events": count}))
            }
            (&Method::POST, "/_bench/expire") => {
                self.progress.send_modify(|now| now.expired += 1);
                json_body(StatusCode::OK, &json!({}))
            }
            (&Method::GET, path) => discovery(path),
            _ => not_found(),
        }
    }

    /// Returns Pods `from..from + limit`, or all Pods after `from` without a limit.
    fn list(&self, limit: u64, from: u64) -> Response<Body> {
        let progress = *self.progress.borrow();
        let version = LIST_VERSION + progress.events + u64::from(progress.expired);
        let total = self.places.len();
        let from = usize::try_from(from).unwrap_or(total).min(total);
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
        let to = limit.map_or(total, |limit| total.min(from + limit));
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if to < total {
            metadata["continue"] = to.to_string().into();
            metadata["remainingItemCount"] = (total - to).into();
        }
        let head = format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"items\":["
        );
        let mut parts = vec![Bytes::from(head)];
        if from < to {
            parts.push(
                self.items
                    .slice(self.places[from].start..self.places[to - 1].end),
            );
        }
        if to == total && progress.expired > 0 {
            if from < to {
                parts.push(Bytes::from_static(b","));
            }
            parts.push(self.marker.clone());
        }
        parts.push(Bytes::from_static(b"]}\n"));
        let parts = stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part))));
        respond(StatusCode::OK, StreamBody::new(parts).boxed_unsync())
    }

    /// Streams the events after `version` until the watches expire.
    fn watch(self: &Arc<Self>, version: Option<u64>) -> Response<Body> {
        let mut progress = self.progress.subscribe();
        let now = *progress.borrow_and_update();
        let first = LIST_VERSION + u64::from(now.expired);
        let sent = version.map_or(0, |version| version.saturating_sub(first));
        let server = Arc::clone(self);
        let frames = stream::unfold(Some((progress, sent)), move |state| {
            let server = Arc::clone(&server);
            async move {
                let (mut progress, mut sent) = state?;
                let seen = progress
                    .wait_for(|next| next.expired > now.expired || next.events > sent)
                    .await
                    .ok()
                    .map(|next| *next)?;
                if seen.expired > now.expired {
                    return Some((expired(), None));
                }
                let mut frame = BytesMut::with_capacity(FRAME + 8192);
                while sent < seen.events && frame.len() < FRAME {
                    let turn = usize::try_from(sent).unwrap_or_default() % server.events.len();
                    sent += 1;
                    server.events[turn].write(first + sent, &mut frame);
                }
                Some((frame.freeze(), Some((progress, sent))))
            }
        });
        let frames = frames.map(|frame| Ok(Frame::data(frame)));
        respond(StatusCode::OK, StreamBody::new(frames).boxed_unsync())
    }
}

/// A query string of numbers and flags, which need no decoding.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }
}

/// Replaces the UID of the marker Pod, which is otherwise a copy of the first Pod.
fn unlike_the_first(marker: &str, objects: usize) -> String {
    let other = pods::pod(objects, None, LIST_VERSION, Form::Item);
    let uid = |pod: &str| {
        let value: Option<serde_json::Value> = serde_json::from_str(pod).ok();
        let uid = value.and_then(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned));
        uid.unwrap_or_default()
    };
    marker.replacen(&uid(marker), &uid(&other), 1)
}

fn expired() -> Bytes {
    let event = json!({"type": "ERROR", "object": status(
        StatusCode::GONE, "Expired", "too old resource version: requested by the benchmark",
    )});
    Bytes::from(format!("{event}\n"))
}

/// The error of a server without streaming lists.
fn no_watch_list() -> Response<Body> {
    let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                   sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    let mut status = status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    status["details"] = json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [{
        "reason": "FieldValueForbidden",
        "message": "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        "field": "sendInitialEvents",
    }]});
    json_body(StatusCode::UNPROCESSABLE_ENTITY, &status)
}

fn not_found() -> Response<Body> {
    let status = status(
        StatusCode::NOT_FOUND,
        "NotFound",
        "the server could not find the requested resource",
    );
    json_body(StatusCode::NOT_FOUND, &status)
}

/// Handles discovery requests.
fn discovery(path: &str) -> Response<Body> {
    let answer = match path {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4"}),
        "/api" => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [{
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": ["get", "list", "watch"], "shortNames": ["po"],
        }]}),
        _ => return not_found(),
    };
    json_body(StatusCode::OK, &answer)
}

fn status(code: StatusCode, reason: &str, message: &str) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    })
}

fn json_body(code: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let body = http_body_util::Full::new(Bytes::from(value.to_string()));
    respond(code, body.boxed_unsync())
}

fn respond(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests;
