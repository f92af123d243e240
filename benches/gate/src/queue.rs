//! Keys through the queue.

use std::hint::black_box;

use pintle::{cache::ObjectKey, queue::WorkQueue};

use crate::{measured, runtime};

/// Queued keys at a time.
const WAITING: usize = 1000;

fn keys() -> Vec<ObjectKey> {
    (0..WAITING)
        .map(|i| ObjectKey::namespaced("default", &format!("key-{i}")))
        .collect()
}

pub(crate) fn cycle(count: usize) {
    let (runtime, keys) = (runtime(), keys());
    let queue = WorkQueue::<ObjectKey>::new("gate");
    let round = async || {
        for key in &keys {
            queue.add(key.clone());
        }
        for _ in &keys {
            let item = queue.get().await.unwrap();
            black_box(item.key());
            item.forget();
        }
    };
    runtime.block_on(round());
    measured(&mut || {
        for _ in 0..count / WAITING {
            runtime.block_on(round());
        }
    });
    assert!(queue.is_empty());
}

pub(crate) fn duplicate(count: usize) {
    let (runtime, keys) = (runtime(), keys());
    let _guard = runtime.enter();
    let queue = WorkQueue::<ObjectKey>::new("gate");
    let add_all = || {
        for key in &keys {
            queue.add(key.clone());
        }
    };
    add_all();
    measured(&mut || {
        for _ in 0..count / WAITING {
            add_all();
        }
    });
    assert_eq!(queue.len(), WAITING);
}
