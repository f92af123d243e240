use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::*;
use crate::testing::{Thing, object};

fn entries(deltas: &Deltas<Thing>) -> Vec<String> {
    deltas
        .entries
        .iter()
        .map(|delta| match delta {
            Delta::Added(object) => format!("added {}", object.resource_version()),
            Delta::Updated(object) => format!("updated {}", object.resource_version()),
            Delta::Deleted(object) => format!("deleted {}", object.resource_version()),
            Delta::Replaced {
                items,
                resource_version,
                ..
            } => {
                format!("replaced {} at {resource_version}", items.len())
            }
            Delta::Sync => "sync".to_owned(),
            Delta::Bookmark(version) => format!("bookmark {version}"),
        })
        .collect()
}

async fn pop(fifo: &DeltaFifo<Thing>) -> Result<(Vec<String>, bool), Closed> {
    fifo.pop(|deltas| (entries(&deltas), deltas.initial)).await
}

/// Proves fifo/entries, fifo/batches.
#[tokio::test]
async fn entries_keep_their_order_and_lists_are_not_batched() {
    let fifo = DeltaFifo::new();
    fifo.replace(vec![object("n/a", "u", 1, "x")], "5");
    fifo.add(object("n/b", "u", 6, "x"));
    fifo.update(object("n/b", "u", 7, "x"));
    fifo.update(object("n/b", "u", 8, "x"));
    fifo.delete(object("n/b", "u", 9, "x"));
    fifo.bookmark("10");
    fifo.resync();
    fifo.replace(Vec::new(), "11");
    assert_eq!((fifo.len(), fifo.is_empty()), (8, false));
    assert_eq!(
        format!("{fifo:?}"),
        "DeltaFifo { len: 8, synced: false, .. }"
    );
    assert_eq!(pop(&fifo).await.unwrap().0, ["replaced 1 at 5"]);
    let (changes, initial) = pop(&fifo).await.unwrap();
    assert_eq!(
        changes,
        [
            "added 6",
            "updated 7",
            "updated 8",
            "deleted 9",
            "bookmark 10"
        ]
    );
    assert!(!initial);
    assert_eq!(pop(&fifo).await.unwrap().0, ["sync"]);
    assert_eq!(pop(&fifo).await.unwrap().0, ["replaced 0 at 11"]);
    assert_eq!((fifo.len(), fifo.is_empty()), (0, true));
}

/// Proves fifo/entries.
#[tokio::test(start_paused = true)]
async fn fifo_implements_the_reflector_sink() {
    async fn read(sink: &impl Sink<Thing>) {
        sink.ready().await;
        sink.replace(vec![object("n/a", "u", 1, "x")], "5");
        let unread = Unread {
            key: "n/odd".parse().unwrap(),
            uid: None,
        };
        sink.replace_with_unread(Vec::new(), vec![unread], "6");
        sink.add(object("n/b", "u", 7, "x"));
        sink.update(object("n/b", "u", 8, "x"));
        sink.delete(object("n/b", "u", 9, "x"));
        sink.bookmark("10");
        sink.resync();
    }
    let fifo = DeltaFifo::default();
    read(&fifo).await;
    assert_eq!(pop(&fifo).await.unwrap().0, ["replaced 1 at 5"]);
    let unread = fifo.pop(|deltas| match &deltas.entries[..] {
        [Delta::Replaced { unread, .. }] => unread.len(),
        _ => 0,
    });
    assert_eq!(unread.await, Ok(1));
    let (changes, _) = pop(&fifo).await.unwrap();
    assert_eq!(
        changes,
        ["added 7", "updated 8", "deleted 9", "bookmark 10"]
    );
    assert_eq!(pop(&fifo).await.unwrap().0, ["sync"]);
    for version in 0..2000 {
        fifo.add(object("n/a", "u", version, "x"));
    }
    let full = tokio::time::timeout(Duration::from_secs(1), Sink::ready(&fifo));
    assert!(full.await.is_err(), "the reflector has to pause");
}

/// Proves fifo/batches.
#[test]
fn memory_of_a_large_backlog_is_freed() {
    let mut state = State::<Thing>::new(BOUND);
    let mut fill_and_drain = |entries: usize| {
        for version in 0..entries {
            state.push(Delta::Bookmark(version.to_string()));
        }
        let most = state.capacity();
        let mut left = Vec::new();
        while let Ok(Some(_)) = state.take() {
            left.push(state.capacity());
        }
        (most, left)
    };
    let (most, left) = fill_and_drain(BOUND);
    assert_eq!(left, [most; 2], "a normal backlog keeps its memory");
    let (most, left) = fill_and_drain(5000);
    assert_eq!(left[..4], [most; 4], "not while entries are pending");
    assert!(left[4] < BOUND, "{left:?}");
}

/// Proves fifo/batches.
#[tokio::test]
async fn batches_have_at_most_a_thousand_entries() {
    let fifo = DeltaFifo::new();
    for version in 0..1500 {
        fifo.update(object("n/a", "u", version, "x"));
    }
    assert_eq!(pop(&fifo).await.unwrap().0.len(), 1000);
    assert_eq!(pop(&fifo).await.unwrap().0.len(), 500);
}

/// Proves informer/has-synced.
#[tokio::test]
async fn fifo_syncs_when_the_first_list_is_processed() {
    for items in [vec![], vec![object("n/a", "u", 1, "x")]] {
        let fifo = DeltaFifo::new();
        fifo.bookmark("1");
        fifo.replace(items, "5");
        fifo.add(object("n/b", "u", 6, "x"));
        assert!(!fifo.has_synced());
        let (_, initial) = pop(&fifo).await.unwrap();
        assert!(
            initial && !fifo.has_synced(),
            "the bookmark was there before the list"
        );
        let (list, initial) = fifo
            .pop(|deltas| {
                assert!(!fifo.has_synced(), "not before the list is processed");
                (entries(&deltas), deltas.initial)
            })
            .await
            .unwrap();
        assert!(initial && list.len() == 1);
        assert!(fifo.has_synced());
        assert!(
            !pop(&fifo).await.unwrap().1,
            "entries after the list are not initial"
        );
        fifo.replace(vec![object("n/c", "u", 7, "x")], "7");
        assert!(fifo.has_synced(), "stays synced");
        assert!(!pop(&fifo).await.unwrap().1, "a relist is not initial");
    }
}

/// Proves fifo/batches.
#[tokio::test]
async fn pending_entries_can_be_popped_after_close() {
    let fifo = DeltaFifo::new();
    fifo.add(object("n/a", "u", 1, "x"));
    fifo.close();
    fifo.add(object("n/b", "u", 2, "x"));
    assert_eq!(pop(&fifo).await.unwrap().0, ["added 1", "added 2"]);
    assert_eq!(pop(&fifo).await, Err(Closed));
}

/// Proves fifo/batches.
#[tokio::test(start_paused = true)]
async fn close_wakes_a_waiting_pop() {
    let fifo = Arc::new(DeltaFifo::<Thing>::new());
    let waiting = fifo.clone();
    let pop = tokio::spawn(async move { pop(&waiting).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!pop.is_finished());
    fifo.close();
    assert_eq!(pop.await.unwrap(), Err(Closed));
}

/// Proves fifo/batches.
#[tokio::test(start_paused = true)]
async fn close_wakes_a_paused_reflector() {
    let fifo = Arc::new(DeltaFifo::<Thing>::new());
    for version in 0..2000 {
        fifo.add(object("n/a", "u", version, "x"));
    }
    let paused = fifo.clone();
    let reflector = tokio::spawn(async move { paused.ready().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!reflector.is_finished());
    fifo.close();
    let ended = tokio::time::timeout(Duration::from_secs(1), reflector).await;
    ended.expect("still paused").unwrap();
}

/// Proves informer/has-synced.
#[tokio::test(start_paused = true)]
async fn synced_changes_once() {
    let fifo = DeltaFifo::new();
    let mut synced = fifo.synced();
    assert!(!*synced.borrow_and_update());
    fifo.replace(vec![object("n/a", "u", 1, "x")], "5");
    assert!(!synced.has_changed().unwrap());
    pop(&fifo).await.unwrap();
    assert!(synced.has_changed().unwrap() && *synced.borrow_and_update());
    fifo.replace(Vec::new(), "6");
    pop(&fifo).await.unwrap();
    assert!(!synced.has_changed().unwrap());
}

/// Proves fifo/batches.
#[tokio::test(start_paused = true)]
async fn reflector_pauses_at_two_thousand_pending_entries() {
    let fifo = Arc::new(DeltaFifo::<Thing>::new());
    for version in 0..1999 {
        fifo.ready().await;
        fifo.update(object("n/a", "u", version, "x"));
    }
    fifo.ready().await;
    fifo.update(object("n/a", "u", 2000, "x"));
    let (waiting, resumed) = (fifo.clone(), Arc::new(AtomicBool::new(false)));
    let seen = resumed.clone();
    let reflector = tokio::spawn(async move {
        waiting.ready().await;
        seen.store(true, Ordering::Relaxed);
    });
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!resumed.load(Ordering::Relaxed));
    // Popped entries free their space before they are processed, so the reflector keeps reading.
    fifo.pop(|_| ()).await.unwrap();
    reflector.await.unwrap();
    assert!(resumed.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn cancelled_pop_removes_nothing() {
    let fifo = DeltaFifo::<Thing>::new();
    let cancelled = tokio::time::timeout(Duration::from_secs(1), pop(&fifo)).await;
    assert!(cancelled.is_err());
    fifo.add(object("n/a", "u", 1, "x"));
    assert_eq!(pop(&fifo).await.unwrap().0, ["added 1"]);
}
