//! Watches: how they are opened, read and closed.

use super::*;

/// Proves reflector/watch-request.
#[tokio::test(start_paused = true)]
async fn watches_request_bookmarks_and_a_random_timeout() {
    let mut fake = Fake::new();
    for _ in 0..8 {
        fake = fake.watch([Script::Pause(2 * SECOND)]);
    }
    let scene = Scene::start(fake.clone()).after(60 * SECOND).await;
    let watches = &scene.fake.options()[1..];
    assert!(watches.iter().all(|options| options.allow_watch_bookmarks));
    let limits: Vec<u64> = watches
        .iter()
        .map(|options| options.timeout.unwrap().as_secs())
        .collect();
    assert!(
        limits.iter().all(|limit| (300..600).contains(limit)),
        "{limits:?}"
    );
    assert!(limits.windows(2).any(|pair| pair[0] != pair[1]));

    for (minimum, range) in [(60, 300..600), (1000, 1000..2000)] {
        let set = |reflector: Subject| reflector.min_watch_timeout(minimum * SECOND);
        let scene = Scene::with(Fake::new(), set).after(SECOND).await;
        let limit = scene.fake.options()[1].timeout.unwrap().as_secs();
        assert!(range.contains(&limit), "{limit}");
    }
}

/// Proves reflector/foreign-objects, reflector/not-a-list.
#[tokio::test(start_paused = true)]
async fn foreign_objects_are_skipped() {
    let typed = |api_version: &str, kind: &str, version: &str| {
        let metadata = json!({"name": "x", "namespace": "n", "resourceVersion": version});
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Bytes::from(object.to_string())
    };
    let fake = Fake::new().list(page(&[], "10")).watch([
        Script::Event(WatchEvent::Added(typed("v1", "Secret", "11"))),
        Script::Event(WatchEvent::Deleted(typed("meta.k8s.io/v1", "Table", "12"))),
        Script::Pause(SECOND),
        Script::Break(SourceError::Transport("cut".into())),
    ]);
    let fake = fake.watch([
        Script::Event(WatchEvent::Added(typed("v1", "ConfigMap", "13"))),
        Script::Event(WatchEvent::Unknown {
            kind: "MOVED".into(),
            object: object("y", "14"),
        }),
        Script::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.events(), ["replace @10", "add x@13"]);
    assert_eq!(
        scene.calls()[1..],
        [r#"watch "10""#, r#"watch "10""#, r#"watch "14""#],
        "foreign objects do not change the version, unknown events do"
    );
    let status = scene.status.borrow().clone();
    assert_eq!(status.unreadable, 3);
    assert_eq!(
        status.last_unreadable.unwrap().to_string(),
        r#"n/y of configmaps at cluster scope: unknown event type "MOVED""#
    );
}

/// Proves reflector/version-follows-events, reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn unreadable_event_does_not_affect_the_others() {
    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new().list(page(&[], "10")).watch([
        Script::Event(WatchEvent::Modified(nameless)),
        Script::Event(WatchEvent::Added(Bytes::from_static(b"{"))),
        added("a", "12"),
        Script::Hang,
    ]);
    let scene = Scene::start(fake).after(SECOND).await;
    assert_eq!(scene.events(), ["replace @10", "add a@12"]);
    assert_eq!(scene.status.borrow().unreadable, 2);
    assert_eq!(scene.calls().len(), 2);

    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new().list(page(&[], "10")).watch([
        Script::Event(WatchEvent::Modified(nameless)),
        Script::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(2 * SECOND).await;
    assert_eq!(scene.calls()[2], r#"watch "11""#, "its version counts");
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn unreadable_deletion_leads_to_a_list() {
    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new()
        .list(page(&[("a", "1")], "10"))
        .watch([Script::Event(WatchEvent::Deleted(nameless)), Script::Hang])
        .list(page(&[], "12"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.events(), ["replace a@1 @10", "replace @12"]);
    assert_eq!(scene.calls()[2], r#"list "11""#);
}

/// Proves reflector/version-follows-events.
#[tokio::test(start_paused = true)]
async fn initial_objects_do_not_set_the_version() {
    let fake = Fake::new()
        .list(page(&[], ""))
        .watch([added("b", "9"), added("a", "3"), Script::Pause(SECOND)])
        .watch([
            added("a", "3"),
            bookmark("9"),
            added("c", "10"),
            Script::Pause(SECOND),
        ]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(
        scene.calls()[1..],
        [r#"watch """#, r#"watch """#, r#"watch "10""#]
    );
}

/// Proves reflector/silent-watch.
#[tokio::test(start_paused = true)]
async fn silent_watch_is_reopened_if_the_server_sends_bookmarks() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        Script::Pause(60 * SECOND),
        bookmark("12"),
        Script::Hang,
    ]);
    let scene = Scene::start(fake).after(181 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "10""#, r#"watch "12""#]
    );
    assert_eq!(scene.fake.times()[2] - scene.started, 180 * SECOND);
    assert!(
        scene
            .metrics
            .encode()
            .contains("silent_watches_total{resource=\"configmaps\"} 1")
    );
    assert_eq!(scene.fake.open_watches(), 1);
}

/// Proves reflector/silent-watch.
#[tokio::test(start_paused = true)]
async fn without_bookmarks_a_watch_ends_after_its_own_timeout() {
    let scene = Scene::start(Fake::new()).after(1000 * SECOND).await;
    let (times, options) = (scene.fake.times(), scene.fake.options());
    assert_eq!(
        times[2] - times[1],
        options[1].timeout.unwrap() + 30 * SECOND
    );
    assert_eq!(scene.calls()[2], r#"watch "1""#);
}

/// Proves reflector/silent-watch.
#[tokio::test(start_paused = true)]
async fn resync_does_not_reset_the_watchdog() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([bookmark("12"), Script::Hang]);
    let set = |reflector: Subject| reflector.resync(30 * SECOND);
    let scene = Scene::with(fake, set).after(125 * SECOND).await;
    assert_eq!(scene.fake.times()[2] - scene.started, 120 * SECOND);
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn resync_runs_during_the_watch_phase_without_requests() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([Script::Pause(25 * SECOND)])
        .watch([Script::Pause(25 * SECOND), error(410, "Expired")]);
    let set = |reflector: Subject| reflector.resync(20 * SECOND);
    let scene = Scene::with(fake, set).after(80 * SECOND).await;
    let times: Vec<u64> = scene
        .sink
        .times_of("resync")
        .iter()
        .map(|at| (*at - scene.started).as_secs())
        .collect();
    // The period spans both watches of the first pass. The second pass, which starts at 50 s,
    // restarts it.
    assert_eq!(times[..2], [20, 40]);
    assert!((70..73).contains(&times[2]), "{times:?}");
    assert_eq!(scene.calls().len(), 5);

    let scene = Scene::start(Fake::new()).after(100 * SECOND).await;
    assert!(scene.sink.times_of("resync").is_empty());
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn resync_continues_while_a_watch_is_retried() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([added("a", "11"), Script::Pause(SECOND)]);
    let fake = fake.always(|| None, || Some(refused()));
    let set = |reflector: Subject| reflector.resync(20 * SECOND);
    let scene = Scene::with(fake, set).after(61 * SECOND).await;
    assert_eq!(scene.sink.times_of("resync").len(), 3);
}

/// Proves reflector/backpressure.
#[tokio::test(start_paused = true)]
async fn full_sink_stops_reading() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        bookmark("11"),
        Script::Pause(SECOND),
        added("a", "12"),
        Script::Pause(SECOND),
        added("b", "13"),
        Script::Hang,
    ]);
    let scene = Scene::start(fake).after(Duration::from_millis(500)).await;
    scene.sink.full.send_replace(true);
    sleep(300 * SECOND).await;
    // The event that was already awaited is delivered. The next one waits, which does not count as
    // silence.
    assert_eq!(scene.events(), ["replace @10", "bookmark 11", "add a@12"]);
    assert_eq!(scene.calls().len(), 2);
    scene.sink.full.send_replace(false);
    let scene = scene.after(2 * SECOND).await;
    assert_eq!(scene.events()[3..], ["add b@13"]);
    assert_eq!(scene.calls().len(), 2);
    assert!(scene.stops_immediately().await);
}

/// Proves cache/version.
#[tokio::test(start_paused = true)]
async fn versions_may_be_opaque() {
    let fake = Fake::new()
        .list(page(&[], "v-a"))
        .watch([added("a", "v-b"), Script::Pause(SECOND)]);
    let scene = Scene::start(fake).after(2 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "v-a""#, r#"watch "v-b""#]
    );
}
