//! Warnings about slow user code.

use std::time::Duration;

use futures::FutureExt;

use super::{run, settle};
use crate::{
    informer::SharedInformer,
    testing::{Log, Server, Thing, object},
};

/// Advances the clock as if the calling function had taken that long.
fn take(time: Duration) {
    let _passed = tokio::time::advance(time).now_or_never();
}

/// An informer with one object in its first list and `waiting` more in its log.
fn informer(waiting: u64) -> SharedInformer<Thing> {
    let informer = SharedInformer::new(Server::new());
    let fifo = informer.processor.fifo();
    fifo.replace(vec![object("shop/first", "u0", 1, "a")], "1");
    for number in 1..=waiting {
        let name = format!("shop/thing-{number}");
        fifo.add(object(&name, &format!("u{number}"), number + 1, "a"));
    }
    informer
}

/// Proves fifo/slow-apply-logged.
#[tokio::test(start_paused = true)]
async fn slow_apply_with_many_waiting_entries_is_logged() {
    for (waiting, time, logged) in [(20, 101, true), (20, 100, false), (2, 101, false)] {
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
        assert_eq!(
            text.contains("slow cache update; the reflector may fall behind"),
            logged,
            "{text}"
        );
        // The waiting entries and the reflector's own list.
        assert!(!logged || text.contains(" depth=21 "), "{text}");
    }
}

/// Proves informer/slow-handler.
#[tokio::test(start_paused = true)]
async fn slow_handler_with_many_waiting_events_is_logged() {
    for (waiting, time, logged) in [(1200, 101, true), (1200, 100, false), (500, 101, false)] {
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
        let _registration = handler.on_event(slow);
        let running = run(informer);
        settle().await;
        running.stop().await;
        let text = log.text();
        assert_eq!(text.contains("handler is slow"), logged, "{text}");
        assert!(!logged || text.contains(r#"handler="mirror""#), "{text}");
    }
}
