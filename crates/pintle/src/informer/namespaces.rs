//! A set of namespaces that changes while it is watched.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

/// The namespaces that informers follow; see
/// [`WatchInput::follow_namespaces`](super::WatchInput::follow_namespaces).
///
/// `Namespaces` is a handle; clones refer to the same set. Inputs with clones of one handle share
/// an informer; two handles are two sets, even while they have the same contents.
///
/// - When a namespace is **added**, its objects are listed, enter the cache together, and are
///   delivered as [`Added`](super::Event::Added), marked as initial. A controller reconciles them
///   at low priority, as it does with its first list.
/// - When a namespace is **removed**, its watch ends and its objects leave the cache. They are
///   delivered as [`Deleted`](super::Event::Deleted) with `exact: false`, as are objects that stop
///   matching a selector: to a watcher, an object it can no longer see is gone. Code that releases
///   something when an object is gone must therefore check with the server first, or use a
///   finalizer.
///
/// # Readiness
/// The informer has synced once every namespace in the set has been listed, and stays synced.
/// [`wait_for_sync`](super::InformerFactory::wait_for_sync) also waits for namespaces that were
/// added since, and `/readyz` fails if one of them could not be listed for 30 seconds.
///
/// ```
/// use pintle::informer::Namespaces;
///
/// let tenants = Namespaces::new(["blue", "green"]);
/// assert!(tenants.add("red"));
/// assert!(tenants.remove("blue"));
/// assert!(!tenants.remove("blue"), "already removed");
/// assert_eq!(tenants.names(), ["green", "red"]);
/// ```
#[derive(Clone)]
pub struct Namespaces {
    id: u64,
    names: Arc<watch::Sender<BTreeSet<String>>>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Namespaces {
    /// Returns a set of these namespaces. Empty names are ignored.
    pub fn new<N: Into<String>>(namespaces: impl IntoIterator<Item = N>) -> Self {
        let mut names: BTreeSet<String> = namespaces.into_iter().map(Into::into).collect();
        names.remove("");
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            names: Arc::new(watch::Sender::new(names)),
        }
    }

    /// Adds a namespace. Returns false if the set already contains it, or the name is empty.
    pub fn add(&self, namespace: impl Into<String>) -> bool {
        let namespace = namespace.into();
        !namespace.is_empty() && self.names.send_if_modified(|names| names.insert(namespace))
    }

    /// Removes a namespace. Returns false if the set does not contain it.
    pub fn remove(&self, namespace: &str) -> bool {
        self.names.send_if_modified(|names| names.remove(namespace))
    }

    /// Returns whether a namespace is in the set.
    pub fn contains(&self, namespace: &str) -> bool {
        self.names.borrow().contains(namespace)
    }

    /// Returns the namespaces, sorted.
    pub fn names(&self) -> Vec<String> {
        self.names.borrow().iter().cloned().collect()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<BTreeSet<String>> {
        self.names.subscribe()
    }
}

impl fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespaces").field(&self.names()).finish()
    }
}
