//! How a watch is opened, read, and given up.

use super::*;

/// Proves reflector/watch-timeout-jitter, reflector/bookmarks.
#[tokio::test(start_paused = true)]
async fn every_watch_takes_bookmarks_and_a_new_time_limit_between_five_and_ten_minutes() {
    let mut fake = Fake::new();
    for _ in 0..8 {
        fake = fake.watch([Said::Pause(2 * SECOND)]);
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

/// Proves reflector/foreign-objects, reflector/no-tables.
#[tokio::test(start_paused = true)]
async fn what_is_not_ours_is_passed_over_and_does_not_count() {
    let typed = |api_version: &str, kind: &str, version: &str| {
        let metadata = json!({"name": "x", "namespace": "n", "resourceVersion": version});
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Bytes::from(object.to_string())
    };
    let fake = Fake::new().list(page(&[], "10")).watch([
        Said::Event(WatchEvent::Added(typed("v1", "Secret", "11"))),
        Said::Event(WatchEvent::Deleted(typed("meta.k8s.io/v1", "Table", "12"))),
        Said::Pause(SECOND),
        Said::Break(SourceError::Transport("cut".into())),
    ]);
    let fake = fake.watch([
        Said::Event(WatchEvent::Added(typed("v1", "ConfigMap", "13"))),
        Said::Event(WatchEvent::Unknown {
            kind: "MOVED".into(),
            object: object("y", "14"),
        }),
        Said::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.told(), ["replace @10", "add x@13"]);
    assert_eq!(
        scene.calls()[1..],
        [r#"watch "10""#, r#"watch "10""#, r#"watch "14""#],
        "foreign objects leave the version alone, an unknown event moves it"
    );
    let status = scene.status.borrow().clone();
    assert_eq!(status.unreadable, 3);
    assert_eq!(
        status.last_unreadable.unwrap().to_string(),
        r#"n/y of configmaps at cluster scope: the event type "MOVED" is not known"#
    );
}

/// Proves reflector/version-follows-events, reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn an_unreadable_object_does_not_hold_the_others_up() {
    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new().list(page(&[], "10")).watch([
        Said::Event(WatchEvent::Modified(nameless)),
        Said::Event(WatchEvent::Added(Bytes::from_static(b"{"))),
        added("a", "12"),
        Said::Hang,
    ]);
    let scene = Scene::start(fake).after(SECOND).await;
    assert_eq!(scene.told(), ["replace @10", "add a@12"]);
    assert_eq!(scene.status.borrow().unreadable, 2);
    assert_eq!(scene.calls().len(), 2);

    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new().list(page(&[], "10")).watch([
        Said::Event(WatchEvent::Modified(nameless)),
        Said::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(2 * SECOND).await;
    assert_eq!(
        scene.calls()[2],
        r#"watch "11""#,
        "the version moved past it"
    );
}

/// Proves reflector/unreadable-deletion.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_read_is_made_good_by_a_list() {
    let nameless = Bytes::from_static(br#"{"metadata":{"resourceVersion":"11"}}"#);
    let fake = Fake::new()
        .list(page(&[("a", "1")], "10"))
        .watch([Said::Event(WatchEvent::Deleted(nameless)), Said::Hang])
        .list(page(&[], "12"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.told(), ["replace a@1 @10", "replace @12"]);
    assert_eq!(scene.calls()[2], r#"list "11""#);
}

/// Proves reflector/version-follows-events.
#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_does_not_take_one_from_its_first_objects() {
    let fake = Fake::new()
        .list(page(&[], ""))
        .watch([added("b", "9"), added("a", "3"), Said::Pause(SECOND)])
        .watch([
            added("a", "3"),
            bookmark("9"),
            added("c", "10"),
            Said::Pause(SECOND),
        ]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(
        scene.calls()[1..],
        [r#"watch """#, r#"watch """#, r#"watch "10""#]
    );
}

/// Proves reflector/silent-watch.
#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_silent_is_given_up_once_bookmarks_are_known_to_come() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        Said::Pause(60 * SECOND),
        bookmark("12"),
        Said::Hang,
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
async fn without_bookmarks_a_watch_ends_soon_after_its_own_time_limit() {
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
async fn resyncs_do_not_hide_silence() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([bookmark("12"), Said::Hang]);
    let set = |reflector: Subject| reflector.resync(30 * SECOND);
    let scene = Scene::with(fake, set).after(125 * SECOND).await;
    assert_eq!(scene.fake.times()[2] - scene.started, 120 * SECOND);
}

/// Proves reflector/resync.
#[tokio::test(start_paused = true)]
async fn resync_is_a_timer_of_the_watch_phase_and_asks_no_server() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([Said::Pause(25 * SECOND)])
        .watch([Said::Pause(25 * SECOND), error(410, "Expired")]);
    let set = |reflector: Subject| reflector.resync(20 * SECOND);
    let scene = Scene::with(fake, set).after(80 * SECOND).await;
    let times: Vec<u64> = scene
        .sink
        .times_of("resync")
        .iter()
        .map(|at| (*at - scene.started).as_secs())
        .collect();
    // Over both watches of the first pass; anew from the second pass, which begins after 50 s.
    assert_eq!(times[..2], [20, 40]);
    assert!((70..73).contains(&times[2]), "{times:?}");
    assert_eq!(scene.calls().len(), 5);

    let scene = Scene::start(Fake::new()).after(100 * SECOND).await;
    assert!(scene.sink.times_of("resync").is_empty());
}

/// Proves reflector/resync.
#[tokio::test(start_paused = true)]
async fn resync_goes_on_while_only_the_watch_is_retried() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([added("a", "11"), Said::Pause(SECOND)]);
    let fake = fake.always(|| None, || Some(refused()));
    let set = |reflector: Subject| reflector.resync(20 * SECOND);
    let scene = Scene::with(fake, set).after(61 * SECOND).await;
    assert_eq!(scene.sink.times_of("resync").len(), 3);
}

/// Proves reflector/backpressure.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_the_sink_has_no_room() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        bookmark("11"),
        Said::Pause(SECOND),
        added("a", "12"),
        Said::Pause(SECOND),
        added("b", "13"),
        Said::Hang,
    ]);
    let scene = Scene::start(fake).after(Duration::from_millis(500)).await;
    scene.sink.full.send_replace(true);
    sleep(300 * SECOND).await;
    // The event that was already awaited is taken; the next has to wait, and nobody calls it silence.
    assert_eq!(scene.told(), ["replace @10", "bookmark 11", "add a@12"]);
    assert_eq!(scene.calls().len(), 2);
    scene.sink.full.send_replace(false);
    let scene = scene.after(2 * SECOND).await;
    assert_eq!(scene.told()[3..], ["add b@13"]);
    assert_eq!(scene.calls().len(), 2);
    assert!(scene.stops_at_once().await);
}

/// Proves reflector/opaque-versions.
#[tokio::test(start_paused = true)]
async fn versions_need_not_be_numbers() {
    let fake = Fake::new()
        .list(page(&[], "v-a"))
        .watch([added("a", "v-b"), Said::Pause(SECOND)]);
    let scene = Scene::start(fake).after(2 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "v-a""#, r#"watch "v-b""#]
    );
}
