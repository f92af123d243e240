//! The source over a `kube::Client`. No other module touches kube's request interface.

use std::{
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
    home::Lookup,
    list_body::ListBody,
    watch_body::{Lines, parse_event},
};

/// How large one object may be. Servers refuse objects beyond a few megabytes.
const OBJECT_LIMIT: usize = 16 * 1024 * 1024;
/// How long a list may be silent: somewhat longer than servers let any request take.
const SILENCE: Duration = Duration::from_secs(90);
/// How much of an error's body is read.
const ERROR_LIMIT: usize = 64 * 1024;

type Tweak = Arc<dyn Fn(&mut ListOptions) + Send + Sync>;

/// The objects of kind `K` that a Kubernetes API server holds.
///
/// ```no_run
/// # fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
/// use pintle::source::{KubeSource, Scope};
///
/// // Pods everywhere; those of one namespace that carry a label.
/// let all = KubeSource::<Pod>::new(client.clone(), Scope::all());
/// let web = KubeSource::<Pod>::new(client.clone(), Scope::namespace("shop").labels("app=web"));
///
/// // Their metadata alone: the server leaves the rest out.
/// let names = KubeSource::<PartialObjectMeta<Pod>>::new(client.clone(), Scope::all());
///
/// // A kind known only when the program runs.
/// let foos = ApiResource::from_gvk(&GroupVersionKind::gvk("samplecontroller.k8s.io", "v1", "Foo"));
/// let foos = KubeSource::<DynamicObject>::dynamic(client, &foos, Scope::all());
/// # }
/// ```
///
/// A client built by [`pintle::client`](crate::client) does not retry by itself. A client with
/// kube's default stack repeats requests that are answered with 429, 503 or 504 up to fifteen times
/// before the reflector hears of it: it works, but slowly and unseen.
pub struct KubeSource<K> {
    client: Client,
    request: request::Request,
    resource: String,
    api_version: String,
    kind: String,
    scope: Scope,
    metadata_only: bool,
    object_limit: usize,
    silence: Duration,
    tweak: Option<Tweak>,
    /// Set if the namespace counts only for a kind that lives in namespaces.
    lookup: Option<Arc<Lookup>>,
    of: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> KubeSource<K> {
    /// Follows a kind that is known when the program is compiled.
    pub fn new(client: Client, scope: Scope) -> Self {
        Self::dynamic(client, &(), scope)
    }
}

impl<K: Resource> KubeSource<K> {
    /// Follows a kind that is described by a value, such as an
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
            metadata_only,
            object_limit: OBJECT_LIMIT,
            silence: SILENCE,
            tweak: None,
            lookup: None,
            of: PhantomData,
        }
    }

    /// Asks the server's discovery where the kind lives before the first request, and ignores the
    /// namespace if it lives in none.
    pub(crate) fn look_up_scope(mut self, kind: &K::DynamicType) -> Self {
        self.lookup = Some(Arc::new(Lookup::new::<K>(kind)));
        self
    }
}

impl<K> KubeSource<K> {
    /// Changes the options of every list and watch just before they are sent. It is also asked once
    /// whether it selects: then the source [shows](ListWatch::extent) some objects and not all.
    pub fn tweak_list_options(
        mut self,
        tweak: impl Fn(&mut ListOptions) + Send + Sync + 'static,
    ) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// How large one object may be: 16 MiB unless told otherwise. A larger item of a list is passed
    /// over and reported; a longer line of a watch ends the watch.
    pub fn object_limit(mut self, bytes: usize) -> Self {
        self.object_limit = bytes;
        self
    }

    /// How long a list may be silent before it fails: 90 seconds unless told otherwise.
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Which objects are followed.
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

    /// The requests of the kind, in the scope where it lives.
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
        format!("{} {scope}", self.resource)
    }

    fn extent(&self) -> Extent {
        // As requests have it in the end: a tweak may select, too.
        let asked = self.options(ListOptions::default());
        let selects = asked.label_selector.is_some() || asked.field_selector.is_some();
        match &self.scope.namespace {
            _ if selects => Extent::Selected,
            Some(namespace) => Extent::Namespace(namespace.clone()),
            None => Extent::All,
        }
    }

    fn expected_type(&self) -> Option<(&str, &str)> {
        // A server that cannot leave the rest out may send whole objects: their metadata will do.
        (!self.metadata_only).then_some((&self.api_version, &self.kind))
    }

    async fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        let silent = |_| SourceError::Silent(self.silence);
        let asking = async {
            let request = self.list_request(self.requests().await?, self.options(options));
            self.send(request, None).await
        };
        let response = timeout(self.silence, asking).await.map_err(silent)??;
        let mut bytes = response.into_body();
        let mut list = ListBody::new(self.object_limit);
        while let Some(frame) = timeout(self.silence, bytes.frame()).await.map_err(silent)? {
            // A body that is always ready must not keep others from running.
            consume_budget().await;
            if let Ok(chunk) = frame.map_err(SourceError::transport)?.into_data() {
                list.push(&chunk, on_item)?;
            }
        }
        Ok(list.finish()?)
    }

    async fn watch(&self, options: ListOptions) -> Result<KubeWatch, SourceError> {
        // Plain bytes: servers compress each event of a watch for itself, which common decoders
        // take for the end of the stream.
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
            metadata_only: self.metadata_only,
            object_limit: self.object_limit,
            silence: self.silence,
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
    /// Gone once the stream has ended: nothing is read after an error.
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
                    if this.lines.is_cut_off() {
                        tracing::debug!("the watch was cut off in the middle of an event");
                    }
                    return this.end(None);
                }
            }
        }
    }
}

/// Reads the error out of an answer that is none of success.
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
        // A proxy's page, or nothing: its first words help whoever reads the log.
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
