//! Shared by the targets: an in-process API server, and a client whose response is the input.
//!
//! Targets use the public API only. libFuzzer's panic hook aborts, so it also finds panics that the
//! server would contain.

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use pintle_apiserver::ApiServer;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use tower::{Service, ServiceExt};

/// Runs a future to completion, with timers in real time.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: OnceCell<tokio::runtime::Runtime> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        runtime
            .get_or_init(|| {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                builder
                    .enable_time()
                    .build()
                    .expect("failed to build a runtime")
            })
            .block_on(future)
    })
}

/// A server that is shared by all inputs, so targets send dry runs or clean up.
pub struct Server(ApiServer);

impl Server {
    pub fn new() -> Self {
        Self(ApiServer::builder().seed(1).build())
    }

    /// Sends a request and returns the status code and body.
    ///
    /// # Panics
    ///
    /// Panics on an internal error, which is a finding. Any other rejection is fine.
    pub fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (StatusCode, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Full::new(Bytes::copy_from_slice(body)));
        let Ok(request) = request else {
            return (StatusCode::BAD_REQUEST, Bytes::new());
        };
        block_on(async {
            let response = self
                .0
                .service()
                .oneshot(request)
                .await
                .unwrap_or_else(|never| match never {});
            let code = response.status();
            let body = response
                .into_body()
                .collect()
                .await
                .unwrap_or_else(|never| match never {});
            let body = body.to_bytes();
            assert!(
                !String::from_utf8_lossy(&body).contains("\"reason\":\"InternalError\""),
                "{method} {path}: {code} {}",
                String::from_utf8_lossy(&body)
            );
            (code, body)
        })
    }

    /// Creates an object that must be accepted.
    pub fn create(&self, path: &str, object: &serde_json::Value) {
        let body = object.to_string();
        let (code, response) = self.send("POST", path, "application/json", body.as_bytes());
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&response));
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

/// A service that responds to its first request with the input, in chunks as they arrive on a
/// network.
#[derive(Clone)]
pub struct Replay {
    chunks: Vec<Bytes>,
}

impl Replay {
    /// Creates a service from an input whose first byte is the chunk size.
    pub fn new(input: &[u8]) -> Self {
        let (size, body) = input
            .split_first()
            .map_or((64, input), |(size, body)| (*size, body));
        let size = usize::from(size).max(1);
        let chunks = body.chunks(size).map(Bytes::copy_from_slice).collect();
        Self { chunks }
    }

    pub fn client(self) -> kube::Client {
        kube::Client::new(self, "default")
    }
}

type Body = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

impl<B> Service<Request<B>> for Replay {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let chunks = std::mem::take(&mut self.chunks);
        let frames: Vec<_> = chunks
            .into_iter()
            .map(|chunk| Ok(Frame::data(chunk)))
            .collect();
        Box::pin(async move { Ok(Response::new(StreamBody::new(stream::iter(frames)))) })
    }
}

/// A Deployment with lists of every merge strategy.
pub fn deployment() -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}, "finalizers": ["example.com/a"]},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}],
                         "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": ["x", "y"]},
                        {"name": "b", "image": "b:1"}],
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
    })
}

/// Returns true if no object has a repeated key. Decoders disagree about the meaning of repeated
/// keys, and no API server sends them.
pub fn keys_are_distinct(json: &[u8]) -> bool {
    serde_json::from_slice::<Distinct>(json).is_ok()
}

struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON with distinct keys")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, Self)) = members.next_entry::<String, Self>()? {
            if !keys.insert(key) {
                return Err(A::Error::custom("repeated key"));
            }
        }
        Ok(self)
    }
}
