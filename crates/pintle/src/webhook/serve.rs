//! The server: collects the functions that answer reviews, and serves them over TLS.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{FutureExt, future::BoxFuture};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Admission, Certificates, Denied, diff,
    handler::{ANSWER_TIMEOUT, Answer, WebhookHandler},
};
use crate::{
    cache::BoxError,
    manager::{Component, Environment},
    metrics::Metrics,
};

/// The number of concurrent connections. To accept another, the oldest is closed as soon as it is
/// idle.
const CONNECTIONS: usize = 256;
/// How long a TLS handshake or the body of a request may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often another idle connection is closed while there is no room for a new one.
const ROOM_EVERY: Duration = Duration::from_millis(10);
/// How often the authority in configurations is checked.
const INJECT_EVERY: Duration = Duration::from_secs(10);
/// How long to wait after the first failed injection. Doubles up to [`INJECT_EVERY`].
const INJECT_BACKOFF: Duration = Duration::from_millis(500);
/// How long to wait after `accept` fails.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Webhooks by path. See the [module](super).
#[derive(Clone, Default)]
#[must_use = "webhooks do nothing until they are served"]
pub struct WebhookServer {
    routes: BTreeMap<String, Arc<Answer>>,
    metrics: Metrics,
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.keys()).finish()
    }
}

impl WebhookServer {
    /// Returns a server without webhooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a validator under a path.
    pub fn validate<K, F, R>(self, path: &str, validator: F) -> Self
    where
        K: DeserializeOwned + Send + 'static,
        F: Fn(Admission<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        let validator = Arc::new(validator);
        self.route(path, move |request| {
            let validator = Arc::clone(&validator);
            async move {
                let admission = Admission::<K>::read(request).map_err(|e| e.to_string())?;
                let remarks = admission.remarks();
                let mut response = match validator(admission).await {
                    Ok(()) => json!({"allowed": true}),
                    Err(denied) => denied.response(),
                };
                remarks.add_to(&mut response);
                Ok(response)
            }
            .boxed()
        })
    }

    /// Adds a mutator under a path. It receives the new object and returns the object to store.
    /// Fields that the type does not know are preserved. It is not called for deletes.
    pub fn mutate<K, F, R>(self, path: &str, mutator: F) -> Self
    where
        K: Serialize + DeserializeOwned + Clone + Send + 'static,
        F: Fn(K, Admission<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<K, Denied>> + Send + 'static,
    {
        let mutator = Arc::new(mutator);
        self.route(path, move |request| {
            let mutator = Arc::clone(&mutator);
            async move {
                let document = request["object"].clone();
                let admission = Admission::<K>::read(request).map_err(|e| e.to_string())?;
                let remarks = admission.remarks();
                let Some(object) = admission.object.clone() else {
                    return Ok(json!({"allowed": true}));
                };
                let before = serde_json::to_value(&object).map_err(|e| e.to_string())?;
                let mut response = match mutator(object, admission).await {
                    Ok(after) => {
                        let after = serde_json::to_value(&after).map_err(|e| e.to_string())?;
                        allowed(&diff::patch(&document, &before, &after))
                    }
                    Err(denied) => denied.response(),
                };
                remarks.add_to(&mut response);
                Ok(response)
            }
            .boxed()
        })
    }

    /// Adds a converter under a path. It receives an object and the `apiVersion` to convert it to,
    /// and returns the object in that version or an error message.
    pub fn convert<F, R>(self, path: &str, converter: F) -> Self
    where
        F: Fn(Value, String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let converter = Arc::new(converter);
        self.route(path, move |mut request| {
            let converter = Arc::clone(&converter);
            async move {
                let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
                let to = to.to_owned();
                let Value::Array(objects) = request["objects"].take() else {
                    return Err("objects: expected a list".to_owned());
                };
                let mut converted = Vec::with_capacity(objects.len());
                for object in objects {
                    match converter(object, to.clone()).await {
                        Ok(object) => converted.push(object),
                        Err(message) => {
                            return Ok(json!({"result":
                                {"status": "Failure", "message": message}}));
                        }
                    }
                }
                Ok(json!({"convertedObjects": converted, "result": {"status": "Success"}}))
            }
            .boxed()
        })
    }

    fn route(
        mut self,
        path: &str,
        answer: impl Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync + 'static,
    ) -> Self {
        self.routes.insert(path.to_owned(), Arc::new(answer));
        self
    }

    /// Sets where metrics are registered. A manager overrides this.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Returns the webhooks as a tower service, without TLS and sockets.
    pub fn handler(&self) -> WebhookHandler {
        WebhookHandler {
            routes: Arc::new(self.routes.clone()),
            metrics: self.metrics.set(),
        }
    }

    /// Returns a component that serves the webhooks on every replica, over TLS.
    ///
    /// Self-signed authorities are injected before controllers start, as soon as the configurations
    /// exist, and again whenever they go missing. A shutdown waits for in-flight reviews.
    pub fn component(
        self,
        name: impl Into<String>,
        address: impl Into<String>,
        certificates: Certificates,
    ) -> Component {
        let (address, certificates) = (address.into(), Arc::new(certificates));
        Component::server(name, move |environment: Environment| {
            let server = self.clone().metrics(environment.metrics());
            let (address, certificates) = (address.clone(), Arc::clone(&certificates));
            async move { server.run(&address, &certificates, &environment).await }
        })
    }

    /// Serves the webhooks over TLS until `shutdown` is cancelled and in-flight reviews have
    /// completed, without a manager. Authorities are not injected.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound or the certificate cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future closes all connections.
    pub async fn serve(
        self,
        address: impl ToSocketAddrs,
        certificates: &Certificates,
        shutdown: &CancellationToken,
    ) -> Result<(), BoxError> {
        let acceptor = TlsAcceptor::from(certificates.server_config()?);
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "serving webhooks");
        tokio::select! {
            biased;
            () = certificates.reload() => {}
            () = accept_all(listener, acceptor, self.handler(), shutdown) => {}
        }
        Ok(())
    }

    async fn run(
        self,
        address: &str,
        certificates: &Certificates,
        environment: &Environment,
    ) -> Result<(), BoxError> {
        let acceptor = TlsAcceptor::from(certificates.server_config()?);
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "serving webhooks");
        let serving = accept_all(listener, acceptor, self.handler(), environment.shutdown());
        tokio::select! {
            biased;
            () = certificates.reload() => {}
            () = keep_injected(certificates, environment) => {}
            () = serving => {}
        }
        Ok(())
    }
}

/// Writes the authority of a self-signed certificate into configurations and reports that the
/// server is ready, then restores the authority in configurations that change or are created again.
/// Never ends.
async fn keep_injected(certificates: &Certificates, environment: &Environment) {
    let bundle = certificates.authority_pem().map(|pem| STANDARD.encode(pem));
    let Some(bundle) = bundle.filter(|_| !certificates.injections.is_empty()) else {
        environment.ready();
        return std::future::pending().await;
    };
    let (mut backoff, mut is_ready) = (INJECT_BACKOFF, false);
    loop {
        let mut complete = true;
        for injection in &certificates.injections {
            if let Err(error) = injection.apply(environment.client(), &bundle).await {
                tracing::warn!(configuration = %injection, %error, "cannot write the CA; retrying");
                complete = false;
            }
        }
        if complete && !is_ready {
            environment.ready();
            is_ready = true;
        }
        let wait = if complete { INJECT_EVERY } else { backoff };
        backoff = if complete {
            INJECT_BACKOFF
        } else {
            INJECT_EVERY.min(backoff * 2)
        };
        tokio::time::sleep(wait).await;
    }
}

fn allowed(patch: &[Value]) -> Value {
    if patch.is_empty() {
        return json!({"allowed": true});
    }
    let patch = Value::from(patch).to_string();
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
}

/// Accepts connections until the shutdown, then waits for in-flight requests. Dropping it closes
/// all connections.
async fn accept_all(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handler: WebhookHandler,
    shutdown: &CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    // Tokens that ask a connection to end, oldest first.
    let mut open: VecDeque<CancellationToken> = VecDeque::new();
    let accepting = async {
        loop {
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            open.retain(|ending| !ending.is_cancelled());
            match accepted {
                Ok((stream, _)) => {
                    let permit = make_room(&permits, &mut open).await;
                    let ending = CancellationToken::new();
                    open.push_back(ending.clone());
                    let (acceptor, handler) = (acceptor.clone(), handler.clone());
                    connections.spawn(async move {
                        serve_connection(stream, acceptor, handler, &ending).await;
                        ending.cancel();
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a webhook connection; retrying");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    for ending in open {
        ending.cancel();
    }
    while connections.join_next().await.is_some() {}
}

/// Waits until another connection is allowed. Idle connections are closed to make room, oldest
/// first, so that silent clients cannot keep others out.
async fn make_room(
    permits: &Arc<Semaphore>,
    open: &mut VecDeque<CancellationToken>,
) -> OwnedSemaphorePermit {
    loop {
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return permit;
        }
        if let Some(oldest) = open.pop_front() {
            oldest.cancel();
        }
        tokio::time::sleep(ROOM_EVERY).await;
    }
}

/// Serves a connection. Once `ending` is cancelled, it closes after the request in flight.
async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handler: WebhookHandler,
    ending: &CancellationToken,
) {
    let handshake = tokio::select! {
        biased;
        () = ending.cancelled() => return,
        handshake = tokio::time::timeout(REQUEST_TIMEOUT, acceptor.accept(stream)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake of a webhook connection failed");
            return;
        }
        Err(_) => return,
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Also ends idle connections.
        .header_read_timeout(Duration::from_secs(90))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(handler));
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // A client that never finishes its request must not block the shutdown.
            let limit = REQUEST_TIMEOUT + ANSWER_TIMEOUT;
            let ended = tokio::time::timeout(limit, connection).await;
            ended.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "webhook connection failed");
    }
}
