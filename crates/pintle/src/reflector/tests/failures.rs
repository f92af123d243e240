//! Failures: back-off and reporting.

use super::*;

/// Proves reflector/backoff, reflector/status, reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn failures_are_reported_and_back_off() {
    let fake = Fake::new().always(|| Some(api(403, "Forbidden")), || None);
    let scene = Scene::start(fake).after(20 * SECOND).await;
    let line = scene.status_line();
    assert!(line.starts_with("retrying in "), "{line}");
    assert!(
        line.ends_with(" s because 403 Forbidden on configmaps at cluster scope (list): reason"),
        "{line}"
    );
    let times = scene.fake.times();
    assert_eq!(times[0], scene.started, "the first attempt is immediate");
    for (pair, floor) in times.windows(2).zip([0.8, 1.6, 3.2]) {
        let wait = (pair[1] - pair[0]).as_secs_f64();
        assert!(
            (floor..floor * 2.0 + 0.01).contains(&wait),
            "{wait} for {floor}"
        );
    }
    assert!(!scene.status.borrow().synced);
    assert!(scene.events().is_empty());
}

/// Proves reflector/backoff.
#[tokio::test(start_paused = true)]
async fn long_outage_retries_at_the_longest_delay() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([error(500, "InternalError")])
        .always(|| Some(refused()), || Some(refused()));
    let scene = Scene::start(fake).after(600 * SECOND).await;
    let times = scene.fake.times();
    let late = times
        .windows(2)
        .filter(|pair| pair[0] - scene.started > 120 * SECOND);
    let waits: Vec<Duration> = late.map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.len() > 5);
    assert!(waits.iter().all(|wait| *wait >= 30 * SECOND), "{waits:?}");
}

/// Proves reflector/watch-errors, reflector/backoff.
#[tokio::test(start_paused = true)]
async fn only_the_watch_is_retried_while_the_server_is_down() {
    for failure in [refused, || api(429, "TooManyRequests")] {
        let mut fake = Fake::new().list(page(&[], "10"));
        for _ in 0..5 {
            fake = fake.watch_fails(failure());
        }
        let scene = Scene::start(fake).after(120 * SECOND).await;
        let mut expected = vec![r#"list "" limit 500"#];
        expected.extend([r#"watch "10""#; 6]);
        assert_eq!(scene.calls(), expected);
        let times = scene.fake.times();
        for (pair, floor) in times[1..].windows(2).zip([0.8, 1.6, 3.2, 6.4, 12.8]) {
            let wait = (pair[1] - pair[0]).as_secs_f64();
            assert!(
                (floor..floor * 2.0 + 0.01).contains(&wait),
                "{wait} for {floor}"
            );
        }
    }
}

/// Proves reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn connection_failure_on_open_does_not_relist() {
    let mut unavailable = ApiError::new(503, "ServiceUnavailable", "starting");
    unavailable.retry_after = Some(SECOND);
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch_fails(SourceError::Transport("unexpected end".into()))
        .watch_fails(SourceError::IdleTimeout(SECOND))
        .watch_fails(unavailable.into());
    let scene = Scene::start(fake).after(20 * SECOND).await;
    let mut expected = vec![r#"list "" limit 500"#];
    expected.extend([r#"watch "10""#; 4]);
    assert_eq!(scene.calls(), expected);
    assert!(scene.fake.times()[4] - scene.started >= Duration::from_millis(5600));

    // Without `Retry-After`, any other error leads to a list.
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch_fails(api(503, "ServiceUnavailable"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.calls()[2], r#"list "10""#);
}

/// Proves reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn throttled_watch_backs_off_without_a_list() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([added("a", "12"), error(429, "TooManyRequests")]);
    let scene = Scene::start(fake).after(10 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "10""#, r#"watch "12""#]
    );
    let times = scene.fake.times();
    assert!(times[2] - times[1] >= Duration::from_millis(800));
}

/// Proves reflector/backoff.
#[tokio::test(start_paused = true)]
async fn retry_after_extends_the_delay() {
    let mut busy = ApiError::new(429, "TooManyRequests", "");
    busy.retry_after = Some(40 * SECOND);
    let fake = Fake::new().list(page(&[], "10")).watch_fails(busy.into());
    let scene = Scene::start(fake).after(60 * SECOND).await;
    let times = scene.fake.times();
    assert_eq!((times[2] - times[1]).as_secs(), 40);
}

/// Proves reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn internal_error_relists_unless_a_duration_is_set() {
    let fails = || {
        Fake::new()
            .list(page(&[], "10"))
            .watch([error(500, "InternalError")])
    };
    let scene = Scene::start(fails()).after(5 * SECOND).await;
    assert_eq!(
        scene.calls()[1..],
        [r#"watch "10""#, r#"list "10""#, r#"watch "1""#]
    );

    let set = |reflector: Subject| reflector.max_internal_error_retry(60 * SECOND);
    let scene = Scene::with(fails(), set).after(5 * SECOND).await;
    assert_eq!(scene.calls()[1..], [r#"watch "10""#, r#"watch "10""#]);
    let times = scene.fake.times();
    assert_eq!(times[1], times[2]);
}

/// Proves reflector/watch-errors, reflector/short-watch-backs-off.
#[tokio::test(start_paused = true)]
async fn run_of_internal_errors_backs_off_and_ends_in_a_list() {
    let mut fake = Fake::new().list(page(&[], "10"));
    for _ in 0..20 {
        fake = fake.watch([error(500, "InternalError")]);
    }
    let set = |reflector: Subject| reflector.max_internal_error_retry(20 * SECOND);
    let scene = Scene::with(fake, set).after(150 * SECOND).await;
    let calls = scene.calls();
    let second_list = calls
        .iter()
        .skip(1)
        .position(|call| call.starts_with("list"))
        .unwrap();
    assert!((4..10).contains(&second_list), "{calls:?}");
}

/// Proves reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn object_lost_by_the_server_disappears_on_relist() {
    let fake = Fake::new()
        .list(page(&[("a", "1"), ("b", "2")], "10"))
        .watch([added("c", "11"), error(500, "StorageReadError")])
        .list(page(&[("a", "1")], "15"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(
        scene.events(),
        ["replace a@1 b@2 @10", "add c@11", "replace a@1 @15"]
    );
}

/// Proves reflector/short-watch-backs-off.
#[tokio::test(start_paused = true)]
async fn watch_closed_immediately_backs_off_and_relists() {
    let fake = Fake::new().list(page(&[], "10")).watch([]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [
            r#"list "" limit 500"#,
            r#"watch "10""#,
            r#"list "10""#,
            r#"watch "1""#
        ]
    );
    // A watch with events, or one that lasted, ended normally.
    for script in [vec![added("a", "11")], vec![Script::Pause(SECOND)]] {
        let fake = Fake::new().list(page(&[], "10")).watch(script);
        let scene = Scene::start(fake).after(3 * SECOND).await;
        assert_eq!(
            scene
                .calls()
                .iter()
                .filter(|call| call.starts_with("list"))
                .count(),
            1
        );
    }
}

/// Proves reflector/short-watch-backs-off.
#[tokio::test(start_paused = true)]
async fn short_watches_with_events_are_not_a_hot_loop() {
    let mut fake = Fake::new().list(page(&[], "10"));
    for _ in 0..1000 {
        fake = fake.watch([bookmark("10")]);
    }
    let scene = Scene::start(fake).after(60 * SECOND).await;
    let calls = scene.calls();
    assert!(calls.len() < 20, "{} calls", calls.len());
    assert_eq!(
        calls.iter().filter(|call| call.starts_with("list")).count(),
        1
    );
    assert!(
        scene.status_line().contains("keeps closing the watch"),
        "{}",
        scene.status_line()
    );
}

/// Proves reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn broken_connection_resumes_immediately_without_a_list() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        added("a", "11"),
        Script::Pause(10 * SECOND),
        Script::Break(SourceError::Transport("reset by peer".into())),
    ]);
    let scene = Scene::start(fake).after(11 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "10""#, r#"watch "11""#]
    );
    assert_eq!(scene.fake.times()[2] - scene.started, 10 * SECOND);
}

/// Proves reflector/backoff, reflector/prompt-stop.
#[tokio::test(start_paused = true)]
async fn stop_is_prompt_in_every_phase() {
    let waiting_to_list = Fake::new().always(|| Some(api(403, "Forbidden")), || None);
    let waiting_to_watch = Fake::new().always(|| None, || Some(refused()));
    let waiting_to_stream = Fake::streaming().always(|| None, || Some(refused()));
    let watching = Fake::new();
    let streaming = Fake::streaming();
    for fake in [
        waiting_to_list,
        waiting_to_watch,
        waiting_to_stream,
        watching,
        streaming,
    ] {
        let scene = Scene::start(fake).after(30 * SECOND).await;
        let calls = scene.calls().len();
        let fake = scene.fake.clone();
        assert!(scene.stops_immediately().await);
        sleep(300 * SECOND).await;
        assert_eq!(fake.calls().len(), calls, "request after the stop");
    }
}

/// Proves reflector/backoff.
#[tokio::test(start_paused = true)]
async fn stopped_reflector_sends_no_request() {
    let (sink, fake, stop) = (
        Arc::new(Recorder::default()),
        Fake::new(),
        CancellationToken::new(),
    );
    stop.cancel();
    Reflector::new(fake.clone(), Reader::new(), sink)
        .run(&stop)
        .await;
    assert!(fake.calls().is_empty());
}
