//! The hot paths whose instructions `cargo xtask gate` counts.
//!
//! `pintle-gate PATH` runs one path in a fresh process; without an argument the program lists the
//! paths, one `name count description` per line. Each path builds its inputs, runs once to warm up,
//! and then calls [`measured`], the only part that callgrind collects.
//!
//! # Determinism
//!
//! Two runs have to agree to within half a percent, so a path uses one thread, generated inputs, a
//! fixed seed and a fixed clock, and neither sockets nor files. Nothing here reads CPU time: rustix
//! would look up `clock_gettime` in the vDSO, which valgrind hides, and crash.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark: a failed path fails the gate"
)]

mod cache;
mod follow;
#[path = "../../src/pods.rs"]
mod pods;
mod queue;
mod reconcile;
mod server;
#[path = "../../src/small.rs"]
mod small;

use std::{
    hint::black_box,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

/// A hot path.
struct Path {
    name: &'static str,
    /// The number of units [`measured`] runs; counts are reported per unit.
    count: usize,
    what: &'static str,
    run: fn(usize),
}

const fn path(name: &'static str, count: usize, run: fn(usize), what: &'static str) -> Path {
    Path {
        name,
        count,
        what,
        run,
    }
}

/// The hot paths, in the order an object travels through them.
const PATHS: [Path; 20] = [
    path("skim", 400, cache::skim, "header of a 6 KB Pod"),
    path("decode", 200, cache::decode, "typed view of a 6 KB Pod"),
    path(
        "sync",
        400,
        follow::sync,
        "Pod from a list body to a handler",
    ),
    path(
        "watch",
        400,
        follow::watch,
        "Pod from a watch body to a handler",
    ),
    path(
        "event",
        4000,
        follow::event,
        "update from the FIFO to a handler, in bursts",
    ),
    path(
        "event-alone",
        2000,
        follow::event_alone,
        "update from the FIFO to a handler, one at a time",
    ),
    path(
        "event-4",
        2000,
        follow::event_4,
        "update from the FIFO to four handlers, in bursts",
    ),
    path("get", 20_000, cache::get, "lookup by key"),
    path(
        "index",
        10_000,
        cache::index,
        "lookup of 20 objects by index",
    ),
    path(
        "selector",
        50_000,
        cache::selector,
        "object scanned by a label selector",
    ),
    path(
        "queue",
        20_000,
        queue::cycle,
        "key through add, get and done",
    ),
    path(
        "queue-duplicate",
        20_000,
        queue::duplicate,
        "add of a key already queued",
    ),
    path(
        "reconcile",
        4000,
        reconcile::noop,
        "no-op reconcile that reads its object",
    ),
    path(
        "reconcile-recent",
        4000,
        reconcile::noop_recent,
        "no-op reconcile that reads a recently read object",
    ),
    path(
        "reconcile-whole",
        100,
        reconcile::whole,
        "change of an object, up to the patch of its child",
    ),
    path("create", 200, server::create, "POST of a Pod"),
    path("replace", 400, server::replace, "PUT of a ConfigMap"),
    path(
        "apply",
        200,
        server::apply,
        "server-side apply of a Deployment",
    ),
    path("list", 2000, server::list, "Pod in a list"),
    path(
        "fan-out",
        5000,
        server::fan_out,
        "event to one of 100 watchers",
    ),
];

/// Runs the measured part of a path.
///
/// Callgrind finds this function by name and collects while it is on the stack. It must be exactly
/// one symbol: not generic, not inlined, and without a tail call of `work`.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    black_box(work);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Counts up and wakes the single waiter when its target is reached.
#[derive(Default)]
struct Counter {
    count: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

impl Counter {
    fn one(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until the count is at least `wanted`. Everything runs on one thread, so nothing can
    /// happen between check and wait.
    async fn reaches(&self, wanted: usize) {
        self.wanted.store(wanted, Ordering::Relaxed);
        while self.count() < wanted {
            self.reached.notified().await;
        }
    }
}

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for path in &PATHS {
            println!("{} {} {}", path.name, path.count, path.what);
        }
        return ExitCode::SUCCESS;
    };
    let Some(path) = PATHS.iter().find(|path| path.name == name) else {
        println!("unknown path {name}");
        return ExitCode::FAILURE;
    };
    (path.run)(path.count);
    ExitCode::SUCCESS
}
