//! The cost of an object from the wire to the cache and the handlers.
//!
//! Run it with `cargo bench -p pintle --bench sync`. Bytes as a server sends them are fed from
//! memory through a whole informer: body splitter, reader, reflector, delta FIFO, a cache with two
//! indexes, and handlers. Each row runs in its own process, because memory is measured too. The CPU
//! time of generating the bytes is measured separately and subtracted.
//!
//! `sync ROW OBJECTS HANDLERS` runs a single row. Instruction counts, which do not depend on the
//! load of the machine, come from `cargo xtask gate`; this program reads CPU time through the vDSO,
//! which does not work under valgrind.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark prints its results"
)]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::cast_precision_loss, reason = "results are approximate")]

mod measure;
mod replay;

use std::{
    env,
    hint::black_box,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::core::v1::Pod;
use pintle::{
    cache::{Indexer, Lister, Reader, Selector},
    informer::{Registration, SharedInformer},
    source::{KubeSource, Scope},
};
use tokio::{runtime::Builder, sync::Notify};
use tokio_util::sync::CancellationToken;

use self::{
    measure::{cpu, megabytes, peak, reset_peak, resident},
    replay::{Replay, Shape, pod},
};

/// The number of events in a watch row.
const EVENTS: usize = 100_000;

fn main() {
    let args: Vec<String> = env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let number = |at: usize| args.get(at).and_then(|arg: &String| arg.parse().ok());
    match args.first().map(String::as_str) {
        None => all(),
        Some(row) => {
            let (objects, handlers) = (number(1).unwrap_or(1000), number(2).unwrap_or(1));
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(run(row, objects, handlers));
        }
    }
}

/// Runs every row in its own process.
fn all() {
    let mut rows = Vec::new();
    for row in ["list", "stream", "relist"] {
        rows.extend([1_000, 10_000, 100_000].map(|objects| (row, objects, 1)));
    }
    rows.extend([
        ("watch", 10_000, 1),
        ("watch", 10_000, 2),
        ("watch", 10_000, 4),
    ]);
    rows.extend([("read", 10_000, 0), ("reads", 100_000, 0)]);
    for (row, objects, handlers) in rows {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args([row, &objects.to_string(), &handlers.to_string()]);
        assert!(child.status().unwrap().success(), "{row} failed");
    }
}

async fn run(row: &str, objects: usize, handlers: usize) {
    match row {
        "list" => sync(objects, handlers, false).await,
        "stream" => sync(objects, handlers, true).await,
        "relist" => relist(objects, handlers).await,
        "watch" => watch(objects, handlers).await,
        "read" => read(objects),
        "reads" => reads(objects),
        // Only generates the bytes of the rows above.
        "replay" => println!("{} bytes", replay::drain(Shape::List, objects)),
        other => panic!("unknown row {other}"),
    }
}

/// Counts events and signals when a number of them is reached.
#[derive(Default)]
struct Delivered {
    count: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

impl Delivered {
    fn one(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// Waits for this many. There is one thread, so no event can arrive between check and wait.
    async fn wait(&self, wanted: usize) {
        self.wanted.store(wanted, Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < wanted {
            self.reached.notified().await;
        }
    }
}

/// An informer of a replay, and the events delivered to its handlers.
struct Follower {
    lister: Lister<Pod>,
    delivered: Arc<Delivered>,
    handlers: Vec<Registration>,
}

impl Follower {
    fn start(replay: &Replay, handlers: usize, streaming: bool) -> Self {
        let source = KubeSource::<Pod>::new(replay.client(), Scope::all());
        let pods = SharedInformer::<Pod>::builder(source)
            .reflector(move |reflector| reflector.watch_list(streaming))
            .build();
        pods.index_field("node", "/spec/nodeName").unwrap();
        let delivered = Arc::new(Delivered::default());
        let handlers = (0..handlers).map(|_| {
            let delivered = Arc::clone(&delivered);
            pods.on_event(move |event| {
                black_box(event.key());
                delivered.one();
            })
        });
        let handlers = handlers.collect();
        let lister = pods.lister();
        tokio::spawn(async move { pods.run(&CancellationToken::new()).await });
        Self {
            lister,
            delivered,
            handlers,
        }
    }

    async fn synced(&self, objects: usize) {
        for handler in &self.handlers {
            assert!(handler.synced().await);
        }
        assert_eq!(self.lister.len(), objects);
    }
}

async fn sync(objects: usize, handlers: usize, streaming: bool) {
    let shape = if streaming {
        Shape::Stream
    } else {
        Shape::List
    };
    replay::drain(shape, objects.min(1000));
    let begin = cpu();
    replay::drain(shape, objects);
    let generating = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let (memory, begin) = (resident(), cpu());
    let follower = Follower::start(&replay, handlers, streaming);
    follower.synced(objects).await;
    let took = cpu().saturating_sub(begin).saturating_sub(generating);
    let steady = resident() - memory;
    println!(
        "{:<8} {objects:>7} objects: {:>6.2} µs each (generating: {:.2} µs), {:>5} bytes resident each, peak {:.2} of {} MB",
        if streaming { "stream" } else { "list" },
        took.as_secs_f64() * 1e6 / objects as f64,
        generating.as_secs_f64() * 1e6 / objects as f64,
        steady / objects,
        (peak() - memory) as f64 / steady as f64,
        megabytes(steady),
    );
}

async fn relist(objects: usize, handlers: usize) {
    replay::drain(Shape::List, objects.min(1000));
    let begin = cpu();
    replay::drain(Shape::List, objects);
    let generating = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let empty = resident();
    let follower = Follower::start(&replay, handlers, false);
    follower.synced(objects).await;
    let delivered = follower.delivered.count.load(Ordering::Relaxed);
    reset_peak();
    let (before, begin) = (resident(), cpu());
    replay.expire();
    follower
        .delivered
        .wait(delivered + objects * handlers)
        .await;
    let took = cpu().saturating_sub(begin).saturating_sub(generating);
    println!(
        "relist   {objects:>7} objects: {:>6.2} µs each, peak {:.2} of {} MB",
        took.as_secs_f64() * 1e6 / objects as f64,
        (peak() - empty) as f64 / (before - empty) as f64,
        megabytes(before - empty),
    );
}

async fn watch(objects: usize, handlers: usize) {
    let begin = cpu();
    replay::drain(Shape::Events, EVENTS);
    let generating = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let follower = Follower::start(&replay, handlers, false);
    follower.synced(objects).await;
    let delivered = follower.delivered.count.load(Ordering::Relaxed);
    let begin = cpu();
    replay.change(EVENTS);
    follower.delivered.wait(delivered + EVENTS * handlers).await;
    let took = cpu().saturating_sub(begin).saturating_sub(generating);
    println!(
        "watch    {objects:>7} objects: {:>6.2} µs per event, {handlers} handlers, including reading",
        took.as_secs_f64() * 1e6 / EVENTS as f64,
    );
}

/// Measures the reader alone, to be subtracted from the cost of a watch event.
fn read(objects: usize) {
    let reader = Reader::<Pod>::new();
    let bytes: Vec<String> = (0..objects).map(|n| pod(n, 1, true)).collect();
    let mut stored = Vec::with_capacity(objects);
    let begin = cpu();
    for json in &bytes {
        stored.push(reader.read(json.as_bytes()).unwrap());
    }
    let took = cpu().saturating_sub(begin);
    println!(
        "read     {objects:>7} objects: {:>6.2} µs each, {} bytes, of which {} are stored",
        took.as_secs_f64() * 1e6 / objects as f64,
        bytes[objects / 2].len(),
        stored[objects / 2].bytes().len(),
    );
}

/// Measures reads from a full cache.
fn reads(objects: usize) {
    let indexer = Indexer::<Pod>::new();
    indexer.index_field("node", "/spec/nodeName").unwrap();
    let reader = Reader::new();
    indexer.replace(
        (0..objects)
            .map(|n| reader.read(pod(n, 1, false).as_bytes()).unwrap())
            .collect(),
        "1",
    );
    let lister = indexer.lister();
    let nodes: Vec<String> = (0..objects / 20).map(|n| format!("node-{n}")).collect();
    let keys: Vec<_> = lister.list().iter().map(|pod| pod.key().clone()).collect();
    let each = |what: &str, times: usize, run: &dyn Fn(usize) -> usize| {
        let (mut best, mut found) = (f64::MAX, 0);
        for _ in 0..10 {
            let begin = cpu();
            found = 0;
            for n in 0..times {
                found += black_box(run(n));
            }
            best = best.min(cpu().saturating_sub(begin).as_secs_f64() * 1e6 / times as f64);
        }
        let found = found as f64 / times as f64;
        println!("reads    {objects:>7} objects: {best:>9.3} µs {what}, {found:.1} found");
    };
    each("by key", 10_000, &|n| {
        usize::from(lister.get(&keys[n * 7919 % keys.len()]).is_some())
    });
    each("by index", 10_000, &|n| {
        let node = &nodes[n * 7919 % nodes.len()];
        lister.by_index("node", node).unwrap().len()
    });
    each("by index, same value", 10_000, &|_| {
        lister.by_index("node", &nodes[7]).unwrap().len()
    });
    let few: Selector = "app=web-7".parse().unwrap();
    each("by selector", 10, &|_| lister.list_matching(&few).len());
    let half: Selector = "tier in (front),!canary".parse().unwrap();
    each("by selector with two requirements", 10, &|_| {
        lister.list_matching(&half).len()
    });
}
