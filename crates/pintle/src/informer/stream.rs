//! Events for whoever wants to await.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;

use super::{event::Event, handler::Consumer, registration::Registration};
use crate::object::Kind;

/// The events of an informer as a stream, made by [`stream`](super::HandlerBuilder::stream).
///
/// An event counts as handled when the next one is asked for. Dropping the stream unregisters it;
/// it ends when the informer stops.
#[must_use = "a stream tells nothing unless it is polled"]
pub struct EventStream<K: Kind> {
    consumer: Consumer<K>,
    registration: Registration,
}

impl<K: Kind> EventStream<K> {
    pub(super) fn new(consumer: Consumer<K>, registration: Registration) -> Self {
        Self {
            consumer,
            registration,
        }
    }

    /// How far the stream's reader has come.
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
