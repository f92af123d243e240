//! Posts reviews to webhooks.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header, response::Parts};
use http_body_util::Full;
use parking_lot::RwLock;
use serde_json::Value;

use super::{
    CallError, ClientConfig, Destination, Limits, WebhookTarget,
    errors::DEADLINE,
    limits::{Held, Received, apart, check_values},
    pool::{Address, Connection, Key, Pool},
    services,
    tls::Roots,
};
use crate::api::Api;

/// A call to a webhook: a review with its `request`.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    /// The review; `request` is filled in.
    pub(crate) review: Value,
    /// The time limit of the call, including the wait for a free slot.
    pub(crate) timeout: Duration,
    /// The timeout announced to the webhook: its own, or the time left for the request if that is
    /// less.
    pub(crate) announced: Duration,
    /// Limits concurrent calls and the size of their responses.
    pub(crate) limits: &'a Arc<Limits>,
}

/// The review in a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) review: Value,
    /// Must be held until the review is no longer needed.
    pub(crate) held: Held,
}

/// The response of a webhook.
#[derive(Debug)]
pub(super) struct Answered {
    code: u16,
    received: Received,
    /// Whether errors may show the body.
    is_text: bool,
}

impl Answered {
    pub(super) fn new(head: &Parts, received: Received) -> Self {
        let kind = head.headers.get(header::CONTENT_TYPE);
        Self {
            code: head.status.as_u16(),
            received,
            is_text: kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/")),
        }
    }
}

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct Client {
    pool: Pool,
    /// The certificates trusted for webhooks whose configuration has no `caBundle`.
    system: RwLock<Roots>,
    /// The targets registered for Services, by `namespace/name`.
    routes: RwLock<Arc<BTreeMap<String, WebhookTarget>>>,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            pool: Pool::default(),
            system: RwLock::new(Roots::new(Vec::new())),
            routes: RwLock::default(),
        }
    }
}

impl Client {
    /// Replaces the certificates of the system.
    pub(crate) fn set_system_roots(&self, roots: Roots) {
        *self.system.write() = roots;
    }

    /// Registers a replacement for a Service.
    pub(crate) fn route(&self, service: String, target: WebhookTarget) {
        let mut routes = self.routes.write();
        let mut next = BTreeMap::clone(&routes);
        next.insert(service, target);
        *routes = Arc::new(next);
    }

    /// Posts a review and returns the review in the response.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes the connection, or aborts the task of a webhook in
    /// this process.
    pub(crate) async fn call(
        &self,
        api: &Api,
        config: &ClientConfig,
        sent: Sent<'_>,
    ) -> Result<Answer, CallError> {
        let Sent {
            review,
            timeout,
            announced,
            limits,
        } = sent;
        // Boxed, because the future of every write contains this one several times, and few writes
        // run it.
        if let Destination::Local(webhook) = &config.destination {
            let called = Box::pin(limits.call(webhook.call(review)));
            let called = tokio::time::timeout(timeout, called).await;
            let called = called.unwrap_or_else(|_| Err(CallError::Local(DEADLINE.to_owned())));
            return called.map(|review| Answer { review, held: None });
        }
        let seconds = announced.as_secs() + u64::from(announced.subsec_nanos() > 0);
        let target = format!("{}?timeout={seconds}s", config.path);
        let url = format!("https://{}{target}", config.authority);
        let body = Bytes::from(review.to_string());
        let called = Box::pin(async {
            let exchanged = self.exchange(api, config, &target, &url, body, limits);
            let answer = exchanged.await?;
            let (code, Received { body, held }) = (answer.code, answer.received);
            if !(200..300).contains(&code) {
                return Err(CallError::status(code, &body, answer.is_text));
            }
            let (review, held) = apart(held, move || decode(code, &body)).await?;
            Ok(Answer {
                review: review?,
                held,
            })
        });
        let called = tokio::time::timeout(timeout, limits.call(called)).await;
        called.unwrap_or_else(|_| Err(CallError::transport(&url, DEADLINE)))
    }

    /// Sends a request to the first address that accepts it.
    async fn exchange(
        &self,
        api: &Api,
        config: &ClientConfig,
        target: &str,
        url: &str,
        body: Bytes,
        limits: &Arc<Limits>,
    ) -> Result<Answered, CallError> {
        let request = || {
            let request = Request::builder()
                .method(Method::POST)
                .uri(target)
                .header(header::HOST, &config.authority)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, "kube-apiserver-admission");
            request
                .body(Full::new(body.clone()))
                .map_err(|error| CallError::transport(url, error.to_string()))
        };
        let addresses = match &config.destination {
            Destination::Url { host, port } => vec![Address::Host(host.clone(), *port)],
            Destination::Service {
                namespace,
                name,
                port,
            } => {
                let routes = Arc::clone(&self.routes.read());
                match routes.get(&format!("{namespace}/{name}")) {
                    Some(WebhookTarget::Address(address)) => vec![Address::Socket(*address)],
                    Some(WebhookTarget::Service(service)) => {
                        let answer = service.call(request()?, limits).await;
                        return answer.map_err(|why| CallError::transport(url, why));
                    }
                    None => {
                        let found = services::addresses(api, namespace, name, *port);
                        let found = found.map_err(|why| CallError::transport(url, why))?;
                        found.into_iter().map(Address::Socket).collect()
                    }
                }
            }
            Destination::Local(_) => Vec::new(),
        };
        let roots = if config.roots.is_system() {
            self.system.read().clone()
        } else {
            config.roots.clone()
        };
        let mut last = CallError::transport(url, "no addresses");
        for address in addresses {
            let key = Key {
                address,
                server_name: config.server_name(),
                bundle: Arc::clone(roots.bundle()),
            };
            match self.post(&roots, key, url, &request, limits).await {
                Ok(answer) => return Ok(answer),
                Err((error, true)) => last = error,
                Err((error, false)) => return Err(error),
            }
        }
        Err(last)
    }

    /// Sends a request to one address. The error says whether another address may be tried.
    async fn post(
        &self,
        roots: &Roots,
        key: Key,
        url: &str,
        request: &impl Fn() -> Result<Request<Full<Bytes>>, CallError>,
        limits: &Limits,
    ) -> Result<Answered, (CallError, bool)> {
        let failed = |why: String, again| (CallError::transport(url, why), again);
        loop {
            let mut connection = match self.pool.take(&key) {
                Some(connection) => connection,
                None => Connection::open(key.clone(), roots)
                    .await
                    .map_err(|why| failed(why, true))?,
            };
            let request = request().map_err(|error| (error, false))?;
            let response = match connection.send(request).await {
                Ok(response) => response,
                // The webhook closed an idle connection while the request was on its way.
                Err(error) if connection.reused && is_hang_up(&error) => continue,
                Err(error) if is_hang_up(&error) => {
                    return Err(failed("EOF".to_owned(), false));
                }
                Err(error) => return Err(failed(error.to_string(), false)),
            };
            let (head, body) = response.into_parts();
            let received = limits.receive(body).await;
            let received = received.map_err(|why| failed(why, false))?;
            self.pool.put(connection);
            return Ok(Answered::new(&head, received));
        }
    }
}

/// Returns true if the webhook closed the connection instead of responding.
fn is_hang_up(error: &hyper::Error) -> bool {
    let inner = std::error::Error::source(error).and_then(|inner| inner.downcast_ref());
    let closed = inner.is_some_and(|inner: &io::Error| {
        matches!(
            inner.kind(),
            io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::UnexpectedEof
        )
    });
    closed || error.is_canceled() || error.is_closed() || error.is_incomplete_message()
}

/// Decodes the review in a response.
pub(super) fn decode(code: u16, body: &[u8]) -> Result<Value, CallError> {
    if body.is_empty() {
        return Err(CallError::Malformed(format!(
            "0-length response with status code: {code} and content type: "
        )));
    }
    check_values(body).map_err(CallError::Malformed)?;
    serde_json::from_slice(body).map_err(|error| {
        let why = crate::api::json_problem(&error, body);
        CallError::Malformed(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))
    })
}
