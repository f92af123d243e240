//! Test hooks around a commit: observe a write, race with it, or delay its response.

use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
};

use http::{Method, StatusCode};

/// A write to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The group of the resource; empty for the core group.
    pub group: &'a str,
    /// The plural of the resource: `deployments`.
    pub resource: &'a str,
    /// The namespace of the object, if its kind has one.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: &'a str,
    /// Whether the write deletes the object.
    pub removes: bool,
}

/// A future that delays a response until it completes.
pub type Hold = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hooks that run around writes and before responses; see
/// [`Builder::points`](crate::Builder::points).
///
/// ```text
/// request ─► read, validate ─► before_commit ─► commit ─► after_commit ─► before_answer ─► response
///                 ▲                               │
///                 └────── concurrent write ───────┘
/// ```
///
/// No lock is held at any of them, so a hook may use the server: a write made in `before_commit`
/// races with the one about to be committed, and a response held in `before_answer` until its
/// connection is cut is lost after the commit. Hooks also run for writes that a request causes: the
/// status of an accepted CRD, or the instances deleted with their CRD. They do not run for the
/// server's own writes: expiring events, or deleting a Pod at the end of its grace period. A panic
/// in a hook, or in the future it returned, is logged and otherwise ignored.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use pintle_apiserver::{ApiServer, Points, Write};
///
/// #[derive(Default)]
/// struct Journal(Arc<Mutex<Vec<String>>>);
///
/// impl Points for Journal {
///     fn after_commit(&self, write: &Write<'_>, revision: u64) {
///         let line = format!("{revision} {} {}", write.resource, write.name);
///         self.0.lock().unwrap().push(line);
///     }
/// }
///
/// let server = ApiServer::builder().points(Journal::default()).build();
/// # drop(server);
/// ```
pub trait Points: Send + Sync + 'static {
    /// Runs when the next state of an object is about to be committed.
    ///
    /// If another write commits first, this one starts over or fails, so this hook may run again.
    fn before_commit(&self, write: &Write<'_>) {
        let _ = write;
    }

    /// Runs after the write was committed with this `resourceVersion`, before the client gets a
    /// response. Watches are being notified.
    fn after_commit(&self, write: &Write<'_>, revision: u64) {
        let _ = (write, revision);
    }

    /// Runs when the response to any request is ready, and may delay it.
    ///
    /// The client gets the response when the returned future completes, or never if it disconnects
    /// first. Does not run for requests that fail authentication or authorization.
    fn before_answer(&self, method: &Method, path: &str, code: StatusCode) -> Option<Hold> {
        let _ = (method, path, code);
        None
    }
}

/// The hooks of a server, if it has any.
#[derive(Clone, Default)]
pub(crate) struct Pointed(Option<Arc<dyn Points>>);

impl Pointed {
    pub(crate) fn new(points: impl Points) -> Self {
        Self(Some(Arc::new(points)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Runs a hook, if there is one.
    pub(crate) fn run<T: Default>(&self, at: impl FnOnce(&dyn Points) -> T) -> T {
        let Some(points) = &self.0 else {
            return T::default();
        };
        catch_unwind(AssertUnwindSafe(|| at(&**points))).unwrap_or_else(|_| {
            tracing::error!("Points hook panicked; continuing");
            T::default()
        })
    }
}

impl fmt::Debug for Pointed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointed({})", self.is_set())
    }
}
