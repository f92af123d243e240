//! Where objects come from: one list, then one watch.
//!
//! A [`ListWatch`] lists the objects of one kind and watches them change. [`KubeSource`] does so
//! over a [`kube::Client`], for typed objects, for objects of any kind known by its
//! [`ApiResource`](kube::core::ApiResource), and for metadata alone. Whoever wants other objects, or
//! a server that is not there, implements the trait: it is three short functions.
//!
//! Bodies are read while they arrive. An item is cut out of its list, an event out of its watch,
//! and handed on as bytes; no list is held as a whole, and no part of an answer grows without
//! bound.

mod error;
mod home;
mod kube_source;
mod list_body;
mod options;
mod scan;
mod watch_body;

use std::future::Future;

use bytes::Bytes;
use futures::Stream;

pub use self::{
    error::{ApiError, BodyError, BoxError, SourceError},
    kube_source::{KubeSource, KubeWatch},
    options::{Extent, ListOptions, Scope, VersionMatch},
};
pub(crate) use self::{
    home::Home,
    watch_body::{peek_key, peek_resource_version, peek_type, peek_uid},
};

/// Lists the objects of one kind, and watches them change.
///
/// What is asked for, and when, is the reflector's business; a source only carries the request out.
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
    /// An open watch. Its end is the server's normal way to close it; dropping it closes it from
    /// this side.
    type Watch: Stream<Item = Result<WatchEvent, SourceError>> + Send + Unpin;

    /// The plural name of the kind, with its group: `pods`, `deployments.apps`. It labels metrics.
    fn resource(&self) -> &str;

    /// What is followed, for people: `pods at cluster scope`.
    fn describe(&self) -> String {
        self.resource().to_owned()
    }

    /// Which objects of the kind it shows. A controller waits only for those of its own writes that
    /// the caches are sure to show.
    fn extent(&self) -> Extent {
        Extent::All
    }

    /// The `apiVersion` and `kind` that a watched object must have when it states any.
    fn expected_type(&self) -> Option<(&str, &str)> {
        None
    }

    /// Whether a watch with [`send_initial_events`](ListOptions::send_initial_events) means
    /// something to this source. A source in memory usually says no.
    fn supports_watch_list(&self) -> bool {
        true
    }

    /// Reads one page of the list. Each item goes to `on_item` as soon as it is complete, before it
    /// is known whether the page as a whole will be.
    ///
    /// Implementations must be cancel safe: the reflector drops the future when it is stopped.
    fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> impl Future<Output = Result<Page, SourceError>> + Send;

    /// Opens a watch. Implementations must be cancel safe.
    fn watch(
        &self,
        options: ListOptions,
    ) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;
}

/// One item of a list, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawItem<'a> {
    /// The item's JSON.
    Json(&'a [u8]),
    /// The item is larger than the source accepts, and was passed over.
    TooLarge {
        /// How it begins.
        head: &'a [u8],
        /// How many bytes an item may have.
        limit: usize,
    },
}

/// What a page says about the list it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The version of the list.
    pub resource_version: String,
    /// How to ask for the next page, if there is one.
    pub continue_token: Option<String>,
    /// How many items follow, if the server says so.
    pub remaining: Option<i64>,
}

/// One event of a watch. Objects are JSON, not looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object came into being, or into the selection.
    Added(Bytes),
    /// An object changed.
    Modified(Bytes),
    /// An object is gone, or left the selection; this is its last state.
    Deleted(Bytes),
    /// Nothing changed up to this version.
    Bookmark {
        /// The version reached.
        resource_version: String,
        /// Whether it ends the initial events of a streaming list.
        initial_events_end: bool,
    },
    /// The server ends the watch, and says why.
    Error(ApiError),
    /// Something newer than this library.
    Unknown {
        /// The type the server gave.
        kind: String,
        /// The object that came with it.
        object: Bytes,
    },
}
