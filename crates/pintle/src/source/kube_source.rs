//! A source over a [`kube::Client`].
//!
//! Only `source` uses kube's request types, so that a new major version of kube touches one module.

use std::{
    collections::BTreeSet,
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::Stream;
use http::{
    HeaderMap, HeaderValue, Request, Response,
    header::{ACCEPT, ACCEPT_ENCODING, RETRY_AFTER},
};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::{
    Client, Resource,
    client::Body,
    core::{params, request},
};
use tokio::{task::consume_budget, time::timeout};

use super::{
    ApiError, Extent, ListOptions, ListWatch, Page, RawItem, Scope, SourceError, VersionMatch,
    WatchEvent,
    kind_scope::ScopeLookup,
    list_body::ListBody,
    options::InNamespaces,
    watch_body::{Lines, parse_event},
};

/// The largest accepted object. API servers reject objects beyond a few megabytes.
const OBJECT_LIMIT: usize = 16 * 1024 * 1024;
/// How long a list may stall: a little longer than the request timeout of API servers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How much of an error response is read.
const ERROR_LIMIT: usize = 64 * 1024;

type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// The objects of kind `K` on a Kubernetes API server.
///
/// ```no_run
/// # fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
/// use pintle::source::{KubeSource, Scope};
///
/// // All Pods; the Pods of one namespace that have a label.
/// let all = KubeSource::<Pod>::new(client.clone(), Scope::all());
/// let web = KubeSource::<Pod>::new(client.clone(), Scope::namespace("shop").labels("app=web"));
///
/// // Metadata only: the server omits the rest.
/// let names = KubeSource::<PartialObjectMeta<Pod>>::new(client.clone(), Scope::all());
///
/// // A kind known only at run time.
/// let foos = ApiResource::from_gvk(&GroupVersionKind::gvk("samplecontroller.k8s.io", "v1", "Foo"));
/// let foos = KubeSource::<DynamicObject>::dynamic(client, &foos, Scope::all());
/// # }
/// ```
///
/// Clients built by [`pintle::client`](crate::client) do not retry. A client with kube's default
/// stack works too, but retries requests that fail with 429, 503 or 504 up to fifteen times before
/// the reflector learns of the failure, which delays its back-off and metrics.
pub struct KubeSource<K> {
    client: Client,
    request: request::Request,
    resource: String,
    api_version: String,
    kind: String,
    scope: Scope,
    /// The name of the cluster, if there are several.
    cluster: Option<Arc<str>>,
    metadata_only: bool,
    object_limit: usize,
    idle_timeout: Duration,
    tweak: Option<Tweak>,
    /// Set if the server must be asked whether the kind is namespaced.
    lookup: Option<Arc<ScopeLookup>>,
    of: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> KubeSource<K> {
    /// Returns a source for a kind that is known at compile time.
    pub fn new(client: Client, scope: Scope) -> Self {
        Self::dynamic(client, &(), scope)
    }
}

impl<K: Resource> KubeSource<K> {
    /// Returns a source for a kind that is described by a value, such as an
    /// [`ApiResource`](kube::core::ApiResource).
    pub fn dynamic(client: Client, kind: &K::DynamicType, scope: Scope) -> Self {
        let metadata_only = K::metadata_api();
        let (group, plural) = (K::group(kind), K::plural(kind));
        Self {
            client,
            request: request::Request::new(K::url_path(kind, scope.in_namespace())),
            resource: if group.is_empty() {
                plural.into_owned()
            } else {
                format!("{plural}.{group}")
            },
            api_version: K::api_version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            scope,
            cluster: None,
            metadata_only,
            object_limit: OBJECT_LIMIT,
            idle_timeout: IDLE_TIMEOUT,
            tweak: None,
            lookup: None,
            of: PhantomData,
        }
    }

    /// Asks the server's discovery API for the scope of the kind before the first request, and
    /// ignores the namespace if the kind is cluster-scoped.
    pub(crate) fn look_up_scope(mut self, kind: &K::DynamicType) -> Self {
        self.lookup = Some(Arc::new(ScopeLookup::new::<K>(kind)));
        self
    }
}

impl<K> KubeSource<K> {
    /// Changes the options of every list and watch request just before it is sent.
    ///
    /// `tweak` also runs to determine the [extent](ListWatch::extent): if it adds a selector, the
    /// source covers only some objects.
    pub fn tweak_list_options(
        mut self,
        tweak: impl Fn(&mut ListOptions) + Send + Sync + 'static,
    ) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// Sets the largest accepted object in bytes; 16 MiB by default. A larger item of a list is
    /// skipped and reported; a larger event ends the watch.
    pub fn object_limit(mut self, bytes: usize) -> Self {
        self.object_limit = bytes;
        self
    }

    /// Sets how long a list may go without receiving data before it fails; 90 seconds by default.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Names the cluster in descriptions.
    pub(crate) fn in_cluster(mut self, name: &str) -> Self {
        self.cluster = Some(name.into());
        self
    }

    /// Describes the objects of this kind in several namespaces.
    pub(crate) fn describe_namespaces(&self, names: &BTreeSet<String>) -> String {
        self.describe_in(&InNamespaces(&self.scope, names))
    }

    fn describe_in(&self, scope: &impl fmt::Display) -> String {
        match &self.cluster {
            Some(cluster) => format!("{} {scope} of cluster {cluster}", self.resource),
            None => format!("{} {scope}", self.resource),
        }
    }

    /// Returns the scope of this source.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    fn options(&self, mut options: ListOptions) -> ListOptions {
        options.label_selector = options.label_selector.or_else(|| self.scope.labels.clone());
        options.field_selector = options.field_selector.or_else(|| self.scope.fields.clone());
        if let Some(tweak) = &self.tweak {
            tweak(&mut options);
        }
        options
    }

    /// Returns the request builder for the scope of the kind.
    async fn requests(&self) -> Result<&request::Request, SourceError> {
        match &self.lookup {
            Some(lookup) if !lookup.namespaced(self).await? => Ok(&lookup.cluster),
            _ => Ok(&self.request),
        }
    }

    fn list_request(
        &self,
        requests: &request::Request,
        options: ListOptions,
    ) -> Result<Request<Vec<u8>>, request::Error> {
        let params = params::ListParams {
            label_selector: options.label_selector,
            field_selector: options.field_selector,
            limit: options.limit,
            continue_token: options.continue_token,
            version_match: options.resource_version_match.map(|kind| match kind {
                VersionMatch::NotOlderThan => params::VersionMatch::NotOlderThan,
                VersionMatch::Exact => params::VersionMatch::Exact,
            }),
            resource_version: options.resource_version,
            ..params::ListParams::default()
        };
        if self.metadata_only {
            requests.list_metadata(&params)
        } else {
            requests.list(&params)
        }
    }

    fn watch_request(
        &self,
        requests: &request::Request,
        options: ListOptions,
    ) -> Result<Request<Vec<u8>>, request::Error> {
        let version = options.resource_version.unwrap_or_default();
        let params = params::WatchParams {
            label_selector: options.label_selector,
            field_selector: options.field_selector,
            timeout: options
                .timeout
                .map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: options.allow_watch_bookmarks,
            send_initial_events: options.send_initial_events,
        };
        if self.metadata_only {
            requests.watch_metadata(&params, &version)
        } else {
            requests.watch(&params, &version)
        }
    }

    pub(super) async fn send(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        encoding: Option<HeaderValue>,
    ) -> Result<Response<Body>, SourceError> {
        let mut request = request.map_err(|error| SourceError::Request(error.into()))?;
        let headers = request.headers_mut();
        if let Some(encoding) = encoding {
            headers.insert(ACCEPT_ENCODING, encoding);
        }
        headers
            .entry(ACCEPT)
            .or_insert(HeaderValue::from_static("application/json"));
        let response = self
            .client
            .send(request.map(Body::from))
            .await
            .map_err(SourceError::transport)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let error = api_error(response).await;
        if error.code == 404
            && let Some(lookup) = &self.lookup
        {
            lookup.forget();
        }
        Err(SourceError::Api(error))
    }
}

impl<K: 'static> ListWatch for KubeSource<K> {
    type Watch = KubeWatch;

    fn resource(&self) -> &str {
        &self.resource
    }

    fn describe(&self) -> String {
        let lookup = self.lookup.as_ref();
        let cluster = lookup.is_some_and(|lookup| lookup.found_cluster_scoped());
        let scope = self.scope.clone();
        let scope = if cluster { scope.in_cluster() } else { scope };
        self.describe_in(&scope)
    }

    fn extent(&self) -> Extent {
        // Uses the options that are actually sent, because a tweak may add selectors.
        let sent = self.options(ListOptions::default());
        let selects = sent.label_selector.is_some() || sent.field_selector.is_some();
        match &self.scope.namespace {
            _ if selects => Extent::Selected,
            Some(namespace) => Extent::Namespace(namespace.clone()),
            None => Extent::All,
        }
    }

    fn expected_type(&self) -> Option<(&str, &str)> {
        // A server that does not support metadata-only requests sends whole objects, which work
        // too.
        (!self.metadata_only).then_some((&self.api_version, &self.kind))
    }

    async fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        let idle = |_| SourceError::IdleTimeout(self.idle_timeout);
        let response = async {
            let request = self.list_request(self.requests().await?, self.options(options));
            self.send(request, None).await
        };
        let response = timeout(self.idle_timeout, response).await.map_err(idle)??;
        let mut bytes = response.into_body();
        let mut list = ListBody::new(self.object_limit);
        while let Some(frame) = timeout(self.idle_timeout, bytes.frame())
            .await
            .map_err(idle)?
        {
            // A body that is always ready must not starve other tasks.
            consume_budget().await;
            if let Ok(chunk) = frame.map_err(SourceError::transport)?.into_data() {
                list.push(&chunk, on_item)?;
            }
        }
        Ok(list.finish()?)
    }

    async fn watch(&self, options: ListOptions) -> Result<KubeWatch, SourceError> {
        // Newer servers compress each event into a separate gzip member, and common decoders stop
        // after the first.
        let encoding = Some(HeaderValue::from_static("identity"));
        let request = self.watch_request(self.requests().await?, self.options(options));
        let response = self.send(request, encoding).await?;
        Ok(KubeWatch {
            body: Some(response.into_body()),
            lines: Lines::new(self.object_limit),
        })
    }
}

impl<K> Clone for KubeSource<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            request: self.request.clone(),
            resource: self.resource.clone(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            scope: self.scope.clone(),
            cluster: self.cluster.clone(),
            metadata_only: self.metadata_only,
            object_limit: self.object_limit,
            idle_timeout: self.idle_timeout,
            tweak: self.tweak.clone(),
            lookup: self.lookup.clone(),
            of: PhantomData,
        }
    }
}

impl<K> fmt::Debug for KubeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("resource", &self.resource)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// An open watch of a [`KubeSource`].
#[derive(Debug)]
pub struct KubeWatch {
    /// `None` once the stream has ended; nothing is read after an error.
    body: Option<Body>,
    lines: Lines,
}

impl KubeWatch {
    fn end(&mut self, with: Option<SourceError>) -> Poll<Option<Result<WatchEvent, SourceError>>> {
        self.body = None;
        Poll::Ready(with.map(Err))
    }
}

impl Stream for KubeWatch {
    type Item = Result<WatchEvent, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.body.is_none() {
                return Poll::Ready(None);
            }
            match this.lines.next_line() {
                Ok(Some(line)) => {
                    return match parse_event(&line) {
                        Ok(event) => Poll::Ready(Some(Ok(event))),
                        Err(error) => this.end(Some(error.into())),
                    };
                }
                Ok(None) => {}
                Err(error) => return this.end(Some(error.into())),
            }
            let Some(body) = &mut this.body else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        this.lines.push(&chunk);
                    }
                }
                Some(Err(error)) => return this.end(Some(SourceError::transport(error))),
                None => {
                    if this.lines.has_partial_line() {
                        tracing::debug!(
                            "watch ended in the middle of an event; ignoring the partial event"
                        );
                    }
                    return this.end(None);
                }
            }
        }
    }
}

/// Reads the error from a response that is not a success.
async fn api_error(response: Response<Body>) -> ApiError {
    let code = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(chunk) = frame.into_data() {
            bytes.extend_from_slice(&chunk[..chunk.len().min(ERROR_LIMIT - bytes.len())]);
        }
        if bytes.len() == ERROR_LIMIT {
            break;
        }
    }
    let mut error = ApiError::parse(&bytes).unwrap_or_default();
    if error.code == 0 {
        error.code = code;
    }
    if error.message.is_empty() && error.reason.is_empty() {
        // Not a `Status` but, for example, a proxy's error page: its first characters help in the
        // log.
        let text = String::from_utf8_lossy(&bytes);
        error.message = text.trim().chars().take(200).collect();
    }
    error.retry_after = error.retry_after.or(retry_after);
    error
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
