//! How failures are waited out and told.

use super::*;

/// Proves reflector/no-hot-loop, reflector/status, reflector/other-errors-relist.
#[tokio::test(start_paused = true)]
async fn each_failure_is_told_with_its_cause_and_followed_by_a_longer_wait() {
    let fake = Fake::new().always(|| Some(api(403, "Forbidden")), || None);
    let scene = Scene::start(fake).after(20 * SECOND).await;
    let says = scene.says();
    assert!(says.starts_with("retrying in "), "{says}");
    assert!(
        says.ends_with(" s because 403 Forbidden on configmaps at cluster scope (list): so it is"),
        "{says}"
    );
    let times = scene.fake.times();
    assert_eq!(times[0], scene.started, "the first try is immediate");
    for (pair, floor) in times.windows(2).zip([0.8, 1.6, 3.2]) {
        let wait = (pair[1] - pair[0]).as_secs_f64();
        assert!(
            (floor..floor * 2.0 + 0.01).contains(&wait),
            "{wait} for {floor}"
        );
    }
    assert!(!scene.status.borrow().synced);
    assert!(scene.told().is_empty());
}

/// Proves reflector/backoff-resets-after-health.
#[tokio::test(start_paused = true)]
async fn ten_minutes_of_outage_are_waited_out_at_the_longest_delay() {
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

/// Proves reflector/retry-open-without-list, reflector/backoff.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_or_busy_is_asked_for_the_watch_alone() {
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

/// Proves reflector/retry-open-without-list.
#[tokio::test(start_paused = true)]
async fn a_connection_that_fails_while_a_watch_is_opened_costs_no_list() {
    let mut unavailable = ApiError::new(503, "ServiceUnavailable", "starting");
    unavailable.retry_after = Some(SECOND);
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch_fails(SourceError::Transport("unexpected end".into()))
        .watch_fails(SourceError::Silent(SECOND))
        .watch_fails(unavailable.into());
    let scene = Scene::start(fake).after(20 * SECOND).await;
    let mut expected = vec![r#"list "" limit 500"#];
    expected.extend([r#"watch "10""#; 4]);
    assert_eq!(scene.calls(), expected);
    assert!(scene.fake.times()[4] - scene.started >= Duration::from_millis(5600));

    // Without being asked to come back, any other error leads to a list.
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch_fails(api(503, "ServiceUnavailable"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(scene.calls()[2], r#"list "10""#);
}

/// Proves reflector/retry-open-without-list.
#[tokio::test(start_paused = true)]
async fn too_many_requests_within_a_watch_cost_a_wait_but_no_list() {
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

/// Proves reflector/retry-after.
#[tokio::test(start_paused = true)]
async fn a_server_may_ask_for_a_longer_wait() {
    let mut busy = ApiError::new(429, "TooManyRequests", "");
    busy.retry_after = Some(40 * SECOND);
    let fake = Fake::new().list(page(&[], "10")).watch_fails(busy.into());
    let scene = Scene::start(fake).after(60 * SECOND).await;
    let times = scene.fake.times();
    assert_eq!((times[2] - times[1]).as_secs(), 40);
}

/// Proves reflector/internal-errors.
#[tokio::test(start_paused = true)]
async fn internal_errors_end_the_pass_unless_a_time_is_given() {
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

/// Proves reflector/internal-errors, reflector/short-watch-backs-off.
#[tokio::test(start_paused = true)]
async fn a_run_of_internal_errors_is_no_tight_loop_and_ends_in_a_list() {
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

/// Proves reflector/other-errors-relist.
#[tokio::test(start_paused = true)]
async fn an_object_the_server_lost_goes_with_the_next_list() {
    let fake = Fake::new()
        .list(page(&[("a", "1"), ("b", "2")], "10"))
        .watch([added("c", "11"), error(500, "StorageReadError")])
        .list(page(&[("a", "1")], "15"));
    let scene = Scene::start(fake).after(5 * SECOND).await;
    assert_eq!(
        scene.told(),
        ["replace a@1 b@2 @10", "add c@11", "replace a@1 @15"]
    );
}

/// Proves reflector/short-watch-backs-off.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_closed_at_once_costs_a_wait_and_a_list() {
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
    // One that told something, or lasted, is a normal end.
    for says in [vec![added("a", "11")], vec![Said::Pause(SECOND)]] {
        let fake = Fake::new().list(page(&[], "10")).watch(says);
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
async fn a_watch_that_always_tells_something_and_closes_is_not_reopened_in_a_tight_loop() {
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
        scene.says().contains("closed again and again"),
        "{}",
        scene.says()
    );
}

/// Proves reflector/resume-after-disconnect.
#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_replaced_at_once_and_without_a_list() {
    let fake = Fake::new().list(page(&[], "10")).watch([
        added("a", "11"),
        Said::Pause(10 * SECOND),
        Said::Break(SourceError::Transport("reset by peer".into())),
    ]);
    let scene = Scene::start(fake).after(11 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "10""#, r#"watch "11""#]
    );
    assert_eq!(scene.fake.times()[2] - scene.started, 10 * SECOND);
}

/// Proves reflector/no-hot-loop, reflector/prompt-stop.
#[tokio::test(start_paused = true)]
async fn stopping_is_prompt_in_every_phase() {
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
        assert!(scene.stops_at_once().await);
        sleep(300 * SECOND).await;
        assert_eq!(fake.calls().len(), calls, "asked after the end");
    }
}

/// Proves reflector/no-hot-loop.
#[tokio::test(start_paused = true)]
async fn a_stopped_reflector_never_asks() {
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
