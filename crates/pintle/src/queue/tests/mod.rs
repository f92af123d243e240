//! Tests of the pure state machine, and of the queue under virtual time.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::timeout;

use super::{Item, WorkQueue, rate_limit::ExponentialBackoff};

mod debug;
mod delays;
mod forget_and_next;
mod interleavings;
mod metrics;
mod model;
mod panics;
mod rate_limit;
mod scenarios;
mod state;
mod transitions;
mod waiters;

/// A queue whose failed keys wait 5 ms, 10 ms, 20 ms, …
fn queue() -> WorkQueue<&'static str> {
    WorkQueue::builder("test")
        .rate_limiter(ExponentialBackoff::default())
        .build()
}

/// Returns the item that `get` returns without waiting.
fn take<T: super::Key>(queue: &WorkQueue<T>) -> Option<Item<T>> {
    queue.get().now_or_never().flatten()
}

/// Processes all ready keys. Returns them in order.
fn run_all<T: super::Key>(queue: &WorkQueue<T>) -> Vec<T> {
    let mut ran = Vec::new();
    while let Some(item) = take(queue) {
        ran.push(item.key().clone());
        item.forget();
    }
    ran
}

/// Awaits a future. Fails the test immediately if it never ends: virtual time advances while every
/// task is idle.
async fn ends<F: IntoFuture>(future: F) -> F::Output {
    let ever = Duration::from_hours(24 * 365 * 20);
    timeout(ever, future).await.expect("the future ends")
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A key whose reference count shows whether it is retained.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tracked(Arc<str>);
