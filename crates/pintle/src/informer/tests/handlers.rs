use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;

use super::*;
use crate::{cache::ObjectKey, queue::WorkQueue, testing::object};

/// Proves informer/late-handler-sees-existing, informer/registration-synced.
#[tokio::test(start_paused = true)]
async fn late_handler_sees_existing_objects_then_changes() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    server.put("n/a", "2");
    let (events, registration) = EventLog::of(&running.informer);
    assert!(
        !registration.has_synced(),
        "nothing can have been handled yet"
    );
    assert!(registration.synced().await);
    server.put("n/b", "1");
    settle().await;
    assert_eq!(events.take(), ["+* n/a 2", "= n/a 2→3", "+ n/b 4"]);
    // With an empty cache there is nothing to wait for.
    let empty = synced(&Server::new()).await;
    let (_events, registration) = EventLog::of(&empty.informer);
    assert!(registration.has_synced());
}

/// Proves informer/handlers-from-handlers.
#[tokio::test(start_paused = true)]
async fn same_function_registered_twice_is_two_handlers() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let events = EventLog::default();
    let first = running.informer.on_event(events.writer());
    let second = running.informer.on_event(events.writer());
    settle().await;
    assert_eq!(events.take(), ["+* n/a 2", "+* n/a 2"]);
    drop(first);
    server.put("n/a", "2");
    settle().await;
    assert_eq!(events.take(), ["= n/a 2→3"]);
    drop(second);
}

/// Proves informer/slow-handler.
#[tokio::test(start_paused = true)]
async fn stuck_handler_delays_neither_cache_nor_others() {
    let server = Server::new();
    let running = synced(&server).await;
    let stuck = running.informer.handler().stream();
    let (events, _registration) = EventLog::of(&running.informer);
    for n in 0..100 {
        server.put(&format!("n/{n}"), "1");
    }
    settle().await;
    assert_eq!(events.take().len(), 100);
    assert_eq!(running.informer.lister().len(), 100);
    assert_eq!(stuck.registration().pending(), 100);
}

/// Proves informer/slow-handler, informer/coalescing.
#[tokio::test(start_paused = true)]
async fn only_lossless_handler_gets_every_intermediate_state() {
    let server = Server::new();
    server.put("n/a", "0");
    let running = synced(&server).await;
    let mut slow = running.informer.handler().coalesce_beyond(10).stream();
    let lossless = running.informer.handler().stream();
    assert_eq!(line(&slow.next().await.unwrap()), "+* n/a 2");
    for n in 0..1000 {
        server.put("n/a", &n.to_string());
        server.put("n/b", &n.to_string());
        server.delete("n/b");
    }
    settle().await;
    assert!(slow.registration().pending() <= 11);
    assert_eq!(lossless.registration().pending(), 3001);
    let (key, version) = ("n/a", server.version() - 2);
    let mut last = String::new();
    while slow.registration().pending() > 0 {
        let event = slow.next().await.unwrap();
        if event.key().to_string() == key {
            last = line(&event);
        }
    }
    assert!(last.ends_with(&format!("→{version}")), "{last}");
}

/// Workers read the cache, which is ahead of the events. Here a worker sees `n/brief` in the cache
/// and acts on it while the handler lags. If the waiting addition and deletion of `n/brief`
/// cancelled out, its key would never be enqueued and the worker would never learn of the deletion.
///
/// Proves informer/lossless-by-default.
#[tokio::test(start_paused = true)]
async fn lagging_handler_enqueues_object_that_came_and_went() {
    let informer = SharedInformer::new(Server::new());
    let queue = WorkQueue::<ObjectKey>::new("things");
    let enqueue = queue.clone();
    let registration = informer.on_event(move |event| enqueue.add(event.key().clone()));
    let fifo = informer.processor.fifo();
    fifo.replace(Vec::new(), "1");
    for number in 0..10_000 {
        let name = format!("n/{number}");
        fifo.add(object(&name, &format!("u{number}"), number + 2, "x"));
    }
    fifo.add(object("n/brief", "brief", 20_000, "x"));
    apply_all(&informer).await;
    let brief: ObjectKey = "n/brief".parse().unwrap();
    assert!(informer.lister().get(&brief).is_some());
    fifo.delete(object("n/brief", "brief", 20_001, "x"));
    apply_all(&informer).await;
    // Handlers run only while the informer runs, so this one has not been called yet.
    assert_eq!(registration.pending(), 10_002);
    let _running = run(informer.clone());
    settle().await;
    assert_eq!(registration.pending(), 0);
    assert_eq!(queue.len(), 10_001);
}

/// Proves informer/handler-panic, informer/registration-synced.
#[tokio::test(start_paused = true)]
async fn panic_is_contained_and_does_not_delay_sync() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = synced(&server).await;
    let events = EventLog::default();
    let mut write = events.writer();
    let registration = running.informer.on_event(move |event| {
        let bad = event.key().name() == "a";
        write(event);
        assert!(!bad, "panic for the test");
    });
    assert!(registration.synced().await);
    server.put("n/b", "2");
    settle().await;
    assert_eq!(events.take(), ["+* n/a 2", "+* n/b 3", "= n/b 3→4"]);
    assert_eq!(registration.panics(), 1);
}

/// Proves informer/stop, informer/unregister.
#[tokio::test(start_paused = true)]
async fn removed_handler_receives_nothing_more() {
    let server = Server::new();
    let running = synced(&server).await;
    let victim = Arc::new(Mutex::new(None::<Registration>));
    let (other, events) = (EventLog::default(), EventLog::default());
    let (mut write, shared) = (other.writer(), victim.clone());
    // This handler is called first and removes the other one, which already has an event waiting.
    let remover = running.informer.on_event(move |event| {
        write(event);
        let registration = shared.lock().take();
        assert!(registration.is_none_or(|registration| registration.pending() == 1));
    });
    *victim.lock() = Some(running.informer.on_event(events.writer()));
    server.put("n/a", "1");
    settle().await;
    server.put("n/b", "1");
    settle().await;
    assert!(events.take().is_empty());
    assert_eq!(other.take(), ["+ n/a 2", "+ n/b 3"]);
    assert_eq!(remover.panics(), 0);
}

/// Proves informer/unregister, informer/handlers-from-handlers.
#[tokio::test(start_paused = true)]
async fn handler_may_remove_itself_and_add_others() {
    let server = Server::new();
    let running = synced(&server).await;
    let own = Arc::new(Mutex::new(None::<Registration>));
    let added = Arc::new(Mutex::new(Vec::new()));
    let (events, inner) = (EventLog::default(), EventLog::default());
    let (mut write, informer) = (events.writer(), running.informer.clone());
    let (mine, others, inside) = (own.clone(), added.clone(), inner.clone());
    let registration = running.informer.on_event(move |event| {
        write(event);
        others.lock().push(informer.on_event(inside.writer()));
        drop(mine.lock().take());
    });
    *own.lock() = Some(registration);
    server.put("n/a", "1");
    server.put("n/b", "1");
    settle().await;
    assert_eq!(
        events.take(),
        ["+ n/a 2"],
        "it removed itself in its first call"
    );
    let received = inner.take();
    assert!(
        received == ["+* n/a 2", "+ n/b 3"] || received == ["+* n/a 2", "+* n/b 3"],
        "{received:?}"
    );
}

/// Proves informer/unregister.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_shutdown_waits_for_the_call_in_progress() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let (entered, entering) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let done = Arc::new(AtomicUsize::new(0));
    let calls = done.clone();
    let registration = running.informer.on_event(move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
        calls.fetch_add(1, Ordering::SeqCst);
    });
    server.put("n/b", "1");
    tokio::task::spawn_blocking(move || entering.recv().unwrap())
        .await
        .unwrap();
    let mut shutdown = std::pin::pin!(registration.shutdown());
    assert!(
        futures::poll!(&mut shutdown).is_pending(),
        "a call is in progress"
    );
    release.send(()).unwrap();
    shutdown.await;
    assert_eq!(
        done.load(Ordering::SeqCst),
        1,
        "only the call in progress completes"
    );
}

/// Proves informer/unregister.
#[tokio::test(start_paused = true)]
async fn handler_shutdown_before_start_returns_immediately() {
    let informer = SharedInformer::<Thing>::new(Server::new());
    let held = Arc::new(());
    let inside = held.clone();
    let registration = informer.on_event(move |_| {
        let _ = &inside;
    });
    registration.shutdown().await;
    assert_eq!(Arc::strong_count(&held), 1, "the function was not dropped");
}

/// Proves informer/stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_waits_for_calls_and_drops_waiting_events() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = run(SharedInformer::new(server.clone()));
    let (entered, entering) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let done = Arc::new(AtomicUsize::new(0));
    let calls = done.clone();
    let registration = running.informer.on_event(move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
        calls.fetch_add(1, Ordering::SeqCst);
    });
    let mut stream = running.informer.handler().stream();
    tokio::task::spawn_blocking(move || entering.recv().unwrap())
        .await
        .unwrap();
    running.stop.cancel();
    while !running.informer.is_stopped() {
        tokio::task::yield_now().await;
    }
    assert!(!running.task.is_finished(), "a call is in progress");
    release.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert!(registration.has_ended());
    assert!(stream.next().await.is_none());
}

/// Proves informer/filter, informer/deletion.
#[tokio::test(start_paused = true)]
async fn filter_turns_updates_into_additions_and_deletions() {
    let server = Server::new();
    server.put("n/in", "yes");
    server.put("n/out", "no");
    let running = synced(&server).await;
    let events = EventLog::default();
    let registration = running
        .informer
        .handler()
        .filter(|object| object.labels().get("value") == Some("yes"))
        .on_event(events.writer());
    assert!(registration.synced().await);
    assert_eq!(events.take(), ["+* n/in 2"]);
    server.put("n/out", "yes");
    server.put("n/out", "yes");
    server.put("n/in", "no");
    server.put("n/in", "no");
    server.delete("n/in");
    server.delete("n/out");
    settle().await;
    assert_eq!(
        events.take(),
        ["+ n/out 4", "= n/out 4→5", "- n/in 2", "- n/out 9"]
    );
}

/// Proves informer/filter.
#[tokio::test(start_paused = true)]
async fn filter_delivers_missed_deletions() {
    let server = Server::new();
    server.put("n/a", "yes");
    let running = synced(&server).await;
    let matching = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (now, events) = (matching.clone(), EventLog::default());
    let registration = running
        .informer
        .handler()
        .filter(move |_| now.load(Ordering::Relaxed))
        .on_event(events.writer());
    registration.synced().await;
    events.take();
    // The deletion passes although the predicate no longer matches.
    matching.store(false, Ordering::Relaxed);
    server.forget_history();
    server.delete("n/a");
    recover().await;
    assert_eq!(events.take(), ["-? n/a 2"]);
}

#[tokio::test(start_paused = true)]
async fn panicking_filter_lets_the_event_through() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let events = EventLog::default();
    let registration = running
        .informer
        .handler()
        .filter(|_| panic!("panic for the test"))
        .on_event(events.writer());
    assert!(registration.synced().await);
    assert_eq!(events.take(), ["+* n/a 2"]);
    assert_eq!(registration.panics(), 1);
}

/// Proves informer/stream.
#[tokio::test(start_paused = true)]
async fn stream_delivers_the_same_events() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let mut stream = running.informer.handler().stream();
    assert_eq!(line(&stream.next().await.unwrap()), "+* n/a 2");
    assert!(
        !stream.registration().has_synced(),
        "not handled before the next poll"
    );
    assert!(futures::poll!(stream.next()).is_pending());
    assert!(stream.registration().has_synced());
    server.delete("n/a");
    assert_eq!(line(&stream.next().await.unwrap()), "- n/a 3");
    running.stop.cancel();
    assert!(stream.next().await.is_none());
}
