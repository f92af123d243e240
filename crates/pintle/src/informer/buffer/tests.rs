//! Coalescing merges events without losing any state that matters.

use proptest::prelude::*;

use super::*;
use crate::{
    informer::tests::line,
    testing::{Thing, object},
};

fn added(key: &str, uid: &str, version: u64) -> Event<Thing> {
    Event::Added {
        object: object(key, uid, version, "x"),
        initial: false,
    }
}

fn updated(key: &str, uid: &str, from: u64, to: u64) -> Event<Thing> {
    Event::Updated {
        old: object(key, uid, from, "x"),
        new: object(key, uid, to, "x"),
    }
}

fn deleted(key: &str, uid: &str, version: u64) -> Event<Thing> {
    Event::Deleted(Deleted::exact(object(key, uid, version, "x")))
}

fn drain(buffer: &mut Buffer<Thing>) -> Vec<String> {
    std::iter::from_fn(|| buffer.pop())
        .map(|event| line(&event))
        .collect()
}

/// Drains a buffer that merged all of `events`.
fn coalesce(events: Vec<Event<Thing>>) -> Vec<String> {
    let mut buffer = Buffer::new(Some(0));
    for event in events {
        buffer.push(event);
    }
    drain(&mut buffer)
}

/// Proves informer/coalescing.
#[test]
fn events_of_one_object_merge() {
    let of = coalesce;
    assert_eq!(
        of(vec![added("n/a", "u", 1), updated("n/a", "u", 1, 2)]),
        ["+ n/a 2"]
    );
    assert_eq!(
        of(vec![
            updated("n/a", "u", 1, 2),
            updated("n/b", "v", 3, 4),
            updated("n/a", "u", 2, 5)
        ]),
        ["= n/a 1→5", "= n/b 3→4"]
    );
    assert_eq!(
        of(vec![updated("n/a", "u", 1, 2), deleted("n/a", "u", 3)]),
        ["- n/a 3"]
    );
    assert!(of(vec![added("n/a", "u", 1), deleted("n/a", "u", 2)]).is_empty());
    assert_eq!(
        of(vec![deleted("n/a", "u", 2), deleted("n/a", "u", 3)]),
        ["- n/a 3"]
    );
}

/// Proves informer/coalescing.
#[test]
fn deletion_and_successor_stay_separate() {
    let gone_and_back = vec![
        updated("n/a", "u", 1, 2),
        deleted("n/a", "u", 3),
        added("n/a", "v", 4),
        updated("n/a", "v", 4, 5),
    ];
    assert_eq!(coalesce(gone_and_back.clone()), ["- n/a 3", "+ n/a 5"]);
    let mut gone_again = gone_and_back;
    gone_again.push(deleted("n/a", "v", 6));
    assert_eq!(
        coalesce(gone_again.clone()),
        ["- n/a 3"],
        "the successor was never delivered"
    );
    gone_again.push(added("n/a", "w", 7));
    assert_eq!(coalesce(gone_again), ["- n/a 3", "+ n/a 7"]);
}

/// Proves informer/registration-synced.
#[test]
fn unseen_initial_object_does_not_delay_sync() {
    let mut buffer = Buffer::new(Some(0));
    for key in ["n/a", "n/b"] {
        buffer.push(Event::Added {
            object: object(key, "u", 1, "x"),
            initial: true,
        });
    }
    buffer.push(updated("n/b", "u", 1, 2));
    assert_eq!(buffer.initial(), 2);
    buffer.push(deleted("n/a", "u", 3));
    assert_eq!(buffer.initial(), 1);
    assert_eq!(drain(&mut buffer), ["+* n/b 2"]);
    assert_eq!(buffer.initial(), 0);
}

/// Proves informer/coalescing.
#[test]
fn nothing_merges_within_the_bound_or_without_one() {
    for bound in [Some(3), None] {
        let mut buffer = Buffer::new(bound);
        for version in 1..4 {
            buffer.push(updated("n/a", "u", version, version + 1));
        }
        assert_eq!(buffer.len(), 3);
    }
    let mut lossless = Buffer::new(None);
    for version in 0..10_000 {
        lossless.push(updated("n/a", "u", version, version + 1));
    }
    assert_eq!((lossless.len(), lossless.coalesced()), (10_000, 0));
}

/// Proves informer/coalescing.
#[test]
fn coalesced_backlog_is_bounded_by_object_count() {
    let mut buffer = Buffer::new(Some(10));
    for version in 0..10_000 {
        let key = format!("n/{}", version % 4);
        buffer.push(updated(&key, "u", version, version + 4));
        // Objects that come and go must not fill the queue with holes.
        buffer.push(added("n/passing", "p", version));
        buffer.push(deleted("n/passing", "p", version));
    }
    assert!(buffer.len() <= 11, "{} events waiting", buffer.len());
    assert!(
        buffer.queue.len() < 200,
        "{} slots in use",
        buffer.queue.len()
    );
    let events = drain(&mut buffer);
    assert!(events.contains(&"= n/3 3→10003".to_owned()), "{events:?}");
    assert_eq!(events.len(), 4);
}

/// One step of the property below.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change(u8),
    Delete(u8),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5_u8).prop_map(Step::Change),
        2 => (0..5_u8).prop_map(Step::Delete),
        2 => Just(Step::Pop),
    ]
}

proptest! {
    // Proves informer/coalescing.
    #[test]
    fn coalescing_preserves_the_final_view(
        steps in proptest::collection::vec(step(), 0..200), bound in 0usize..12,
    ) {
        let mut buffer = Buffer::new(Some(bound));
        let mut server: [Option<(String, u64)>; 5] = Default::default();
        let mut view = std::collections::BTreeMap::<ObjectKey, (String, u64)>::new();
        let mut version = 0;
        let check = |view: &mut std::collections::BTreeMap<_, _>, event: Event<Thing>| {
            let state = |object: &crate::object::Object<Thing>| {
                (object.uid().to_owned(), object.resource_version().parse::<u64>().unwrap())
            };
            let key = event.key().clone();
            match &event {
                Event::Added { object, .. } => {
                    prop_assert!(view.insert(key, state(object)).is_none(), "added twice");
                }
                Event::Updated { old, new } => {
                    prop_assert_eq!(view.insert(key, state(new)), Some(state(old)));
                }
                Event::Deleted(_) => prop_assert!(view.remove(&key).is_some(), "unknown"),
            }
            Ok(())
        };
        for step in steps {
            version += 1;
            match step {
                Step::Change(n) => {
                    let key = format!("n/{n}");
                    let slot = &mut server[n as usize];
                    buffer.push(if let Some((uid, old)) = slot.clone() {
                        *slot = Some((uid.clone(), version));
                        updated(&key, &uid, old, version)
                    } else {
                        let uid = format!("u{version}");
                        *slot = Some((uid.clone(), version));
                        added(&key, &uid, version)
                    });
                }
                Step::Delete(n) => {
                    if let Some((uid, _)) = server[n as usize].take() {
                        buffer.push(deleted(&format!("n/{n}"), &uid, version));
                    }
                }
                Step::Pop => {
                    if let Some(event) = buffer.pop() {
                        check(&mut view, event)?;
                    }
                }
            }
            prop_assert!(buffer.len() <= bound.max(10) + 1);
        }
        while let Some(event) = buffer.pop() {
            check(&mut view, event)?;
        }
        let expected: std::collections::BTreeMap<_, _> = server.iter().enumerate()
            .filter_map(|(n, state)| Some((format!("n/{n}").parse().unwrap(), state.clone()?)))
            .collect();
        prop_assert_eq!(view, expected);
    }
}
