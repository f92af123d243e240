//! Named points around a commit, where a test can look, come between, or stop.

use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
};

use http::{Method, StatusCode};

/// A write that a request makes.
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
    /// Whether the object goes.
    pub removes: bool,
}

/// What an answer waits for.
pub type Hold = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is told of every request that writes, at named points on its way; see
/// [`Builder::points`](crate::Builder::points).
///
/// ```text
/// request ─► read, check ─► before_commit ─► commit ─► after_commit ─► before_answer ─► answer
///                 ▲                             │
///                 └── somebody came between ────┘
/// ```
///
/// Nothing is locked at any of them, so a test may use the server from within: a write in
/// `before_commit` is one that came between, and an answer that is held in `before_answer` while its
/// connection is cut is one that got lost after the fact. What follows from a request within it is
/// told as well: a definition that is accepted, instances that go with theirs. What the server does
/// by itself is not: forgetting old events, removing a pod whose grace is over. A point that panics,
/// or what it returned, is reported and passed.
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
    /// The next state of an object is ready and about to be committed. If somebody else commits
    /// first, the write starts again or is refused, and this point may come again.
    fn before_commit(&self, write: &Write<'_>) {
        let _ = write;
    }

    /// The write is committed under this resource version, and watchers are being told; nobody has
    /// been answered.
    fn after_commit(&self, write: &Write<'_>, revision: u64) {
        let _ = (write, revision);
    }

    /// The answer is ready, whatever was asked for. It is not given before what is returned is
    /// done; if the client goes in the meantime, it is never given. Clients a listener turns away
    /// because they may not ask (401, 403) have asked nothing, and are not told of.
    fn before_answer(&self, method: &Method, path: &str, code: StatusCode) -> Option<Hold> {
        let _ = (method, path, code);
        None
    }
}

/// The points of a server, if it has any.
#[derive(Clone, Default)]
pub(crate) struct Pointed(Option<Arc<dyn Points>>);

impl Pointed {
    pub(crate) fn new(points: impl Points) -> Self {
        Self(Some(Arc::new(points)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Passes a point.
    pub(crate) fn pass<T: Default>(&self, at: impl FnOnce(&dyn Points) -> T) -> T {
        let Some(points) = &self.0 else {
            return T::default();
        };
        catch_unwind(AssertUnwindSafe(|| at(&**points))).unwrap_or_else(|_| {
            tracing::error!("a point around a commit panicked");
            T::default()
        })
    }
}

impl fmt::Debug for Pointed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointed({})", self.is_set())
    }
}
