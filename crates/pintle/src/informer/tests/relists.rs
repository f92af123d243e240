use super::*;
use crate::{
    object::Reader,
    reflector::Unread,
    testing::{contents, object},
};

/// Proves fifo/relist-deletions-first, informer/resync-turns.
#[tokio::test(start_paused = true)]
async fn a_relist_tells_deletions_first_as_missed_then_the_rest() {
    let server = Server::new();
    for key in ["n/a", "n/b", "n/c"] {
        server.put(key, "1");
    }
    let running = synced(&server).await;
    let (diary, registration) = Diary::of(&running.informer);
    registration.synced().await;
    diary.take();
    server.forget_history();
    server.delete("n/b");
    server.put("n/c", "2");
    server.put("n/d", "1");
    recover().await;
    assert_eq!(
        diary.take(),
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
async fn the_cache_is_already_relisted_when_the_first_deletion_is_told() {
    let server = Server::new();
    for n in 0..20 {
        server.put(&format!("n/{n}"), "1");
    }
    let running = synced(&server).await;
    let lister = running.informer.lister();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let _registration = running.informer.on_event(move |event| {
        if matches!(event, Event::Deleted(_)) {
            told.lock().push(contents(&lister.list()));
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

/// Proves fifo/recreated-under-same-name.
#[tokio::test(start_paused = true)]
async fn a_name_created_again_while_nobody_looked_is_a_deletion_and_an_addition() {
    let server = Server::new();
    server.put("n/a", "1");
    server.put("n/b", "1");
    let running = synced(&server).await;
    let (diary, registration) = Diary::of(&running.informer);
    registration.synced().await;
    diary.take();
    server.forget_history();
    server.put("n/a", "2");
    server.delete("n/b");
    server.put("n/b", "2");
    recover().await;
    assert_eq!(diary.take(), ["-? n/b 3", "= n/a 2→5", "+ n/b 7"]);

    // The same in a watch whose deletion was lost.
    let other = crate::testing::json_of("n/b", "other", 50, "3").to_string();
    server.say(crate::source::WatchEvent::Modified(other.into()));
    settle().await;
    assert_eq!(diary.take(), ["-? n/b 7", "+ n/b 50"]);
}

/// Proves informer/states-in-order, reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was_without_a_relist() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = synced(&server).await;
    let (diary, registration) = Diary::of(&running.informer);
    registration.synced().await;
    diary.take();
    for n in 2..5 {
        tokio::time::sleep(SECOND * 2).await;
        server.cut_watches();
        server.put("n/a", &n.to_string());
        settle().await;
    }
    recover().await;
    assert_eq!(diary.take(), ["= n/a 2→3", "= n/a 3→4", "= n/a 4→5"]);
    assert_eq!(server.lists(), 1);
    assert!(server.watches() >= 4);
}

#[tokio::test(start_paused = true)]
async fn a_relist_shares_what_did_not_change() {
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
    assert!(before.same(&lister.get(&key).unwrap()));
    assert_eq!(contents(&lister.list()), server.contents());
}

/// An informer that cannot read objects whose value is `bad`.
fn fastidious(server: &Server) -> SharedInformer<Thing> {
    let reader = Reader::new().transform(|object| match object["data"]["value"].as_str() {
        Some("bad") => Err("nobody can read that".into()),
        _ => Ok(()),
    });
    SharedInformer::builder(server.clone())
        .reader(reader)
        .build()
}

/// Proves informer/unreadable-in-relist.
#[tokio::test(start_paused = true)]
async fn an_object_that_a_relist_cannot_read_stays_as_it_was() {
    let server = Server::new();
    for key in ["n/a", "n/b", "n/c"] {
        server.put(key, "1");
    }
    let running = run(fastidious(&server));
    let (diary, registration) = Diary::of(&running.informer);
    registration.synced().await;
    diary.take();
    server.forget_history();
    server.put("n/b", "bad");
    server.put("n/new", "bad");
    server.delete("n/c");
    recover().await;
    assert_eq!(diary.take(), ["-? n/c 4", "= n/a 2→2", "= n/b 3→3"]);
    assert_eq!(running.informer.status().borrow().unreadable, 2);
    server.put("n/b", "2");
    settle().await;
    assert_eq!(diary.take(), ["= n/b 3→9"]);
}

/// Applies what the reflector has told so far; what the cache holds then.
async fn catch_up(informer: &SharedInformer<Thing>) -> Vec<String> {
    let processor = &informer.processor;
    while !processor.fifo.is_empty() {
        let applied = processor
            .fifo
            .pop(|deltas| processor.handle_deltas(deltas))
            .await;
        applied.unwrap();
    }
    let mut held: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|held| format!("{} {}", held.key(), held.resource_version()))
        .collect();
    held.sort_unstable();
    held
}

/// Proves informer/unreadable-in-relist.
#[tokio::test(start_paused = true)]
async fn what_a_relist_cannot_read_stays_as_the_cache_has_it_when_the_relist_comes_to_it() {
    let server = Server::new();
    for key in ["n/changed", "n/gone", "n/other"] {
        server.put(key, "1");
    }
    let informer = fastidious(&server);
    // The reflector alone: the test decides when the cache takes in what it read.
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
    assert_eq!(informer.processor.fifo.len(), 4, "nothing was taken in yet");
    assert_eq!(
        catch_up(&informer).await,
        ["n/changed 5", "n/new 6"],
        "newer, not cached yet; the others are of another UID"
    );
    stop.cancel();
    reflector.await.unwrap();
}

/// Proves informer/unreadable-in-relist.
#[tokio::test]
async fn an_unread_object_of_which_no_uid_is_known_stays_unless_it_was_deleted_before() {
    let informer = SharedInformer::new(Server::new());
    let fifo = &informer.processor.fifo;
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
