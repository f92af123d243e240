//! Server responses, generated on request.

use std::{convert::Infallible, fmt::Write as _};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::{Client, client::Body};
use tokio::sync::watch;

/// The size of a TLS record: a connection delivers one at a time.
const CHUNK: usize = 16 * 1024;

/// The contents of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Items of a list.
    List,
    /// `ADDED` events.
    Stream,
    /// `MODIFIED` events.
    Events,
}

/// Serves Pods that change on demand.
pub(super) struct Replay {
    objects: usize,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    changes: usize,
    expired: usize,
}

impl Replay {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            objects,
            progress: watch::Sender::new(Progress::default()),
        }
    }

    /// Changes this many objects, one after the other.
    pub(super) fn change(&self, events: usize) {
        self.progress
            .send_modify(|progress| progress.changes += events);
    }

    /// Ends the watch with 410.
    pub(super) fn expire(&self) {
        self.progress.send_modify(|progress| progress.expired += 1);
    }

    pub(super) fn client(&self) -> Client {
        let (objects, progress) = (self.objects, self.progress.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let body = if query.contains("sendInitialEvents=true") {
                let marker = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"20000000","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
                let end = stream::iter([Bytes::from(format!("{marker}\n"))]);
                chunks(Shape::Stream, 0..objects)
                    .chain(end)
                    .chain(changes(objects, progress.subscribe()))
                    .boxed()
            } else if query.contains("watch=true") {
                changes(objects, progress.subscribe()).boxed()
            } else {
                list(objects, query).boxed()
            };
            let frames = body.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
            async { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
        });
        Client::new(service, "default")
    }
}

/// Generates a body and discards it.
pub(super) fn drain(shape: Shape, objects: usize) -> usize {
    let mut bytes = 0;
    let mut body = std::pin::pin!(chunks(shape, 0..objects));
    while let Some(Some(chunk)) = futures::FutureExt::now_or_never(body.next()) {
        bytes += chunk.len();
    }
    bytes
}

fn list(objects: usize, query: &str) -> impl Stream<Item = Bytes> + use<> {
    let number = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(key, _)| *key == name)?.1;
        value.parse::<usize>().ok()
    };
    let from = number("continue").unwrap_or(0);
    let to = number("limit").map_or(objects, |limit| objects.min(from + limit));
    let more = if to < objects {
        format!(r#","continue":"{to}""#)
    } else {
        String::new()
    };
    let head = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"20000000"{more}}},"items":["#
    );
    let ends = |text: Bytes| stream::iter([text]);
    ends(head.into())
        .chain(chunks(Shape::List, from..to))
        .chain(ends(Bytes::from_static(b"]}\n")))
}

fn changes(objects: usize, progress: watch::Receiver<Progress>) -> impl Stream<Item = Bytes> {
    let now = *progress.borrow();
    let state = Some((progress, now.changes));
    let bodies = stream::unfold(state, move |state| async move {
        let (mut progress, sent) = state?;
        let seen = progress.wait_for(|next| next.expired > now.expired || next.changes > sent);
        let seen = *seen.await.ok()?;
        if seen.expired > now.expired {
            let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
            let gone = stream::iter([Bytes::from(format!("{gone}\n"))]).boxed();
            return Some((gone, None));
        }
        let events = chunks_of(Shape::Events, sent..seen.changes, objects).boxed();
        Some((events, Some((progress, seen.changes))))
    });
    bodies.flatten()
}

fn chunks(shape: Shape, range: std::ops::Range<usize>) -> impl Stream<Item = Bytes> {
    chunks_of(shape, range, usize::MAX)
}

/// Returns the bytes of these objects in chunks as a connection delivers them. Objects span chunks.
fn chunks_of(
    shape: Shape,
    range: std::ops::Range<usize>,
    objects: usize,
) -> impl Stream<Item = Bytes> {
    let first = range.start;
    let mut numbers = range;
    let mut buffer = BytesMut::with_capacity(2 * CHUNK);
    stream::iter(std::iter::from_fn(move || {
        while buffer.len() < CHUNK {
            let Some(n) = numbers.next() else { break };
            match shape {
                Shape::List if n > first => buffer.extend_from_slice(b","),
                Shape::List => {}
                Shape::Stream => buffer.extend_from_slice(br#"{"type":"ADDED","object":"#),
                Shape::Events => buffer.extend_from_slice(br#"{"type":"MODIFIED","object":"#),
            }
            let version = if shape == Shape::Events {
                20_000_001 + n
            } else {
                10_000_000 + n
            };
            write_pod(&mut buffer, n % objects, version, shape != Shape::List);
            if shape != Shape::List {
                buffer.extend_from_slice(b"}\n");
            }
        }
        let len = buffer.len().min(CHUNK);
        // A copy in its own buffer, like a decrypted record.
        let chunk = Bytes::copy_from_slice(&buffer.split_to(len));
        (len > 0).then_some(chunk)
    }))
}

/// Returns a Pod of about 6 KB, a third of which is `managedFields`.
pub(super) fn pod(n: usize, version: usize, typed: bool) -> String {
    let mut bytes = BytesMut::new();
    write_pod(&mut bytes, n, version, typed);
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn write_pod(out: &mut BytesMut, n: usize, version: usize, typed: bool) {
    let mut numbers = [0_usize; 6];
    numbers.copy_from_slice(&[n, version, n / 20, n % 50, n / 1000, n % 256]);
    out.extend_from_slice(if typed {
        br#"{"kind":"Pod","apiVersion":"v1","#
    } else {
        b"{"
    });
    // `@` and a digit are a placeholder for one of the numbers.
    let mut rest = POD;
    while let Some((before, after)) = rest.split_once('@') {
        out.extend_from_slice(before.as_bytes());
        let which = usize::from(after.as_bytes()[0] - b'0');
        write!(out, "{}", numbers[which]).unwrap();
        rest = &after[1..];
    }
    out.extend_from_slice(rest.as_bytes());
}

const POD: &str = include_str!("pod.txt");
