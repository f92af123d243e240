//! Lists that come as the beginning of a watch.

use super::*;
use crate::{reflector::Phase, source::VersionMatch};

/// Proves reflector/watchlist-request, reflector/watchlist-atomic.
#[tokio::test(start_paused = true)]
async fn a_streaming_list_replaces_everything_at_its_marker_and_goes_on() {
    let fake = Fake::streaming().watch([
        added("a", "1"),
        added("b", "2"),
        added("c", "3"),
        modified("a", "4"),
        deleted("b", "5"),
        Said::Pause(SECOND),
        marker("10"),
        added("d", "11"),
        Said::Pause(SECOND),
    ]);
    let scene = Scene::start(fake).after(Duration::from_millis(500)).await;
    assert!(scene.told().is_empty(), "nothing before the marker");
    assert_eq!(scene.says(), "listing");
    let scene = scene.after(2 * SECOND).await;
    assert_eq!(scene.told(), ["replace a@4 c@3 @10", "add d@11"]);
    assert_eq!(scene.calls(), [r#"stream """#, r#"watch "11""#]);
    let options = &scene.fake.options()[0];
    assert!(options.send_initial_events && options.allow_watch_bookmarks);
    assert!((300..600).contains(&options.timeout.unwrap().as_secs()));
    assert_eq!((options.limit, &options.resource_version), (None, &None));
}

/// Proves reflector/watchlist-request, reflector/watchlist-falls-back.
#[tokio::test(start_paused = true)]
async fn a_second_streaming_list_asks_for_the_last_version() {
    let fake = Fake::streaming()
        .watch([marker("10"), added("a", "11"), error(410, "Expired")])
        .watch([marker("20"), Said::Hang]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#, r#"stream "11""#]);
    assert_eq!(scene.told(), ["replace @10", "add a@11", "replace @20"]);
}

/// Proves reflector/watchlist-falls-back, reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn a_refusal_leads_to_pages_in_the_same_pass_and_is_remembered_for_an_hour() {
    let fake = Fake::streaming()
        .watch_fails(api(422, "Invalid"))
        .list(page(&[("a", "1")], "10"))
        .watch([added("b", "11"), error(410, "Expired")])
        .list(page(&[], "20"))
        .watch([
            added("c", "21"),
            Said::Pause(250 * SECOND),
            error(410, "Expired"),
        ]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [
            r#"stream """#,
            r#"list "" limit 500"#,
            r#"watch "10""#,
            // Not asked to stream again so soon.
            r#"list "11""#,
            r#"watch "20""#
        ]
    );
    let times = scene.fake.times();
    assert_eq!(times[0], times[2]);
}

/// Proves reflector/watchlist-optional.
#[tokio::test(start_paused = true)]
async fn an_hour_later_a_server_is_asked_to_stream_again() {
    let hour = 3600 * SECOND;
    let mut fake = Fake::streaming()
        .watch_fails(api(422, "Invalid"))
        .list(page(&[], "10"));
    for _ in 0..37 {
        fake = fake.watch([Said::Pause(100 * SECOND), bookmark("11")]);
    }
    fake = fake.watch([error(410, "Expired")]);
    let scene = Scene::start(fake).after(hour + 500 * SECOND).await;
    assert!(
        scene.calls().contains(&r#"stream "11""#.to_owned()),
        "{:?}",
        scene.calls()
    );
}

/// Proves reflector/watchlist-falls-back.
#[tokio::test(start_paused = true)]
async fn other_failures_lead_to_pages_too_but_are_not_remembered() {
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
    for says in errors {
        let fake = Fake::streaming().watch(says).list(page(&[], "10"));
        let scene = Scene::start(fake).after(SECOND).await;
        assert_eq!(
            scene.calls(),
            [r#"stream """#, r#"list "" limit 500"#, r#"watch "10""#]
        );
    }
}

/// Proves reflector/watchlist-retry.
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_to_stream_again_after_a_wait() {
    let fake = Fake::streaming()
        .watch_fails(api(429, "TooManyRequests"))
        .watch_fails(refused())
        .watch([error(429, "TooManyRequests")])
        .watch([marker("10"), Said::Hang]);
    let scene = Scene::start(fake).after(30 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#; 4]);
    let times = scene.fake.times();
    assert!(times[1] - times[0] >= Duration::from_millis(800));
    assert!(times[3] - times[2] >= Duration::from_millis(3200));
    assert!(scene.status.borrow().synced);
}

/// Proves reflector/watchlist-retry, reflector/no-hot-loop.
#[tokio::test(start_paused = true)]
async fn an_expired_version_is_dropped_once_and_an_expired_newest_ends_in_a_wait() {
    let fake = Fake::streaming()
        .watch([marker("10"), added("a", "11"), error(410, "Expired")])
        .watch_fails(api(410, "Expired"))
        .watch([marker("20"), Said::Hang]);
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

/// Proves reflector/watchlist-falls-back, reflector/watchlist-silence-warns.
#[tokio::test(start_paused = true)]
async fn a_marker_that_never_comes_is_waited_for_so_long_and_no_longer() {
    let silent = Fake::streaming().watch([added("a", "1"), Said::Hang]);
    let scene = Scene::start(silent.list(page(&[("a", "1")], "10")))
        .after(16 * SECOND)
        .await;
    assert_eq!(
        scene.calls(),
        [r#"stream """#, r#"list "" limit 500"#, r#"watch "10""#]
    );
    assert_eq!(scene.fake.times()[1] - scene.started, 15 * SECOND);
    assert_eq!(scene.told(), ["replace a@1 @10"]);
    assert_eq!(scene.fake.open_watches(), 1);

    // A stream that never pauses, such as that of a server which knows no markers.
    let mut says = Vec::new();
    for n in 0..1000 {
        says.extend([modified("a", &n.to_string()), Said::Pause(SECOND)]);
    }
    let scene = Scene::start(Fake::streaming().watch(says))
        .after(121 * SECOND)
        .await;
    assert_eq!(scene.calls()[1], r#"list "" limit 500"#);
    assert_eq!(scene.fake.times()[1] - scene.started, 120 * SECOND);
    assert!(scene.status.borrow().synced);
}

/// Proves reflector/watchlist-falls-back, reflector/status.
#[tokio::test(start_paused = true)]
async fn while_pages_are_read_instead_the_status_says_why() {
    let fake = Fake::streaming().watch([Said::Hang]).list(Listed::Hang);
    let scene = Scene::start(fake).after(20 * SECOND).await;
    assert_eq!(
        scene.says(),
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
async fn a_plain_bookmark_is_no_marker() {
    let fake = Fake::streaming().watch([added("a", "1"), bookmark("5"), Said::Hang]);
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert!(scene.told().is_empty());
    assert!(!scene.status.borrow().synced);
}

/// Proves reflector/watchlist-falls-back.
#[tokio::test(start_paused = true)]
async fn a_stream_closed_before_its_marker_is_tried_once_more_and_then_pages_are_read() {
    let cut = || [added("a", "1"), Said::Pause(2 * SECOND)];
    let fake = Fake::streaming()
        .watch(cut())
        .watch([added("b", "2"), marker("10"), Said::Hang]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#; 2]);
    assert_eq!(
        scene.told(),
        ["replace b@2 @10"],
        "what the first stream told is forgotten"
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
async fn a_source_or_a_user_can_do_without_streaming_lists() {
    let scene = Scene::start(Fake::new()).after(SECOND).await;
    assert_eq!(scene.calls(), [r#"list "" limit 500"#, r#"watch "1""#]);
    let set = |reflector: Subject| reflector.watch_list(false);
    let scene = Scene::with(Fake::streaming(), set).after(SECOND).await;
    assert_eq!(scene.calls(), [r#"list "" limit 500"#, r#"watch "1""#]);
}

/// Proves reflector/watchlist-atomic, reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn a_stream_that_closes_after_its_marker_is_followed_by_a_plain_watch() {
    let fake = Fake::streaming().watch([marker("10"), Said::Pause(2 * SECOND)]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(scene.calls(), [r#"stream """#, r#"watch "10""#]);
}

/// Proves reflector/watchlist-verify.
#[tokio::test(start_paused = true)]
async fn a_streaming_list_can_be_checked_against_a_list() {
    let verify = |reflector: Subject| reflector.verify_watch_lists(true);
    let stream =
        || Fake::streaming().watch([added("a", "1"), added("b", "2"), marker("10"), Said::Hang]);
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
    assert_eq!(scene.told(), ["replace a@1 b@2 @10"]);

    for other in [
        page(&[("a", "1")], "10"),
        page(&[("a", "1"), ("b", "3")], "10"),
    ] {
        let fake = stream().list(other).list(Listed::Hang);
        let scene = Scene::with(fake, verify).after(SECOND).await;
        assert!(scene.told().is_empty());
        assert!(
            scene.says().contains("differ in n/b on configmaps"),
            "{}",
            scene.says()
        );
    }
}

/// Proves reflector/watchlist-optional.
#[test]
fn a_feature_gate_is_read_as_go_reads_it() {
    use crate::reflector::gate_value;
    assert_eq!(gate_value("false"), Some(false));
    assert_eq!(gate_value("True"), Some(true));
    assert_eq!(gate_value("maybe"), None);
}
