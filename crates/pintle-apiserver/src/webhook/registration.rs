//! In-process webhooks, and replacements for the Service of a webhook.

use std::{fmt, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use tower::Service;

use super::{
    AdmissionRequest, AdmissionResponse, ConversionRequest, Limits, LocalWebhook, client::Answered,
};
use crate::{
    admission::{Hook, Webhooks},
    server::{ApiServer, Builder},
};

/// An admission webhook in this process: no TLS, no socket, and it works under a paused clock.
///
/// It behaves like an entry of a `ValidatingWebhookConfiguration` or
/// `MutatingWebhookConfiguration`: rules, selectors, match conditions, failure policy, timeout and
/// reinvocation have the same meaning. Among configurations it is ordered by its name.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use pintle_apiserver::{AdmissionResponse, ApiServer, Webhook};
///
/// let server = ApiServer::builder().build();
/// let webhook = Webhook::validating("replicas.example.com", |request| async move {
///     match request.object()["spec"]["replicas"].as_i64() {
///         Some(0) => AdmissionResponse::deny("a deployment needs a replica"),
///         _ => AdmissionResponse::allow(),
///     }
/// })
/// .rule(["CREATE", "UPDATE"], ["apps"], ["v1"], ["deployments"]);
/// let registration = server.register_webhook(&webhook).unwrap();
/// // … test …
/// drop(registration);
/// # }
/// ```
#[must_use]
pub struct Webhook {
    mutating: bool,
    /// The entry of a configuration.
    entry: Value,
    handler: LocalWebhook,
}

/// A webhook that cannot be registered.
#[derive(Debug, thiserror::Error)]
#[error("invalid webhook: {0}")]
pub struct WebhookError(pub(crate) String);

/// The fields that both kinds of webhooks have in this process. There is no `clientConfig`.
const FIELDS: [&str; 10] = [
    "admissionReviewVersions",
    "failurePolicy",
    "matchConditions",
    "matchPolicy",
    "name",
    "namespaceSelector",
    "objectSelector",
    "rules",
    "sideEffects",
    "timeoutSeconds",
];

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("mutating", &self.mutating)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Creates a webhook that allows or denies requests.
    ///
    /// `name` needs three segments, such as `replicas.example.com`. Without a
    /// [`rule`](Self::rule) the webhook is never called.
    pub fn validating<F, R>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(AdmissionRequest) -> R + Send + Sync + 'static,
        R: Future<Output = AdmissionResponse> + Send + 'static,
    {
        let name: String = name.into();
        Self::new(false, &name, LocalWebhook::admission(handler))
    }

    /// Creates a webhook that allows or denies requests and may change their objects.
    pub fn mutating<F, R>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(AdmissionRequest) -> R + Send + Sync + 'static,
        R: Future<Output = AdmissionResponse> + Send + 'static,
    {
        let name: String = name.into();
        Self::new(true, &name, LocalWebhook::admission(handler))
    }

    fn new(mutating: bool, name: &str, handler: LocalWebhook) -> Self {
        let entry = json!({"name": name, "rules": [], "failurePolicy": "Fail",
            "matchPolicy": "Equivalent", "sideEffects": "None", "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"], "namespaceSelector": {}, "objectSelector": {}});
        Self {
            mutating,
            entry,
            handler,
        }
    }

    /// Adds a rule: which operations on which resources the webhook is called for. `*` means all;
    /// `pods/*` includes subresources.
    pub fn rule<'a>(
        mut self,
        operations: impl IntoIterator<Item = &'a str>,
        groups: impl IntoIterator<Item = &'a str>,
        versions: impl IntoIterator<Item = &'a str>,
        resources: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let list = |items: &mut dyn Iterator<Item = &'a str>| -> Vec<Value> {
            items.map(Value::from).collect()
        };
        let rule = json!({"operations": list(&mut operations.into_iter()),
            "apiGroups": list(&mut groups.into_iter()),
            "apiVersions": list(&mut versions.into_iter()),
            "resources": list(&mut resources.into_iter()), "scope": "*"});
        if let Some(rules) = self.entry["rules"].as_array_mut() {
            rules.push(rule);
        }
        self
    }

    /// Sets any other field that a webhook has in a configuration, such as `objectSelector`,
    /// `matchConditions`, `sideEffects` or `reinvocationPolicy`. Registering the webhook fails if
    /// it has an unknown field or a `clientConfig`.
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.entry[name] = value;
        self
    }

    /// Allows requests if the webhook fails, instead of denying them.
    pub fn ignore_failures(self) -> Self {
        self.field("failurePolicy", "Ignore".into())
    }

    /// Sets the timeout, at most 30 seconds. It is rounded up to whole seconds, the unit in
    /// configurations. Default: 10 seconds.
    pub fn timeout(self, timeout: Duration) -> Self {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        self.field("timeoutSeconds", seconds.into())
    }

    fn compile(&self) -> Result<Hook, WebhookError> {
        let mut names = self.entry.as_object().into_iter().flat_map(|it| it.keys());
        let is_known =
            |name: &str| FIELDS.contains(&name) || self.mutating && name == "reinvocationPolicy";
        if let Some(unknown) = names.find(|name| !is_known(name)) {
            return Err(WebhookError(format!("unknown field {unknown:?}")));
        }
        Hook::local(&self.entry, self.mutating, self.handler.clone())
    }
}

/// A webhook that is called until this guard is dropped; returned by
/// [`ApiServer::register_webhook`] and [`ApiServer::register_converter`].
#[derive(Debug)]
#[must_use = "the webhook is removed when the registration is dropped"]
pub struct WebhookRegistration {
    webhooks: Arc<Webhooks>,
    registered: Registered,
}

#[derive(Debug)]
enum Registered {
    Hook { mutating: bool, id: u64 },
    Converter { definition: String, id: u64 },
}

impl Drop for WebhookRegistration {
    fn drop(&mut self) {
        match &self.registered {
            Registered::Hook { mutating, id } => self.webhooks.hooks(*mutating).remove_local(*id),
            Registered::Converter { definition, id } => {
                self.webhooks.converters.remove(definition, *id);
            }
        }
    }
}

/// A replacement for the Service of a webhook configuration; see [`ApiServer::route_webhooks`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WebhookTarget {
    /// A server that listens on this address and has a certificate for `NAME.NAMESPACE.svc`.
    Address(SocketAddr),
    /// A service in this process, without TLS and sockets; see [`WebhookTarget::service`].
    Service(HttpService),
}

impl WebhookTarget {
    /// Routes to a tower service, for example an axum router or the handler of `pintle::webhook`.
    /// It receives requests for the path in the configuration.
    pub fn service<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: fmt::Display + Send,
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::Service(HttpService(Arc::new(move |request, limits| {
            let mut service = service.clone();
            Box::pin(async move {
                let ready = std::future::poll_fn(|context| service.poll_ready(context)).await;
                ready.map_err(|error| error.to_string())?;
                let response = service.call(request).await;
                let response = response.map_err(|error| error.to_string())?;
                let (head, body) = response.into_parts();
                Ok(Answered::new(&head, limits.receive(body).await?))
            })
        })))
    }
}

type Exchange = dyn Fn(Request<Full<Bytes>>, Arc<Limits>) -> BoxFuture<'static, Result<Answered, String>>
    + Send
    + Sync;

/// An HTTP service in this process; returned by [`WebhookTarget::service`].
#[derive(Clone)]
pub struct HttpService(Arc<Exchange>);

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpService")
    }
}

impl HttpService {
    /// Handles a request in its own task.
    pub(super) async fn call(
        &self,
        request: Request<Full<Bytes>>,
        limits: &Arc<Limits>,
    ) -> Result<Answered, String> {
        let call = (self.0)(request, Arc::clone(limits));
        let answered = AbortOnDropHandle::new(tokio::spawn(call));
        answered
            .await
            .unwrap_or_else(|error| Err(format!("the service failed: {error}")))
    }
}

impl Builder {
    /// Adds an admission webhook in this process, for the lifetime of the server.
    ///
    /// # Errors
    ///
    /// Fails if the webhook would be invalid in a configuration.
    pub fn webhook(mut self, webhook: &Webhook) -> Result<Self, WebhookError> {
        self.webhooks.push((webhook.mutating, webhook.compile()?));
        Ok(self)
    }

    /// Routes webhook calls to a Service to `target`; see [`ApiServer::route_webhooks`].
    pub fn route_webhooks(mut self, namespace: &str, name: &str, target: WebhookTarget) -> Self {
        self.routes.push((format!("{namespace}/{name}"), target));
        self
    }
}

impl ApiServer {
    /// Registers an admission webhook in this process until the returned guard is dropped.
    ///
    /// The webhook runs in its own task, so this server must then be used within a tokio runtime. A
    /// webhook that holds a client of this server keeps the server alive until the guard is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Fails if the webhook would be invalid in a configuration.
    pub fn register_webhook(&self, webhook: &Webhook) -> Result<WebhookRegistration, WebhookError> {
        let hook = webhook.compile()?;
        let webhooks = Arc::clone(&self.api.webhooks);
        let mutating = webhook.mutating;
        let id = webhooks.hooks(mutating).add_local(hook);
        Ok(WebhookRegistration {
            webhooks,
            registered: Registered::Hook { mutating, id },
        })
    }

    /// Converts the custom resources of a CRD in this process until the returned guard is dropped,
    /// instead of calling the webhook that its `spec.conversion` names.
    ///
    /// `definition` is the name of the CRD, for example `foos.example.com`, which may be created
    /// later. Its conversion strategy must be `Webhook`: with `None`, versions differ only in
    /// `apiVersion` and the closure is never called. `spec.conversion.webhook` is required but not
    /// called, so its `clientConfig` may name any URL.
    ///
    /// The closure receives objects and the version to convert them to. It returns the same number
    /// of objects in the same order, or an error message.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_apiserver::ApiServer;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::builder().build();
    /// // In v1, `spec.host` is one string; in v2, `spec.hosts` is a list.
    /// let converter = server.register_converter("sites.example.com", |request| async move {
    ///     let version = request.desired_api_version().to_owned();
    ///     let mut objects = request.into_objects();
    ///     for object in &mut objects {
    ///         object["spec"] = match version.as_str() {
    ///             "example.com/v2" => json!({ "hosts": [object["spec"]["host"]] }),
    ///             "example.com/v1" => json!({ "host": object["spec"]["hosts"][0] }),
    ///             other => return Err(format!("cannot convert to {other}")),
    ///         };
    ///         object["apiVersion"] = json!(version);
    ///     }
    ///     Ok(objects)
    /// });
    /// // While `converter` lives, both versions can be read and written.
    /// # drop(converter);
    /// ```
    pub fn register_converter<F, R>(&self, definition: &str, converter: F) -> WebhookRegistration
    where
        F: Fn(ConversionRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Value>, String>> + Send + 'static,
    {
        let webhooks = Arc::clone(&self.api.webhooks);
        let converter = LocalWebhook::conversion(converter);
        let id = webhooks.converters.insert(definition, converter);
        WebhookRegistration {
            webhooks,
            registered: Registered::Converter {
                definition: definition.to_owned(),
                id,
            },
        }
    }

    /// Routes the calls that webhook configurations and CRDs direct to this Service to `target`,
    /// instead of the Service's endpoints.
    ///
    /// # Examples
    ///
    /// ```
    /// use pintle_apiserver::{ApiServer, WebhookTarget};
    ///
    /// let server = ApiServer::builder().build();
    /// let address = "127.0.0.1:9443".parse().unwrap();
    /// server.route_webhooks("system", "webhook-service", WebhookTarget::Address(address));
    /// ```
    pub fn route_webhooks(&self, namespace: &str, name: &str, target: WebhookTarget) {
        let service = format!("{namespace}/{name}");
        self.api.webhooks.client.route(service, target);
        self.api.webhooks.converters.rerouted();
    }
}
