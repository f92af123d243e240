//! Hand-offs between the log, the cache and the handlers, under many interleavings.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use shuttle::{
    future::{block_on, spawn},
    thread,
};

use super::*;
use crate::{
    cache::{Indexer, ObjectKey},
    delta_fifo::{Closed, Delta, DeltaFifo, Deltas},
    informer::{
        handler::{Consumer, Handler, Resync},
        metrics::InformerMetrics,
        processor::{Feed, Processor},
    },
    sync::check,
    testing::object,
};

fn processor() -> Arc<Processor<Thing>> {
    let metrics = InformerMetrics::default().stage("", "things");
    Arc::new(Processor::new(
        Indexer::new(),
        Feed::One(Arc::new(DeltaFifo::new())),
        None,
        metrics,
        Arc::default(),
    ))
}

fn consumer(processor: &Processor<Thing>, coalesce_beyond: Option<usize>) -> Consumer<Thing> {
    let resync = Resync {
        period: None,
        next: tokio::time::Instant::now(),
        syncing: true,
    };
    let metrics = processor.metrics.handler("");
    let handler = Handler::new(String::new(), coalesce_beyond, resync, metrics);
    let handler = Arc::new(handler);
    Consumer {
        handler,
        filter: None,
    }
}

fn apply(processor: &Processor<Thing>, delta: Delta<Thing>) {
    processor.handle_deltas(
        Deltas {
            entries: vec![delta],
            initial: false,
        },
        None,
    );
}

/// The changes in these scenarios: one object changes, is deleted, and is created again; one stays;
/// the last marks the end.
fn history() -> Vec<Delta<Thing>> {
    vec![
        Delta::Added(object("n/a", "u1", 1, "x")),
        Delta::Updated(object("n/a", "u1", 2, "x")),
        Delta::Added(object("n/b", "u2", 3, "x")),
        Delta::Deleted(object("n/a", "u1", 4, "x")),
        Delta::Added(object("n/a", "u3", 5, "x")),
        Delta::Added(object("n/end", "u4", 6, "x")),
    ]
}

/// Follows a handler until the end marker, checking that every event fits those before it.
async fn follow(mut consumer: Consumer<Thing>) -> Vec<String> {
    let mut view: BTreeMap<ObjectKey, String> = BTreeMap::new();
    loop {
        let event = std::future::poll_fn(|context| consumer.poll_next(context)).await;
        let event = event.expect("the handler is not closed");
        let key = event.key().clone();
        let version = |object: &crate::object::Object<Thing>| object.resource_version().to_owned();
        match &event {
            Event::Added { object, .. } => {
                assert_eq!(view.insert(key, version(object)), None, "delivered twice");
            }
            Event::Updated { old, new } => {
                assert_eq!(view.insert(key, version(new)), Some(version(old)), "lost");
            }
            Event::Deleted(deleted) => {
                assert!(view.remove(&deleted.key).is_some(), "lost");
            }
        }
        if event.key().name() == "end" {
            return view
                .into_iter()
                .map(|(key, version)| format!("{key} {version}"))
                .collect();
        }
    }
}

// Proves informer/late-handler-sees-existing, informer/eventually-consistent.
#[test]
fn late_registration_races_with_deliveries() {
    for coalesce_beyond in [Some(0), None] {
        check(move || {
            let processor = processor();
            let writing = processor.clone();
            let writer = thread::spawn(move || {
                for delta in history() {
                    apply(&writing, delta);
                }
            });
            let late = consumer(&processor, coalesce_beyond);
            let handler = late.handler.clone();
            let reader = spawn(follow(late));
            processor.add(&handler, None);
            let view = block_on(reader).unwrap();
            assert_eq!(view, ["n/a 5", "n/b 3", "n/end 6"]);
            writer.join().unwrap();
        });
    }
}

// Proves informer/unregister, informer/eventually-consistent.
#[test]
fn removal_races_with_deliveries() {
    check(|| {
        let processor = processor();
        let removed = Arc::new(AtomicBool::new(false));
        let late_calls = Arc::new(AtomicUsize::new(0));
        let consumer = consumer(&processor, None);
        let handler = consumer.handler.clone();
        processor.add(&handler, None);
        let (gone, late) = (removed.clone(), late_calls.clone());
        let running = spawn(consumer.run(move |_| {
            late.fetch_add(usize::from(gone.load(SeqCst)), SeqCst);
        }));
        let writing = processor.clone();
        let writer = thread::spawn(move || {
            for delta in history() {
                apply(&writing, delta);
            }
        });
        thread::yield_now();
        processor.remove(&handler);
        removed.store(true, SeqCst);
        block_on(running).unwrap();
        assert!(handler.progress().borrow().ended);
        writer.join().unwrap();
        // A call that had already begun may complete, but none may follow.
        assert!(
            late_calls.load(SeqCst) <= 1,
            "{} calls came late",
            late_calls.load(SeqCst)
        );
        assert_eq!(handler.pending(), 0, "a removed handler holds events");
    });
}

// Proves informer/stop, informer/eventually-consistent.
#[test]
fn stop_races_with_late_registration() {
    check(|| {
        let processor = processor();
        for delta in history() {
            apply(&processor, delta);
        }
        let late = consumer(&processor, None);
        let handler = late.handler.clone();
        let running = spawn(late.run(|_| {}));
        let stopping = processor.clone();
        let stopper = thread::spawn(move || stopping.stop());
        processor.add(&handler, None);
        // Whichever comes first, the handler ends.
        block_on(running).unwrap();
        stopper.join().unwrap();
        assert!(handler.progress().borrow().ended);
    });
}

// Proves informer/registration-synced, informer/has-synced, informer/eventually-consistent.
#[test]
fn handler_sync_races_with_the_first_list() {
    check(|| {
        let processor = processor();
        let things = vec![object("n/a", "u1", 1, "x"), object("n/b", "u2", 2, "x")];
        let handled = Arc::new(AtomicUsize::new(0));
        let consumer = consumer(&processor, None);
        let (handler, calls) = (consumer.handler.clone(), handled.clone());
        let running = spawn(consumer.run(move |_| {
            thread::yield_now();
            calls.fetch_add(1, SeqCst);
        }));
        let feeding = processor.clone();
        let feeder = thread::spawn(move || feeding.fifo().replace(things, "5"));
        let pumping = processor.clone();
        let pump = spawn(async move {
            pumping
                .fifo()
                .pop(|deltas| pumping.handle_deltas(deltas, None))
                .await
                .unwrap();
            pumping.check_synced();
        });
        processor.add(&handler, None);
        let mut progress = handler.progress();
        block_on(async {
            progress
                .wait_for(|progress| progress.synced)
                .await
                .map(|_| ())
        })
        .unwrap();
        assert_eq!(
            handled.load(SeqCst),
            2,
            "synced before everything was handled"
        );
        processor.remove(&handler);
        block_on(running).unwrap();
        block_on(pump).unwrap();
        feeder.join().unwrap();
    });
}

// Proves fifo/batches, informer/eventually-consistent.
#[test]
fn close_races_with_pop() {
    check(|| {
        let fifo = Arc::new(DeltaFifo::<Thing>::new());
        let popping = fifo.clone();
        let popped = spawn(async move {
            let mut versions = Vec::new();
            loop {
                let taken = popping.pop(|deltas| deltas.entries).await;
                match taken {
                    Err(Closed) => return versions,
                    Ok(entries) => versions.extend(entries.into_iter().map(|delta| match delta {
                        Delta::Bookmark(version) => version,
                        other => panic!("{other:?}"),
                    })),
                }
            }
        });
        let writing = fifo.clone();
        let writer = thread::spawn(move || {
            for version in ["1", "2", "3"] {
                block_on(writing.ready());
                writing.bookmark(version);
            }
            writing.close();
        });
        assert_eq!(block_on(popped).unwrap(), ["1", "2", "3"]);
        writer.join().unwrap();
    });
}
