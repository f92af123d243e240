//! A server's answers, made when they are asked for and not kept.

use std::{convert::Infallible, fmt::Write as _};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::{Client, client::Body};
use tokio::sync::watch;

/// As much as a TLS record holds, and so what a connection hands on at once.
const CHUNK: usize = 16 * 1024;

/// What a body consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Items of a list.
    List,
    /// Objects told as added.
    Stream,
    /// Objects told as changed.
    Events,
}

/// Serves Pods that can be changed and forgotten.
pub(super) struct Replay {
    objects: usize,
    told: watch::Sender<Told>,
}

#[derive(Clone, Copy, Default)]
struct Told {
    changes: usize,
    expired: usize,
}

impl Replay {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            objects,
            told: watch::Sender::new(Told::default()),
        }
    }

    /// So many objects change, one after the other.
    pub(super) fn change(&self, events: usize) {
        self.told.send_modify(|told| told.changes += events);
    }

    /// Ends the watch with 410.
    pub(super) fn expire(&self) {
        self.told.send_modify(|told| told.expired += 1);
    }

    pub(super) fn client(&self) -> Client {
        let (objects, told) = (self.objects, self.told.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let body = if query.contains("sendInitialEvents=true") {
                let marker = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"20000000","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
                let end = stream::iter([Bytes::from(format!("{marker}\n"))]);
                chunks(Shape::Stream, 0..objects)
                    .chain(end)
                    .chain(changes(objects, told.subscribe()))
                    .boxed()
            } else if query.contains("watch=true") {
                changes(objects, told.subscribe()).boxed()
            } else {
                list(objects, query).boxed()
            };
            let frames = body.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
            async { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
        });
        Client::new(service, "default")
    }
}

/// Makes a body and forgets it.
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

fn changes(objects: usize, told: watch::Receiver<Told>) -> impl Stream<Item = Bytes> {
    let now = *told.borrow();
    let state = Some((told, now.changes));
    let bodies = stream::unfold(state, move |state| async move {
        let (mut told, sent) = state?;
        let seen = told.wait_for(|next| next.expired > now.expired || next.changes > sent);
        let seen = *seen.await.ok()?;
        if seen.expired > now.expired {
            let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
            let gone = stream::iter([Bytes::from(format!("{gone}\n"))]).boxed();
            return Some((gone, None));
        }
        let events = chunks_of(Shape::Events, sent..seen.changes, objects).boxed();
        Some((events, Some((told, seen.changes))))
    });
    bodies.flatten()
}

fn chunks(shape: Shape, range: std::ops::Range<usize>) -> impl Stream<Item = Bytes> {
    chunks_of(shape, range, usize::MAX)
}

/// The bytes of these objects, in chunks as a connection hands them on: objects span them.
fn chunks_of(
    shape: Shape,
    range: std::ops::Range<usize>,
    objects: usize,
) -> impl Stream<Item = Bytes> {
    let first = range.start;
    let mut numbers = range;
    let mut made = BytesMut::with_capacity(2 * CHUNK);
    stream::iter(std::iter::from_fn(move || {
        while made.len() < CHUNK {
            let Some(n) = numbers.next() else { break };
            match shape {
                Shape::List if n > first => made.extend_from_slice(b","),
                Shape::List => {}
                Shape::Stream => made.extend_from_slice(br#"{"type":"ADDED","object":"#),
                Shape::Events => made.extend_from_slice(br#"{"type":"MODIFIED","object":"#),
            }
            let version = if shape == Shape::Events {
                20_000_001 + n
            } else {
                10_000_000 + n
            };
            write_pod(&mut made, n % objects, version, shape != Shape::List);
            if shape != Shape::List {
                made.extend_from_slice(b"}\n");
            }
        }
        let len = made.len().min(CHUNK);
        // A copy with a buffer of its own, as a decrypted record is.
        let chunk = Bytes::copy_from_slice(&made.split_to(len));
        (len > 0).then_some(chunk)
    }))
}

/// One Pod of about 6 KB, a third of it `managedFields`.
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
    // `@` and a digit stand for one of the numbers.
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
