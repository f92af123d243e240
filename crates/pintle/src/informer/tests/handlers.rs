use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;

use super::*;
use crate::informer::{Backlog, Deleted};

/// Proves informer/late-handler-sees-existing, informer/registration-synced.
#[tokio::test(start_paused = true)]
async fn a_late_handler_is_told_what_is_there_and_then_every_change() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    server.put("n/a", "2");
    let (diary, registration) = Diary::of(&running.informer);
    assert!(
        !registration.has_synced(),
        "nothing can have been handled yet"
    );
    assert!(registration.synced().await);
    server.put("n/b", "1");
    settle().await;
    assert_eq!(diary.take(), ["+* n/a 2", "= n/a 2→3", "+ n/b 4"]);
    // With nothing there, there is nothing to wait for.
    let empty = synced(&Server::new()).await;
    let (_diary, registration) = Diary::of(&empty.informer);
    assert!(registration.has_synced());
}

/// Proves informer/registration-identity.
#[tokio::test(start_paused = true)]
async fn the_same_function_twice_is_two_handlers() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let diary = Diary::default();
    let first = running.informer.on_event(diary.writer());
    let second = running.informer.on_event(diary.writer());
    settle().await;
    assert_eq!(diary.take(), ["+* n/a 2", "+* n/a 2"]);
    drop(first);
    server.put("n/a", "2");
    settle().await;
    assert_eq!(diary.take(), ["= n/a 2→3"]);
    drop(second);
}

/// Proves informer/slow-handler.
#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_move_delays_nobody() {
    let server = Server::new();
    let running = synced(&server).await;
    let stuck = running.informer.handler().stream();
    let (diary, _registration) = Diary::of(&running.informer);
    for n in 0..100 {
        server.put(&format!("n/{n}"), "1");
    }
    settle().await;
    assert_eq!(diary.take().len(), 100);
    assert_eq!(running.informer.lister().len(), 100);
    assert_eq!(stuck.registration().pending(), 100);
}

/// Proves informer/slow-handler, informer/coalescing.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_is_told_the_latest_and_a_lossless_one_everything() {
    let server = Server::new();
    server.put("n/a", "0");
    let running = synced(&server).await;
    let coalesce = Backlog::Coalesce { beyond: 10 };
    let mut slow = running.informer.handler().backlog(coalesce).stream();
    let lossless = running
        .informer
        .handler()
        .backlog(Backlog::Lossless)
        .stream();
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

/// Proves informer/handler-panic, informer/registration-synced.
#[tokio::test(start_paused = true)]
async fn a_panic_is_contained_and_does_not_hold_up_the_sync() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = synced(&server).await;
    let diary = Diary::default();
    let mut write = diary.writer();
    let registration = running.informer.on_event(move |event| {
        let bad = event.key().name() == "a";
        write(event);
        assert!(!bad, "a test's panic");
    });
    assert!(registration.synced().await);
    server.put("n/b", "2");
    settle().await;
    assert_eq!(diary.take(), ["+* n/a 2", "+* n/b 3", "= n/b 3→4"]);
    assert_eq!(registration.panics(), 1);
}

/// Proves informer/stop, informer/unregister.
#[tokio::test(start_paused = true)]
async fn a_removed_handler_is_told_nothing_more() {
    let server = Server::new();
    let running = synced(&server).await;
    let victim = Arc::new(Mutex::new(None::<Registration>));
    let (other, diary) = (Diary::default(), Diary::default());
    let (mut write, shared) = (other.writer(), victim.clone());
    // It is told first, and removes the other, whose events wait by then.
    let remover = running.informer.on_event(move |event| {
        write(event);
        let registration = shared.lock().take();
        assert!(registration.is_none_or(|registration| registration.pending() == 1));
    });
    *victim.lock() = Some(running.informer.on_event(diary.writer()));
    server.put("n/a", "1");
    settle().await;
    server.put("n/b", "1");
    settle().await;
    assert!(diary.take().is_empty());
    assert_eq!(other.take(), ["+ n/a 2", "+ n/b 3"]);
    assert_eq!(remover.panics(), 0);
}

/// Proves informer/unregister, informer/handlers-from-handlers.
#[tokio::test(start_paused = true)]
async fn a_handler_may_remove_itself_and_add_others() {
    let server = Server::new();
    let running = synced(&server).await;
    let own = Arc::new(Mutex::new(None::<Registration>));
    let added = Arc::new(Mutex::new(Vec::new()));
    let (diary, inner) = (Diary::default(), Diary::default());
    let (mut write, informer) = (diary.writer(), running.informer.clone());
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
        diary.take(),
        ["+ n/a 2"],
        "it removed itself in its first call"
    );
    let told = inner.take();
    assert!(
        told == ["+* n/a 2", "+ n/b 3"] || told == ["+* n/a 2", "+* n/b 3"],
        "{told:?}"
    );
}

/// Proves informer/unregister.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_a_handler_down_waits_for_its_call() {
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
async fn shutting_a_handler_down_before_the_start_returns_at_once() {
    let informer = SharedInformer::<Thing>::new(Server::new());
    let held = Arc::new(());
    let inside = held.clone();
    let registration = informer.on_event(move |_| {
        let _ = &inside;
    });
    registration.shutdown().await;
    assert_eq!(
        Arc::strong_count(&held),
        1,
        "what the function held must be gone"
    );
}

/// Proves informer/stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_waits_for_calls_and_drops_what_waits() {
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
async fn a_filter_turns_changes_into_comings_and_goings() {
    let server = Server::new();
    server.put("n/in", "yes");
    server.put("n/out", "no");
    let running = synced(&server).await;
    let diary = Diary::default();
    let registration = running
        .informer
        .handler()
        .filter(|object| object.labels().get("value") == Some("yes"))
        .on_event(diary.writer());
    assert!(registration.synced().await);
    assert_eq!(diary.take(), ["+* n/in 2"]);
    server.put("n/out", "yes");
    server.put("n/out", "yes");
    server.put("n/in", "no");
    server.put("n/in", "no");
    server.delete("n/in");
    server.delete("n/out");
    settle().await;
    assert_eq!(
        diary.take(),
        ["+ n/out 4", "= n/out 4→5", "- n/in 2", "- n/out 9"]
    );
}

/// Proves informer/filter.
#[tokio::test(start_paused = true)]
async fn a_filter_does_not_swallow_deletions_that_were_missed() {
    let server = Server::new();
    server.put("n/a", "yes");
    let running = synced(&server).await;
    let matching = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (now, diary) = (matching.clone(), Diary::default());
    let registration = running
        .informer
        .handler()
        .filter(move |_| now.load(Ordering::Relaxed))
        .on_event(diary.writer());
    registration.synced().await;
    diary.take();
    // Whatever the predicate would say of it now.
    matching.store(false, Ordering::Relaxed);
    server.forget_history();
    server.delete("n/a");
    recover().await;
    assert_eq!(diary.take(), ["-? n/a 2"]);
    let gone = Event::<Thing>::Deleted(Deleted {
        key: "n/x".parse().unwrap(),
        last: None,
        exact: false,
    });
    assert_eq!((gone.key().name(), gone.object().is_none()), ("x", true));
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_lets_the_event_through() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let diary = Diary::default();
    let registration = running
        .informer
        .handler()
        .filter(|_| panic!("a test's panic"))
        .on_event(diary.writer());
    assert!(registration.synced().await);
    assert_eq!(diary.take(), ["+* n/a 2"]);
    assert_eq!(registration.panics(), 1);
}

/// Proves informer/stream.
#[tokio::test(start_paused = true)]
async fn the_same_events_come_as_a_stream() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let mut stream = running.informer.handler().stream();
    assert_eq!(line(&stream.next().await.unwrap()), "+* n/a 2");
    assert!(
        !stream.registration().has_synced(),
        "it is not handled before the next is asked for"
    );
    assert!(futures::poll!(stream.next()).is_pending());
    assert!(stream.registration().has_synced());
    server.delete("n/a");
    assert_eq!(line(&stream.next().await.unwrap()), "- n/a 3");
    running.stop.cancel();
    assert!(stream.next().await.is_none());
}
