//! The inspector: why a key runs, waits or fails, as a page, an API and a trace.
//!
//! When an operator misbehaves at night, its author asks: what woke this key, what did it do, why
//! is it waiting, and what is it waiting for? Metrics do not say, and logs help only readers who
//! know what to look for. The inspector records it for every key, in memory, and answers in one
//! sentence.
//!
//! # What is recorded
//!
//! Per key: the events that enqueued it, with kind, object, changed fields and the trigger that
//! mapped them; its reconciles, with cause, attempt, duration and outcome; their writes, with verb,
//! object, changed fields and the server's response; and delays with their reason. The state of
//! queues, workers and informers is read on request.
//!
//! # Cost and bounds
//!
//! Recording an event, a reconcile or a delay takes one or two short locks and a few look-ups per
//! key, and formats nothing but the error of a failed reconcile. A write costs more: the name of
//! its object is read from the request's body, the object is looked up in the caches, and the
//! message of an error response is read. Each key has a ring of [64
//! entries](Settings::entries_per_key); [65,536 entries](Settings::entries) are kept for a
//! controller in total, and the keys that were idle longest are dropped first. To name the fields
//! that changed, the record keeps the states before and after recent changes, up to [16
//! MiB](Settings::state_bytes); for older changes it knows whether the spec changed.
//!
//! # What it never shows
//!
//! The data and annotations of Secrets, also of Secrets inside other objects; annotations and
//! environment variables whose names suggest a secret; well-known copies of objects in annotations;
//! and inside any text, bearer and JSON web tokens and the values that the API server rejected,
//! unless they are short and plain. See [`Inspector::serve`] for who has access.
//!
//! # Use
//!
//! With a [`Manager`](crate::manager::Manager), call
//! [`Builder::inspect`](crate::manager::Builder::inspect). Without one, pass an inspector to each
//! [controller](crate::controller::Controller::inspector) and serve it:
//!
//! ```no_run
//! # use std::{convert::Infallible, sync::Arc};
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use pintle::controller::{Action, Context};
//! # async fn reconcile(_: Arc<ConfigMap>, _: Context) -> Result<Action, Infallible> { unimplemented!() }
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use pintle::{controller::Controller, informer::InformerFactory, inspect::Inspector, signals};
//!
//! let informers = InformerFactory::new(client);
//! let inspector = Inspector::new("config-deployer");
//! let serving = inspector.serve("127.0.0.1:0").await?;
//! println!("Inspector on {}", serving.url());
//! Controller::<ConfigMap>::new("config-deployer", &informers)
//!     .inspector(&inspector)
//!     .run(reconcile, &signals::shutdown_on_signal()?)
//!     .await?;
//! serving.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod entry;
mod fields;
mod model;
mod record;
mod redact;
mod requests;
mod server;
mod settings;
mod tree;
mod view;
mod why;

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Weak, atomic::AtomicUsize},
};

use jiff::Timestamp;
use kube::Client;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use self::entry::Reconciled;
#[cfg(feature = "limits")]
pub(crate) use self::requests::limited;
use self::{
    entry::Retained,
    record::{Inner, Log},
};
pub use self::{
    entry::{Delay, Outcome, Via},
    model::{
        Changed, Controller, Entry, Event, Handler, Informer, KeyLife, KeyRow, KeyState, Node, Now,
        Queue, TRACE_FORMAT, Totals, Trace, Verdict, What, Why,
    },
    record::Record,
    server::{ServeError, Serving},
    settings::Settings,
    view::Query,
    why::why,
};
use crate::{
    cache::{Kind, ObjectKey},
    clock::Clock,
    informer::{InformerFactory, WeakFactory},
    object::Header,
    queue::WorkQueue,
};

/// The number of keys of a controller for which answers are cached.
const MAX_JUDGED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Records why keys run, and answers questions about them. See the [module](self).
///
/// Clones refer to the same record.
#[derive(Clone)]
pub struct Inspector {
    program: Arc<Program>,
}

/// The state shared by the records of a program.
struct Program {
    name: String,
    settings: Settings,
    clock: Clock,
    /// When the record began, on both clocks.
    origin: Instant,
    started: Timestamp,
    /// Weak references by name: a new controller of the same name replaces the old one.
    records: Mutex<BTreeMap<String, Weak<Inner>>>,
    factories: Mutex<Vec<WeakFactory>>,
    retained: Mutex<Retained>,
}

impl Inspector {
    /// Returns an inspector with default settings for the program `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Settings::new(name).build()
    }

    fn of(name: String, clock: Clock, settings: Settings) -> Self {
        let program = Program {
            name,
            started: clock.now(),
            origin: Instant::now(),
            clock,
            settings,
            records: Mutex::default(),
            factories: Mutex::default(),
            retained: Mutex::default(),
        };
        Self {
            program: Arc::new(program),
        }
    }

    /// Shows the informers of a factory and the objects in their caches. A controller adds its own
    /// factory.
    pub fn caches(&self, informers: &InformerFactory) {
        let mut factories = self.program.factories.lock();
        if !factories.iter().any(|known| known.is(informers)) {
            factories.push(informers.downgrade());
        }
    }

    /// Returns a client that sends requests as `inner` does, and records the writes that are made
    /// inside [`Record::reconcile`].
    ///
    /// Requests made on a task other than the reconcile's are not recorded.
    pub fn client(&self, inner: &Client) -> Client {
        requests::client(inner)
    }

    /// Returns the record for a hand-written controller of `K` whose workers use `queue`.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{cache::ObjectKey, informer::SharedInformer, inspect::{Delay, Inspector}, queue::WorkQueue};
    /// # async fn sync(_: &ObjectKey) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(inspector: Inspector, maps: SharedInformer<ConfigMap>) {
    /// let queue = WorkQueue::<ObjectKey>::new("maps");
    /// let record = inspector.record::<ConfigMap>("maps", &queue);
    /// let (woken, added) = (record.clone(), queue.clone());
    /// let _handler = maps.on_event(move |event| {
    ///     woken.woke(event.key(), &event);
    ///     added.add(event.key().clone());
    /// });
    /// while let Some(item) = queue.get().await {
    ///     let key = item.key().clone();
    ///     match record.reconcile(&key, sync(&key), |error| error.to_string()).await {
    ///         Ok(()) => item.forget(),
    ///         Err(_) => record.delayed(&key, Delay::BackOff, item.retry()),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn record<K: Kind<DynamicType: Default>>(
        &self,
        name: impl Into<String>,
        queue: &WorkQueue<ObjectKey>,
    ) -> Record {
        let kind = K::DynamicType::default();
        let group = K::group(&kind).into_owned();
        self.record_of(name.into(), group, &K::kind(&kind), queue, |_, _| {
            String::new()
        })
    }

    pub(crate) fn record_of(
        &self,
        name: String,
        group: String,
        kind: &str,
        queue: &WorkQueue<ObjectKey>,
        cause: fn(u8, &[String]) -> String,
    ) -> Record {
        let settings = &self.program.settings;
        let record = Record::new(Inner {
            name: name.clone(),
            program: Arc::clone(&self.program),
            group,
            kind: kind.into(),
            watches: Mutex::new(Arc::from([kind.to_owned()])),
            cause,
            queue: queue.clone(),
            workers: AtomicUsize::new(0),
            log: Mutex::new(Log::new(settings.entries_per_key, settings.entries)),
            judged: Mutex::new(LruCache::new(MAX_JUDGED)),
        });
        let weak = Arc::downgrade(&record.inner);
        self.program.records.lock().insert(name, weak);
        record
    }
}

impl Program {
    /// Returns seconds since the record began.
    fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.origin).as_secs_f64()
    }

    fn records(&self) -> Vec<Arc<Inner>> {
        let mut records = self.records.lock();
        records.retain(|_, record| record.strong_count() > 0);
        records.values().filter_map(Weak::upgrade).collect()
    }

    fn factories(&self) -> Vec<WeakFactory> {
        self.factories.lock().clone()
    }

    /// Returns the cached object called `key` of the first kind that matches, and the kind.
    fn find(
        &self,
        matches: impl Fn(&str, &str) -> bool,
        key: &ObjectKey,
    ) -> Option<(String, Arc<dyn Header>)> {
        self.factories().iter().find_map(|factory| {
            let caches = factory.caches().into_iter();
            let mut matching = caches.filter(|cache| matches(cache.group(), &cache.kind));
            matching.find_map(|cache| Some((cache.kind, cache.cached.get(key)?)))
        })
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector")
            .field("program", &self.program.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
