use super::*;
use crate::{
    object::Reader,
    reflector::Unread,
    testing::{contents, object},
};

/// Proves fifo/relist-deletions-first, informer/resync.
#[tokio::test(start_paused = true)]
async fn relist_delivers_missed_deletions_first() {
    let server = Server::new();
    for key in ["n/a", "n/b", "n/c"] {
        server.put(key, "1");
    }
    let running = synced(&server).await;
    let (events, registration) = EventLog::of(&running.informer);
    registration.synced().await;
    events.take();
    server.forget_history();
    server.delete("n/b");
    server.put("n/c", "2");
    server.put("n/d", "1");
    recover().await;
    assert_eq!(
        events.take(),
        ["-? n/b 3", "= n/a 2→2", "= n/c 4→7", "+ n/d 8"]
    );
    assert_eq!(
        contents(&running.informer.lister().list()),
        server.contents()
    );
    assert_eq!(server.lists(), 2);
}

/// Proves fifo/relist-deletions-first.
#[tokio::test(start_paused = true)]
async fn cache_shows_the_relist_before_its_first_event() {
    let server = Server::new();
    for n in 0..20 {
        server.put(&format!("n/{n}"), "1");
    }
    let running = synced(&server).await;
    let lister = running.informer.lister();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let states = seen.clone();
    let _registration = running.informer.on_event(move |event| {
        if matches!(event, Event::Deleted(_)) {
            states.lock().push(contents(&lister.list()));
        }
    });
    settle().await;
    server.forget_history();
    for n in 0..10 {
        server.delete(&format!("n/{n}"));
        server.put(&format!("n/new-{n}"), "1");
    }
    recover().await;
    let seen = seen.lock();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|state| *state == server.contents()));
}

/// Proves fifo/cache-decides-kind.
#[tokio::test(start_paused = true)]
async fn recreated_object_is_a_deletion_and_an_addition() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = synced(&server).await;
    let (events, registration) = EventLog::of(&running.informer);
    registration.synced().await;
    events.take();
    server.forget_history();
    server.put("n/a", "2");
    server.delete("n/b");
    server.put("n/b", "2");
    recover().await;
    assert_eq!(events.take(), ["-? n/b 3", "= n/a 2→5", "+ n/b 7"]);

    // The same for a watch that lost the deletion.
    let other = crate::testing::json_of("n/b", "other", 50, "3").to_string();
    server.say(crate::source::WatchEvent::Modified(other.into()));
    settle().await;
    assert_eq!(events.take(), ["-? n/b 7", "+ n/b 50"]);
}

/// Proves informer/handler-order, reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn ended_watch_resumes_without_a_relist() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let (events, registration) = EventLog::of(&running.informer);
    registration.synced().await;
    events.take();
    for n in 2..5 {
        tokio::time::sleep(SECOND * 2).await;
        server.cut_watches();
        server.put("n/a", &n.to_string());
        settle().await;
    }
    recover().await;
    assert_eq!(events.take(), ["= n/a 2→3", "= n/a 3→4", "= n/a 4→5"]);
    assert_eq!(server.lists(), 1);
    assert!(server.watches() >= 4);
}

#[tokio::test(start_paused = true)]
async fn relist_keeps_unchanged_objects() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = synced(&server).await;
    let key = "n/a".parse().unwrap();
    let lister = running.informer.lister();
    let before = lister.get(&key).unwrap();
    server.forget_history();
    server.put("n/b", "2");
    recover().await;
    assert_eq!(server.lists(), 2);
    assert!(before.ptr_eq(&lister.get(&key).unwrap()));
    assert_eq!(contents(&lister.list()), server.contents());
}

/// An informer that cannot read objects whose value is `bad`.
fn rejecting_bad(server: &Server) -> SharedInformer<Thing> {
    let reader = Reader::new().transform(|object| match object["data"]["value"].as_str() {
        Some("bad") => Err("unreadable".into()),
        _ => Ok(()),
    });
    SharedInformer::builder(server.clone())
        .reader(reader)
        .build()
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn unreadable_object_in_a_relist_stays_as_it_was() {
    let server = Server::new();
    for key in ["n/a", "n/b", "n/c"] {
        server.put(key, "1");
    }
    let running = run(rejecting_bad(&server));
    let (events, registration) = EventLog::of(&running.informer);
    registration.synced().await;
    events.take();
    server.forget_history();
    server.put("n/b", "bad");
    server.put("n/new", "bad");
    server.delete("n/c");
    recover().await;
    assert_eq!(events.take(), ["-? n/c 4", "= n/a 2→2", "= n/b 3→3"]);
    assert_eq!(running.informer.status().borrow().unreadable, 2);
    server.put("n/b", "2");
    settle().await;
    assert_eq!(events.take(), ["= n/b 3→9"]);
}

/// Applies the entries in the log and returns the contents of the cache.
async fn catch_up(informer: &SharedInformer<Thing>) -> Vec<String> {
    apply_all(informer).await;
    let mut held: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|held| format!("{} {}", held.key(), held.resource_version()))
        .collect();
    held.sort_unstable();
    held
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn unreadable_object_keeps_its_state_at_relist_time() {
    let server = Server::new();
    for key in ["n/changed", "n/gone", "n/other"] {
        server.put(key, "1");
    }
    let informer = rejecting_bad(&server);
    // Run only the reflector: the test decides when the cache applies the log.
    let start = informer.runner.start.lock().take().unwrap();
    let stop = CancellationToken::new();
    let reflector = tokio::spawn(start(None, stop.clone()));
    settle().await;
    assert_eq!(
        catch_up(&informer).await,
        ["n/changed 2", "n/gone 3", "n/other 4"]
    );

    server.put("n/changed", "2");
    server.put("n/new", "1");
    server.delete("n/gone");
    settle().await;
    server.forget_history();
    for key in ["n/changed", "n/new", "n/gone"] {
        server.put(key, "bad");
    }
    server.delete("n/other");
    server.put("n/other", "bad");
    recover().await;
    assert_eq!(
        informer.processor.fifo().len(),
        4,
        "nothing was applied yet"
    );
    assert_eq!(
        catch_up(&informer).await,
        ["n/changed 5", "n/new 6"],
        "newer than cached; the others have another UID"
    );
    stop.cancel();
    reflector.await.unwrap();
}

/// Proves reflector/unreadable-object.
#[tokio::test]
async fn unread_object_without_uid_stays_unless_deleted() {
    let informer = SharedInformer::new(Server::new());
    let fifo = informer.processor.fifo();
    let unread = ["n/a", "n/b"].map(|key| Unread {
        key: key.parse().unwrap(),
        uid: None,
    });
    fifo.replace(
        vec![object("n/a", "u1", 2, "x"), object("n/b", "u2", 3, "x")],
        "3",
    );
    fifo.delete(object("n/b", "u2", 4, "x"));
    fifo.replace_with_unread(Vec::new(), unread.to_vec(), "5");
    assert_eq!(catch_up(&informer).await, ["n/a 2"]);
}
