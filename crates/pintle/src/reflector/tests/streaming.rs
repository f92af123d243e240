//! Streaming lists.

use super::*;
use crate::{reflector::Phase, source::VersionMatch};

/// Proves reflector/watchlist-request, reflector/watchlist-atomic.
#[tokio::test(start_paused = true)]
async fn streaming_list_is_applied_at_its_marker() {
    let fake = Fake::streaming().watch([
        added("a", "1"),
        added("b", "2"),
        added("c", "3"),
        modified("a", "4"),
        deleted("b", "5"),
        Script::Pause(SECOND),
        marker("10"),
        added("d", "11"),
        Script::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(Duration::from_millis(500)).await;
    assert!(scene.events().is_empty(), "nothing before the marker");
    assert_eq!(scene.status_line(), "listing");
    let scene = scene.after(2 * SECOND).await;
    assert_eq!(scene.events(), ["replace a@4 c@3 @10", "add d@11"]);
    assert_eq!(scene.calls(), [r#"stream """#, r#"watch "11""#]);
    let options = &scene.fake.options()[0];
    assert!(options.send_initial_events && options.allow_watch_bookmarks);
    assert!((300..600).contains(&options.timeout.unwrap().as_secs()));
    assert_eq!((options.limit, &options.resource_version), (None, &None));
}

/// Proves reflector/watchlist-request, reflector/watchlist-failures.
#[tokio::test(start_paused = true)]
async fn second_streaming_list_requests_the_last_version() {
    let fake = Fake::streaming()
        .watch([marker("10"), added("a", "11"), error(410, "Expired")])
        .watch([marker("20"), Script::Hang]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#, r#"stream "11""#]);
    assert_eq!(scene.events(), ["replace @10", "add a@11", "replace @20"]);
}

/// Proves reflector/watchlist-failures, reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn rejected_streaming_list_falls_back_for_an_hour() {
    let fake = Fake::streaming()
        .watch_fails(api(422, "Invalid"))
        .list(page(&[("a", "1")], "10"))
        .watch([added("b", "11"), error(410, "Expired")])
        .list(page(&[], "20"))
        .watch([
            added("c", "21"),
            Script::Pause(250 * SECOND),
            error(410, "Expired"),
        ]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [
            r#"stream """#,
            r#"list "" limit 500"#,
            r#"watch "10""#,
            // No streaming list within the hour.
            r#"list "11""#,
            r#"watch "20""#
        ]
    );
    let times = scene.fake.times();
    assert_eq!(times[0], times[2]);
}

/// Proves reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn streaming_list_is_tried_again_after_an_hour() {
    let hour = 3600 * SECOND;
    let mut fake = Fake::streaming()
        .watch_fails(api(422, "Invalid"))
        .list(page(&[], "10"));
    for _ in 0..37 {
        fake = fake.watch([Script::Pause(100 * SECOND), bookmark("11")]);
    }
    fake = fake.watch([error(410, "Expired")]);
    let scene = Scene::start(fake).after(hour + 500 * SECOND).await;
    assert!(
        scene.calls().contains(&r#"stream "11""#.to_owned()),
        "{:?}",
        scene.calls()
    );
}

/// Proves reflector/watchlist-failures.
#[tokio::test(start_paused = true)]
async fn other_failures_fall_back_only_once() {
    for failure in [
        api(403, "Forbidden"),
        api(500, "InternalError"),
        api(404, "NotFound"),
    ] {
        let fake = Fake::streaming()
            .watch_fails(failure)
            .list(page(&[], "10"))
            .watch([added("a", "11"), error(410, "Expired")]);
        let scene = Scene::start(fake).after(3 * SECOND).await;
        assert_eq!(
            scene.calls()[..4],
            [
                r#"stream """#,
                r#"list "" limit 500"#,
                r#"watch "10""#,
                r#"stream "11""#
            ]
        );
    }
    let errors = [vec![error(500, "InternalError")], vec![]];
    for script in errors {
        let fake = Fake::streaming().watch(script).list(page(&[], "10"));
        let scene = Scene::start(fake).after(SECOND).await;
        assert_eq!(
            scene.calls(),
            [r#"stream """#, r#"list "" limit 500"#, r#"watch "10""#]
        );
    }
}

/// Proves reflector/watchlist-failures.
#[tokio::test(start_paused = true)]
async fn busy_server_gets_another_streaming_list_after_a_delay() {
    let fake = Fake::streaming()
        .watch_fails(api(429, "TooManyRequests"))
        .watch_fails(refused())
        .watch([error(429, "TooManyRequests")])
        .watch([marker("10"), Script::Hang]);
    let scene = Scene::start(fake).after(30 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#; 4]);
    let times = scene.fake.times();
    assert!(times[1] - times[0] >= Duration::from_millis(800));
    assert!(times[3] - times[2] >= Duration::from_millis(3200));
    assert!(scene.status.borrow().synced);
}

/// Proves reflector/watchlist-failures, reflector/backoff.
#[tokio::test(start_paused = true)]
async fn expired_version_is_dropped_once_then_backs_off() {
    let fake = Fake::streaming()
        .watch([marker("10"), added("a", "11"), error(410, "Expired")])
        .watch_fails(api(410, "Expired"))
        .watch([marker("20"), Script::Hang]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"stream """#, r#"stream "11""#, r#"stream """#]
    );
    let times = scene.fake.times();
    assert_eq!(times[1], times[2]);

    let fake = Fake::streaming().always(|| Some(api(410, "Expired")), || Some(api(410, "Expired")));
    let scene = Scene::start(fake).after(60 * SECOND).await;
    assert!(
        scene.calls().len() < 20,
        "{} calls in a minute",
        scene.calls().len()
    );
}

/// Proves reflector/watchlist-failures.
#[tokio::test(start_paused = true)]
async fn missing_marker_times_out() {
    let silent = Fake::streaming().watch([added("a", "1"), Script::Hang]);
    let scene = Scene::start(silent.list(page(&[("a", "1")], "10")))
        .after(16 * SECOND)
        .await;
    assert_eq!(
        scene.calls(),
        [r#"stream """#, r#"list "" limit 500"#, r#"watch "10""#]
    );
    assert_eq!(scene.fake.times()[1] - scene.started, 15 * SECOND);
    assert_eq!(scene.events(), ["replace a@1 @10"]);
    assert_eq!(scene.fake.open_watches(), 1);

    // A stream that never falls silent, such as one from a server without markers.
    let mut script = Vec::new();
    for n in 0..1000 {
        script.extend([modified("a", &n.to_string()), Script::Pause(SECOND)]);
    }
    let scene = Scene::start(Fake::streaming().watch(script))
        .after(121 * SECOND)
        .await;
    assert_eq!(scene.calls()[1], r#"list "" limit 500"#);
    assert_eq!(scene.fake.times()[1] - scene.started, 120 * SECOND);
    assert!(scene.status.borrow().synced);
}

/// Proves reflector/watchlist-failures, reflector/status.
#[tokio::test(start_paused = true)]
async fn status_explains_the_fallback_to_pages() {
    let fake = Fake::streaming().watch([Script::Hang]).list(Listed::Hang);
    let scene = Scene::start(fake).after(20 * SECOND).await;
    assert_eq!(
        scene.status_line(),
        "listing, after the streaming list did not end within 15s on configmaps at cluster scope \
         (streaming list)"
    );
    assert!(matches!(
        scene.status.borrow().phase,
        Phase::Listing {
            streaming: false,
            ..
        }
    ));
}

/// Proves reflector/watchlist-atomic.
#[tokio::test(start_paused = true)]
async fn plain_bookmark_is_not_a_marker() {
    let fake = Fake::streaming().watch([added("a", "1"), bookmark("5"), Script::Hang]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert!(scene.events().is_empty());
    assert!(!scene.status.borrow().synced);
}

/// Proves reflector/watchlist-failures.
#[tokio::test(start_paused = true)]
async fn stream_closed_before_its_marker_is_retried_once() {
    let cut = || [added("a", "1"), Script::Pause(2 * SECOND)];
    let fake = Fake::streaming()
        .watch(cut())
        .watch([added("b", "2"), marker("10"), Script::Hang]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#; 2]);
    assert_eq!(
        scene.events(),
        ["replace b@2 @10"],
        "objects of the first stream are discarded"
    );

    let fake = Fake::streaming()
        .watch(cut())
        .watch(cut())
        .list(page(&[("a", "1")], "10"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(
        scene.calls()[..3],
        [r#"stream """#, r#"stream """#, r#"list "" limit 500"#]
    );
}

/// Proves reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn streaming_lists_can_be_disabled() {
    let scene = Scene::start(Fake::new()).after(SECOND).await;
    assert_eq!(scene.calls(), [r#"list "" limit 500"#, r#"watch "1""#]);
    let set = |reflector: Subject| reflector.watch_list(false);
    let scene = Scene::with(Fake::streaming(), set).after(SECOND).await;
    assert_eq!(scene.calls(), [r#"list "" limit 500"#, r#"watch "1""#]);
}

/// Proves reflector/watchlist-atomic, reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn stream_closed_after_its_marker_continues_as_a_watch() {
    let fake = Fake::streaming().watch([marker("10"), Script::Pause(2 * SECOND)]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#, r#"watch "10""#]);
}

/// Proves reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn streaming_list_can_be_verified_with_a_list() {
    let verify = |reflector: Subject| reflector.verify_watch_lists(true);
    let stream =
        || Fake::streaming().watch([added("a", "1"), added("b", "2"), marker("10"), Script::Hang]);
    let fake = stream()
        .list(Listed::Fail(api(504, "Timeout")))
        .list(page(&[("b", "2"), ("a", "1")], "10"));
    let scene = Scene::with(fake, verify).after(2 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"stream """#, r#"list "10""#, r#"list "10""#]
    );
    assert_eq!(
        scene.fake.options()[1].resource_version_match,
        Some(VersionMatch::Exact)
    );
    assert_eq!(scene.events(), ["replace a@1 b@2 @10"]);

    for other in [
        page(&[("a", "1")], "10"),
        page(&[("a", "1"), ("b", "3")], "10"),
    ] {
        let fake = stream().list(other).list(Listed::Hang);
        let scene = Scene::with(fake, verify).after(SECOND).await;
        assert!(scene.events().is_empty());
        assert!(
            scene.status_line().contains("differ in n/b on configmaps"),
            "{}",
            scene.status_line()
        );
    }
}

/// Proves reflector/watchlist-optional.
#[test]
fn feature_gate_parses_like_go() {
    use crate::reflector::gate_value;
    assert_eq!(gate_value("false"), Some(false));
    assert_eq!(gate_value("True"), Some(true));
    assert_eq!(gate_value("maybe"), None);
}
