//! What an object costs on its way from the wire into the cache and to the handlers.
//!
//! `cargo bench -p pintle --bench sync`. Bytes as a server sends them are fed from memory through
//! everything an informer has: the splitter of bodies, the reader, the reflector, the delta FIFO, the
//! cache with two indices, the handlers. Each row is a process of its own, for memory is looked at
//! too; the processor time of making the bytes is measured alone and taken off.
//!
//! A row runs alone as `sync ROW OBJECTS HANDLERS`. Instructions, which do not depend on the load of
//! the machine, are counted by `cargo xtask gate`; this program reads the processor time through the
//! vDSO, which does not work under valgrind.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program that prints figures"
)]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

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

/// How many events a watch row takes.
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

/// Every row, in a process each.
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
        // The bytes alone, as the rows above get them.
        "replay" => println!("{} bytes", replay::drain(Shape::List, objects)),
        other => panic!("there is no row {other}"),
    }
}

/// Counts events, and wakes whoever waits for a number of them.
#[derive(Default)]
struct Told {
    count: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

impl Told {
    fn one(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// All is on one thread, so nothing comes between looking and waiting.
    async fn wait(&self, wanted: usize) {
        self.wanted.store(wanted, Ordering::Relaxed);
        while self.count.load(Ordering::Relaxed) < wanted {
            self.reached.notified().await;
        }
    }
}

/// An informer that follows a replay, and what its handlers were told.
struct Follower {
    lister: Lister<Pod>,
    told: Arc<Told>,
    handlers: Vec<Registration>,
}

impl Follower {
    fn start(replay: &Replay, handlers: usize, streaming: bool) -> Self {
        let source = KubeSource::<Pod>::new(replay.client(), Scope::all());
        let pods = SharedInformer::<Pod>::builder(source)
            .reflector(move |reflector| reflector.watch_list(streaming))
            .build();
        pods.index_field("node", "/spec/nodeName").unwrap();
        let told = Arc::new(Told::default());
        let handlers = (0..handlers).map(|_| {
            let told = Arc::clone(&told);
            pods.on_event(move |event| {
                black_box(event.key());
                told.one();
            })
        });
        let handlers = handlers.collect();
        let lister = pods.lister();
        tokio::spawn(async move { pods.run(&CancellationToken::new()).await });
        Self {
            lister,
            told,
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
    let making = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let (memory, begin) = (resident(), cpu());
    let follower = Follower::start(&replay, handlers, streaming);
    follower.synced(objects).await;
    let took = cpu().saturating_sub(begin).saturating_sub(making);
    let steady = resident() - memory;
    println!(
        "{:<8} {objects:>7} objects: {:>6.2} µs each (making the bytes: {:.2} µs), {:>5} bytes resident each, peak {:.2} of {} MB",
        if streaming { "stream" } else { "list" },
        took.as_secs_f64() * 1e6 / objects as f64,
        making.as_secs_f64() * 1e6 / objects as f64,
        steady / objects,
        (peak() - memory) as f64 / steady as f64,
        megabytes(steady),
    );
}

async fn relist(objects: usize, handlers: usize) {
    replay::drain(Shape::List, objects.min(1000));
    let begin = cpu();
    replay::drain(Shape::List, objects);
    let making = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let empty = resident();
    let follower = Follower::start(&replay, handlers, false);
    follower.synced(objects).await;
    let told = follower.told.count.load(Ordering::Relaxed);
    reset_peak();
    let (before, begin) = (resident(), cpu());
    replay.expire();
    follower.told.wait(told + objects * handlers).await;
    let took = cpu().saturating_sub(begin).saturating_sub(making);
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
    let making = cpu().saturating_sub(begin);
    let replay = Replay::new(objects);
    let follower = Follower::start(&replay, handlers, false);
    follower.synced(objects).await;
    let told = follower.told.count.load(Ordering::Relaxed);
    let begin = cpu();
    replay.change(EVENTS);
    follower.told.wait(told + EVENTS * handlers).await;
    let took = cpu().saturating_sub(begin).saturating_sub(making);
    println!(
        "watch    {objects:>7} objects: {:>6.2} µs an event, {handlers} handlers, reading included",
        took.as_secs_f64() * 1e6 / EVENTS as f64,
    );
}

/// The reader alone: what is to be taken off a watch event.
fn read(objects: usize) {
    let reader = Reader::<Pod>::new();
    let bytes: Vec<String> = (0..objects).map(|n| pod(n, 1, true)).collect();
    let mut kept = Vec::with_capacity(objects);
    let begin = cpu();
    for json in &bytes {
        kept.push(reader.read(json.as_bytes()).unwrap());
    }
    let took = cpu().saturating_sub(begin);
    println!(
        "read     {objects:>7} objects: {:>6.2} µs each, {} bytes of which {} are kept",
        took.as_secs_f64() * 1e6 / objects as f64,
        bytes[objects / 2].len(),
        kept[objects / 2].bytes().len(),
    );
}

/// What readers of a full cache pay.
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
    each("by index, the same again", 10_000, &|_| {
        lister.by_index("node", &nodes[7]).unwrap().len()
    });
    let few: Selector = "app=web-7".parse().unwrap();
    each("by selector", 10, &|_| lister.list_matching(&few).len());
    let half: Selector = "tier in (front),!canary".parse().unwrap();
    each("by selector of two parts", 10, &|_| {
        lister.list_matching(&half).len()
    });
}
