//! The queue's own tests: the pure state, then the queue under virtual time.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::timeout;

use super::{Item, WorkQueue, rate_limit::ExponentialBackoff};

mod interleavings;
mod line;
mod metrics;
mod model;
mod moves;
mod next;
mod panics;
mod rate_limit;
mod scenarios;
mod shown;
mod state;

/// A queue whose keys fail with 5 ms, 10 ms, 20 ms …
fn queue() -> WorkQueue<&'static str> {
    WorkQueue::builder("test")
        .rate_limiter(ExponentialBackoff::default())
        .build()
}

/// The item a worker would get at once.
fn take<T: super::Key>(queue: &WorkQueue<T>) -> Option<Item<T>> {
    queue.get().now_or_never().flatten()
}

/// Handles everything that is ready; says in which order.
fn run_all<T: super::Key>(queue: &WorkQueue<T>) -> Vec<T> {
    let mut ran = Vec::new();
    while let Some(item) = take(queue) {
        ran.push(item.key().clone());
        item.forget();
    }
    ran
}

/// What a future gives; if it never ends, the test fails at once instead of hanging, for virtual time
/// goes on when nobody has anything to do.
async fn ends<F: IntoFuture>(future: F) -> F::Output {
    let ever = Duration::from_hours(24 * 365 * 20);
    timeout(ever, future).await.expect("it never ends")
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A key that tells whether anybody still has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tracked(Arc<str>);
