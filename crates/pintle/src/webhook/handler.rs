//! The service that answers reviews, over TLS or in process.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

use super::{metrics::WebhookMetrics, serve::REQUEST_TIMEOUT};
use crate::{BoxError, object::panic_message};

/// The maximum size of a review, in bytes: two objects of the maximum size, plus the envelope.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// How long a webhook may take, if its caller does not give up earlier. No API server waits longer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers the `request` of a review with its `response`, or returns why it cannot be decoded.
pub(super) type Answer = dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync;

/// Answers reviews; returned by [`WebhookServer::handler`](super::WebhookServer::handler).
#[derive(Clone)]
pub struct WebhookHandler {
    pub(super) routes: Arc<BTreeMap<String, Arc<Answer>>>,
    pub(super) metrics: WebhookMetrics,
}

impl fmt::Debug for WebhookHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.keys()).finish()
    }
}

impl<B> Service<Request<B>> for WebhookHandler
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        async move {
            let start = Instant::now();
            let path = request.uri().path().to_owned();
            let responded = AssertUnwindSafe(this.respond(&path, request)).catch_unwind();
            let (code, body) = match responded.await {
                Ok(response) => response,
                Err(panic) => {
                    let why = panic_message(&*panic);
                    tracing::error!(webhook = path, why, "webhook panicked; responding with 500");
                    this.metrics.panicked();
                    let why = "the webhook panicked\n".to_owned();
                    (StatusCode::INTERNAL_SERVER_ERROR, why)
                }
            };
            if this.routes.contains_key(&path) {
                let seconds = start.elapsed().as_secs_f64();
                this.metrics.answered(&path, code.as_u16(), seconds);
            }
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = code;
            // The API server shows the body of a failure only if it is text.
            let kind = match code {
                StatusCode::OK => "application/json",
                _ => "text/plain; charset=utf-8",
            };
            let kind = http::HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok(response)
        }
        .boxed()
    }
}

impl WebhookHandler {
    async fn respond<B>(&self, path: &str, request: Request<B>) -> (StatusCode, String)
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let Some(answer) = self.routes.get(path) else {
            return (StatusCode::NOT_FOUND, format!("no webhook at {path}\n"));
        };
        if request.method() != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, "only POST\n".to_owned());
        }
        let bad = |why: String| (StatusCode::BAD_REQUEST, format!("{why}\n"));
        let limit = answer_within(request.uri().query());
        let body = Limited::new(request.into_body(), MAX_BODY).collect();
        let body = match tokio::time::timeout(REQUEST_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => return bad(format!("cannot read the review: {error}")),
            Err(_) => {
                let seconds = REQUEST_TIMEOUT.as_secs();
                let why = format!("the review did not arrive within {seconds} s\n");
                return (StatusCode::REQUEST_TIMEOUT, why);
            }
        };
        let mut review: Value = match serde_json::from_slice(&body) {
            Ok(review) => review,
            Err(error) => return bad(format!("cannot decode the review: {error}")),
        };
        let asked = review.get_mut("request").map(Value::take);
        let Some(asked) = asked.filter(Value::is_object) else {
            return bad("the review has no request".to_owned());
        };
        let uid = asked["uid"].clone();
        match tokio::time::timeout(limit, answer(asked)).await {
            Ok(Ok(mut response)) => {
                response["uid"] = uid;
                let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"],
                    "response": response});
                (StatusCode::OK, review.to_string())
            }
            Ok(Err(why)) => bad(format!("cannot decode the object: {why}")),
            Err(_) => {
                let seconds = limit.as_secs();
                tracing::warn!(webhook = path, seconds, "webhook timed out; cancelling it");
                let why = format!("no response within {seconds} s\n");
                (StatusCode::GATEWAY_TIMEOUT, why)
            }
        }
    }
}

/// Returns how long a webhook may take: as long as its caller waits, which the request states in
/// whole seconds.
fn answer_within(query: Option<&str>) -> Duration {
    let mut pairs = query.unwrap_or_default().split('&');
    let seconds = pairs.find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s'));
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    seconds.map_or(ANSWER_TIMEOUT, |seconds| {
        ANSWER_TIMEOUT.min(Duration::from_secs(seconds))
    })
}
