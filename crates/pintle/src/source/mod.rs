//! Where objects come from: one list, then one watch.
//!
//! An informer needs a complete list of objects and then every change to them, but should not
//! depend on where they come from. A [`ListWatch`] lists the objects of one kind and watches them
//! for changes. [`KubeSource`] implements it over a [`kube::Client`], for typed objects, for
//! dynamic objects described by an [`ApiResource`](kube::core::ApiResource), and for metadata only.
//! Implement the trait yourself to feed an informer from somewhere else, such as a fake in a test.
//!
//! Response bodies are split while they arrive: each list item and each watch event is passed on as
//! bytes as soon as it is complete. A list is never held in memory as a whole, and every buffer is
//! bounded.

mod error;
mod kind_scope;
mod kube_source;
mod list_body;
mod options;
mod watch_body;

use std::future::Future;

use bytes::Bytes;
use futures::Stream;

pub use self::{
    error::{ApiError, BodyError, SourceError},
    kube_source::{KubeSource, KubeWatch},
    options::{Extent, ListOptions, Scope, VersionMatch},
};
pub(crate) use self::{
    kind_scope::KindScope,
    watch_body::{peek_key, peek_resource_version, peek_type, peek_uid},
};
pub use crate::BoxError;

/// Lists the objects of one kind and watches them for changes.
///
/// The reflector decides what to request and when; a source only performs the request.
///
/// ```
/// use futures::stream;
/// use pintle::source::{ListOptions, ListWatch, Page, RawItem, SourceError, WatchEvent};
///
/// struct OnePod;
///
/// impl ListWatch for OnePod {
///     type Watch = stream::Pending<Result<WatchEvent, SourceError>>;
///
///     fn resource(&self) -> &str {
///         "pods"
///     }
///
///     async fn list(
///         &self,
///         _options: ListOptions,
///         on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
///     ) -> Result<Page, SourceError> {
///         on_item(RawItem::Json(br#"{"metadata":{"name":"a","namespace":"b"}}"#));
///         Ok(Page { resource_version: "1".into(), ..Page::default() })
///     }
///
///     async fn watch(&self, _options: ListOptions) -> Result<Self::Watch, SourceError> {
///         Ok(stream::pending())
///     }
///
///     fn supports_watch_list(&self) -> bool {
///         false
///     }
/// }
/// ```
pub trait ListWatch: Send + Sync + 'static {
    /// An open watch. The stream ends when the server closes the watch, which is normal; dropping
    /// the stream closes it from the client's side.
    type Watch: Stream<Item = Result<WatchEvent, SourceError>> + Send + Unpin;

    /// Returns the plural name of the kind with its group: `pods`, `deployments.apps`. Metrics use
    /// it as a label.
    fn resource(&self) -> &str;

    /// Describes the watched objects for logs and errors: `pods at cluster scope`.
    fn describe(&self) -> String {
        self.resource().to_owned()
    }

    /// Returns which objects of the kind this source covers. A controller waits for one of its own
    /// writes only if the cache is certain to show it.
    fn extent(&self) -> Extent {
        Extent::All
    }

    /// Returns the `apiVersion` and `kind` that a watched object must have if it states any.
    fn expected_type(&self) -> Option<(&str, &str)> {
        None
    }

    /// Returns whether the source supports streaming lists, that is, watches with
    /// [`send_initial_events`](ListOptions::send_initial_events). In-memory sources usually do not.
    fn supports_watch_list(&self) -> bool {
        true
    }

    /// Reads one page of the list. `on_item` receives each item as soon as it is complete, even
    /// though the rest of the page may still fail.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe: the reflector drops the future when it stops.
    fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> impl Future<Output = Result<Page, SourceError>> + Send;

    /// Opens a watch.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe: the reflector drops the future when it stops.
    fn watch(
        &self,
        options: ListOptions,
    ) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;
}

/// One item of a list, as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawItem<'a> {
    /// The item's JSON.
    Json(&'a [u8]),
    /// The item is larger than the source accepts and was skipped.
    TooLarge {
        /// A prefix of the item.
        head: &'a [u8],
        /// The largest accepted size in bytes.
        limit: usize,
    },
}

/// The list metadata of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The `resourceVersion` of the list.
    pub resource_version: String,
    /// The token for the next page, if there is one.
    pub continue_token: Option<String>,
    /// `remainingItemCount`, if the server sent it.
    pub remaining: Option<i64>,
}

/// One event of a watch. Objects are unparsed JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object was created or started to match the selector.
    Added(Bytes),
    /// An object changed.
    Modified(Bytes),
    /// An object was deleted or no longer matches the selector; this is its last state.
    Deleted(Bytes),
    /// The watch has reached this `resourceVersion`.
    Bookmark {
        /// The `resourceVersion` reached.
        resource_version: String,
        /// Whether this bookmark ends the initial events of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch with an error.
    Error(ApiError),
    /// An event type this library does not know.
    Unknown {
        /// The type the server sent.
        kind: String,
        /// The object of the event.
        object: Bytes,
    },
}
