//! Registering handlers with an informer, as functions or as streams.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::{sync::watch, time::Instant};

use super::{
    event::Event,
    handler::{Consumer, Filter, Handler, Progress, Resync},
    processor::Processor,
    shared_informer::{SharedInformer, Usage},
};
use crate::{
    clock,
    object::{Kind, Object},
};

/// Configures a handler before it is registered; see [`SharedInformer::handler`].
#[must_use = "a handler is registered by `on_event` or `stream`"]
pub struct HandlerBuilder<'a, K: Kind> {
    informer: &'a SharedInformer<K>,
    name: String,
    coalesce_beyond: Option<usize>,
    resync: Option<Duration>,
    filter: Option<Filter<K>>,
}

impl<'a, K: Kind> HandlerBuilder<'a, K> {
    pub(super) fn new(informer: &'a SharedInformer<K>) -> Self {
        Self {
            informer,
            name: String::new(),
            coalesce_beyond: None,
            resync: informer.processor.default_resync(),
            filter: None,
        }
    }

    /// Names the handler in logs and metrics. Handlers without a name are counted together.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Delivers every object again with this period instead of the informer's default; zero means
    /// never. Before the informer starts, a shorter period shortens the informer's; otherwise the
    /// period is rounded up to a multiple of the informer's.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Delivers only events of objects for which `matches` returns true: an object that starts to
    /// match is added, one that stops matching is deleted. The deletion of every delivered object
    /// is delivered too.
    pub fn filter<F>(mut self, matches: F) -> Self
    where
        F: FnMut(&Object<K>) -> bool + Send + 'static,
    {
        self.filter = Some(Filter::new(matches));
        self
    }

    /// Merges the waiting events of each object when more than `events` are waiting for the
    /// handler.
    ///
    /// By default every event is delivered and the buffer of a slow handler grows. With coalescing,
    /// the buffer is bounded by the number of objects. The events of one object become one, with
    /// the first old and the latest new state; a deletion and an addition under the same name stay
    /// separate; an object that was created and deleted while the handler lagged is **not reported
    /// at all**.
    ///
    /// Use it for a handler that maintains its own view of the objects: after applying every event,
    /// the view is right. Do not use it to feed a queue. Workers read the cache, which is ahead of
    /// the events, and may have acted on an object that is never reported.
    ///
    /// ```
    /// # use std::collections::BTreeSet;
    /// # use pintle::informer::{Event, Registration, SharedInformer};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// fn mirror(pods: &SharedInformer<Pod>) -> Registration {
    ///     let mut names = BTreeSet::new();
    ///     pods.handler().coalesce_beyond(4096).on_event(move |event| match event {
    ///         Event::Deleted(deleted) => drop(names.remove(&deleted.key)),
    ///         event => drop(names.insert(event.key().clone())),
    ///     })
    /// }
    /// ```
    pub fn coalesce_beyond(mut self, events: usize) -> Self {
        self.coalesce_beyond = Some(events);
        self
    }

    /// Registers `handle`. See [`SharedInformer::on_event`].
    pub fn on_event<F>(self, handle: F) -> Registration
    where
        F: FnMut(Event<K>) + Send + 'static,
    {
        let (consumer, informer) = self.consumer();
        let handler = consumer.handler.clone();
        informer
            .processor
            .add(&handler, Some(Box::pin(consumer.run(handle))));
        Registration::new(informer, handler)
    }

    /// Registers a stream of events, for handlers that await. It ends when the informer stops.
    pub fn stream(self) -> EventStream<K> {
        let (consumer, informer) = self.consumer();
        let handler = consumer.handler.clone();
        informer.processor.add(&handler, None);
        let registration = Registration::new(informer, handler);
        EventStream {
            consumer,
            registration,
        }
    }

    fn consumer(self) -> (Consumer<K>, &'a SharedInformer<K>) {
        let Self {
            informer,
            name,
            coalesce_beyond,
            resync,
            filter,
        } = self;
        let next = clock::after(Instant::now(), resync.unwrap_or_default());
        let resync = Resync {
            period: resync,
            next,
            syncing: true,
        };
        let metrics = informer.processor.metrics.handler(&name);
        let handler = Arc::new(Handler::new(name, coalesce_beyond, resync, metrics));
        (Consumer { handler, filter }, informer)
    }
}

impl<K: Kind> fmt::Debug for HandlerBuilder<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A registered handler. Dropping it removes the handler.
///
/// Removal is immediate and never blocks, even from inside the handler: at most the call in
/// progress completes, and waiting events are dropped. A registration keeps its informer running.
#[must_use = "dropping a registration removes its handler"]
pub struct Registration {
    handler: Arc<dyn Registered>,
    progress: watch::Receiver<Progress>,
    _usage: Arc<Usage>,
}

/// A handler and its informer, with the type of the objects erased.
trait Registered: Send + Sync {
    fn remove(&self);
    fn panics(&self) -> u64;
    fn pending(&self) -> usize;
}

struct Entry<K: Kind> {
    processor: Arc<Processor<K>>,
    handler: Arc<Handler<K>>,
}

impl<K: Kind> Registered for Entry<K> {
    fn remove(&self) {
        self.processor.remove(&self.handler);
    }

    fn panics(&self) -> u64 {
        self.handler.panics()
    }

    fn pending(&self) -> usize {
        self.handler.pending()
    }
}

impl Registration {
    fn new<K: Kind>(informer: &SharedInformer<K>, handler: Arc<Handler<K>>) -> Self {
        let progress = handler.progress();
        let entry = Entry {
            processor: informer.processor.clone(),
            handler,
        };
        Self {
            handler: Arc::new(entry),
            progress,
            _usage: informer.usage.clone(),
        }
    }

    /// Returns whether the informer has synced and the handler has returned from every initial
    /// event. Once true, it stays true.
    pub fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Waits until the handler has synced; returns false if it ended first.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn synced(&self) -> bool {
        let mut progress = self.progress.clone();
        let seen = progress
            .wait_for(|progress| progress.synced || progress.ended)
            .await;
        seen.is_ok_and(|progress| progress.synced)
    }

    /// Returns whether the handler will not be called again and no call is in progress.
    pub fn has_ended(&self) -> bool {
        self.progress.borrow().ended
    }

    /// Waits until the handler has ended: it was removed, or its informer stopped.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn ended(&self) {
        let mut progress = self.progress.clone();
        // An error means that the sender is gone, and the handler with it.
        let _ = progress.wait_for(|progress| progress.ended).await;
    }

    /// Returns how many times the handler or its filter has panicked.
    pub fn panics(&self) -> u64 {
        self.handler.panics()
    }

    /// Returns the number of events that wait for the handler.
    pub fn pending(&self) -> usize {
        self.handler.pending()
    }

    /// Removes the handler and waits until its last call has returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the handler without waiting.
    pub async fn shutdown(self) {
        self.handler.remove();
        self.ended().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.handler.remove();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("progress", &*self.progress.borrow())
            .finish_non_exhaustive()
    }
}

/// The events of an informer as a stream, built by [`HandlerBuilder::stream`].
///
/// An event counts as handled when the next one is polled. Dropping the stream removes the handler;
/// the stream ends when the informer stops. Events queue up while the stream is not polled.
#[must_use = "streams do nothing unless polled"]
pub struct EventStream<K: Kind> {
    consumer: Consumer<K>,
    registration: Registration,
}

impl<K: Kind> EventStream<K> {
    /// Returns the registration, which reports the progress of the stream's consumer.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }
}

impl<K: Kind> Stream for EventStream<K> {
    type Item = Event<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        self.consumer.poll_next(context)
    }
}

impl<K: Kind> fmt::Debug for EventStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("registration", &self.registration)
            .finish_non_exhaustive()
    }
}
