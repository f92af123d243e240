//! A handler's hold on its informer.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use super::{
    handler::{Handler, Progress},
    processor::Processor,
    usage::Usage,
};
use crate::object::Kind;

/// A handler's place in an informer. Dropping it removes the handler.
///
/// Removal is immediate and never blocks, also from inside the handler: at most a call in progress
/// completes, and what waits is dropped. A registration keeps its informer running.
#[must_use = "dropping a registration removes its handler"]
pub struct Registration {
    handler: Arc<dyn Registered>,
    progress: watch::Receiver<Progress>,
    _usage: Arc<Usage>,
}

/// A handler of any kind, with its informer.
pub(super) trait Registered: Send + Sync {
    fn remove(&self);
    fn panics(&self) -> u64;
    fn pending(&self) -> usize;
}

pub(super) struct Place<K: Kind> {
    pub(super) processor: Arc<Processor<K>>,
    pub(super) handler: Arc<Handler<K>>,
}

impl<K: Kind> Registered for Place<K> {
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
    pub(super) fn new<K: Kind>(
        processor: Arc<Processor<K>>,
        handler: Arc<Handler<K>>,
        usage: Arc<Usage>,
    ) -> Self {
        let progress = handler.progress();
        Self {
            handler: Arc::new(Place { processor, handler }),
            progress,
            _usage: usage,
        }
    }

    /// Whether the informer has synced and the handler has returned from everything that was there
    /// when it came. Never again false.
    pub fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Waits until the handler has synced; false if it ended before.
    ///
    /// Cancel safe.
    pub async fn synced(&self) -> bool {
        let mut progress = self.progress.clone();
        let seen = progress
            .wait_for(|progress| progress.synced || progress.ended)
            .await;
        seen.is_ok_and(|progress| progress.synced)
    }

    /// Whether the handler is called no more, and no call is in progress.
    pub fn has_ended(&self) -> bool {
        self.progress.borrow().ended
    }

    /// Resolves when the handler is called no more: it was removed, or its informer stopped.
    ///
    /// Cancel safe.
    pub async fn ended(&self) {
        let mut progress = self.progress.clone();
        // A handler whose progress nobody reports any more has ended too.
        let _ = progress.wait_for(|progress| progress.ended).await;
    }

    /// How often the handler has panicked.
    pub fn panics(&self) -> u64 {
        self.handler.panics()
    }

    /// How many events wait for the handler.
    pub fn pending(&self) -> usize {
        self.handler.pending()
    }

    /// Removes the handler and waits until its last call is over.
    ///
    /// Cancel safe: the handler is removed either way.
    pub async fn shutdown(self) {
        self.handler.remove();
        let mut progress = self.progress.clone();
        // A sender that is gone had ended.
        let _ = progress.wait_for(|progress| progress.ended).await;
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
