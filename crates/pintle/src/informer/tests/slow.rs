//! What an operator reads when user code holds things up.

use std::time::Duration;

use futures::FutureExt;

use super::{run, settle};
use crate::{
    informer::{Backlog, SharedInformer},
    testing::{Log, Server, Thing, object},
};

/// Lets time pass as if the function that calls it had taken that long.
fn take(time: Duration) {
    let _passed = tokio::time::advance(time).now_or_never();
}

/// An informer whose cache holds one object, and for which `waiting` more objects are waiting.
fn informer(waiting: u64) -> SharedInformer<Thing> {
    let informer = SharedInformer::new(Server::new());
    let fifo = &informer.processor.fifo;
    fifo.replace(vec![object("shop/first", "u0", 1, "a")], "1");
    for number in 1..=waiting {
        let name = format!("shop/thing-{number}");
        fifo.add(object(&name, &format!("u{number}"), number + 1, "a"));
    }
    informer
}

/// Proves fifo/slow-apply-logged.
#[tokio::test(start_paused = true)]
async fn applying_changes_slowly_while_many_wait_is_logged() {
    for (waiting, time, told) in [(20, 101, true), (20, 100, false), (2, 101, false)] {
        let log = Log::capture();
        let informer = informer(waiting);
        let slow = move |thing: &Thing| {
            if thing.metadata.name.as_deref() == Some("first") {
                take(Duration::from_millis(time));
            }
            Vec::new()
        };
        informer.index_by("slow", slow).unwrap();
        let running = run(informer);
        settle().await;
        running.stop().await;
        let text = log.text();
        assert_eq!(text.contains("applying changes is slow"), told, "{text}");
        // Those, and the reflector's own list.
        assert!(!told || text.contains(" depth=21 "), "{text}");
    }
}

/// Proves informer/slow-handler-logged.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_for_which_many_events_wait_is_named() {
    for (waiting, time, told) in [(1200, 101, true), (1200, 100, false), (500, 101, false)] {
        let log = Log::capture();
        let informer = informer(waiting);
        let mut calls = 0;
        let slow = move |_| {
            calls += 1;
            if calls == 2 {
                take(Duration::from_millis(time));
            }
        };
        let handler = informer.handler().name("mirror");
        let _registration = handler.backlog(Backlog::Lossless).on_event(slow);
        let running = run(informer);
        settle().await;
        running.stop().await;
        let text = log.text();
        assert_eq!(text.contains("a handler is slow"), told, "{text}");
        assert!(!told || text.contains(r#"handler="mirror""#), "{text}");
    }
}
