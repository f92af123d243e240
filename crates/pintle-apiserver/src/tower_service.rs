//! The API server as a tower service.

use std::{
    any::Any,
    convert::Infallible,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::Service;

use crate::api::{Api, ApiError, Body, MAX_BODY, User, refusal, wants_pretty};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request body did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("timed out after {0:?}")]
pub(crate) struct BodyTimeout(pub(crate) Duration);

/// A tower service that serves API requests. Always ready and cheap to clone.
///
/// Wrap it in a layer to observe, delay or fail the requests of every client, in process or over
/// TLS.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
    /// The user of requests without a [`User`] extension; if `None`, they get 401.
    user: Option<Arc<User>>,
}

impl ApiService {
    /// Creates a service that acts as `user`.
    pub(crate) fn new(api: Arc<Api>, user: User) -> Self {
        Self {
            api,
            user: Some(Arc::new(user)),
        }
    }

    /// Creates a service for requests with an authenticated [`User`] extension; others get 401.
    pub(crate) fn unidentified(api: Arc<Api>) -> Self {
        Self { api, user: None }
    }

    pub(crate) fn api(&self) -> &Arc<Api> {
        &self.api
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = Arc::clone(&self.api);
        let own = self.user.clone();
        let is_head = request.method() == Method::HEAD;
        let answered = async move {
            let (mut parts, body) = request.into_parts();
            let pretty = wants_pretty(&parts.uri, &parts.headers);
            let mut audited = api.auditor.start(&mut parts);
            let user = parts.extensions.remove::<User>();
            let user = user
                .or_else(|| own.map(Arc::unwrap_or_clone))
                .filter(|user| !user.name.is_empty())
                .ok_or_else(ApiError::unauthorized)
                .and_then(|user| {
                    if let Some(audited) = &mut audited {
                        audited.user(&user);
                    }
                    api.authorize_request(&parts, user)
                });
            let user = match user {
                Ok(user) => user,
                Err(error) => {
                    let response = refusal(&error, pretty);
                    if let Some(audited) = audited {
                        audited.finish(response.status());
                    }
                    return response;
                }
            };
            if let Some(audited) = &mut audited {
                audited.user(&user);
            }
            let body = read(body).await;
            let asked = api
                .points
                .is_set()
                .then(|| (parts.method.clone(), parts.uri.path().to_owned()));
            // A panic must fail this request only, not the server.
            let response = AssertUnwindSafe(api.handle(parts, body, user))
                .catch_unwind()
                .await;
            let response = response.unwrap_or_else(|panic| {
                let what = panic_text(panic.as_ref());
                tracing::error!(what, "request handler panicked; responding with 500");
                refusal(&ApiError::internal("a request handler panicked"), pretty)
            });
            if let Some(audited) = audited {
                audited.finish(response.status());
            }
            if let Some((method, path)) = asked {
                let code = response.status();
                let hold = api
                    .points
                    .run(|points| points.before_answer(&method, &path, code));
                if let Some(hold) = hold
                    && let Err(panic) = AssertUnwindSafe(hold).catch_unwind().await
                {
                    let what = panic_text(panic.as_ref());
                    tracing::error!(
                        what,
                        "future returned by before_answer panicked; responding now"
                    );
                }
            }
            response
        };
        Box::pin(answered.map(move |response| {
            Ok(if is_head {
                without_body(response)
            } else {
                response
            })
        }))
    }
}

/// Returns the response to a HEAD request: with the length of the body, but without the body, which
/// HTTP/2 clients treat as a protocol error.
fn without_body(response: Response<Body>) -> Response<Body> {
    let length = response.body().size_hint().exact();
    let (mut head, _) = response.into_parts();
    if let Some(length) = length {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, Body::whole(Bytes::new()))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(format!(
            "Request entity too large: limit is {MAX_BODY}"
        ))),
        Err(error) if error.is::<BodyTimeout>() => Err(ApiError::new(
            408,
            "Timeout",
            format!("error reading the body: {error}"),
        )),
        Err(error) => Err(ApiError::bad_request(format!(
            "error reading the body: {error}"
        ))),
    }
}

impl fmt::Debug for ApiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiService")
    }
}
