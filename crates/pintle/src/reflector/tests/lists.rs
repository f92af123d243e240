//! Lists: which are requested, and how they are applied.

use super::*;
use crate::reflector::Phase;

/// Proves reflector/list-then-watch, reflector/version-follows-events, reflector/watch-request.
/// Proves reflector/status.
#[tokio::test(start_paused = true)]
async fn watch_starts_at_the_version_of_the_list() {
    let fake = Fake::new()
        .list(page(&[("a", "5"), ("b", "7")], "10"))
        .watch([
            modified("a", "20"),
            bookmark("30"),
            deleted("b", "40"),
            added("c", "50"),
            Script::Pause(2 * SECOND),
        ]);
    let scene = Scene::start(fake).after(3 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [r#"list "" limit 500"#, r#"watch "10""#, r#"watch "50""#]
    );
    assert_eq!(
        scene.events(),
        [
            "replace a@5 b@7 @10",
            "update a@20",
            "bookmark 30",
            "delete b@40",
            "add c@50"
        ]
    );
    assert_eq!(scene.status_line(), "watching from resourceVersion 50");
    assert!(scene.status.borrow().synced);
}

/// Proves reflector/list-version, reflector/backoff.
#[tokio::test(start_paused = true)]
async fn relist_requests_the_last_version_first() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([
            added("a", "20"),
            Script::Pause(SECOND),
            error(410, "Expired"),
        ])
        .list(page(&[("a", "20")], "25"));
    let scene = Scene::start(fake).after(4 * SECOND).await;
    assert_eq!(
        scene.calls(),
        [
            r#"list "" limit 500"#,
            r#"watch "10""#,
            r#"list "20""#,
            r#"watch "25""#
        ]
    );
    let times = scene.fake.times();
    assert!(times[2] - times[1] >= SECOND + Duration::from_millis(800));
}

/// Proves reflector/list-version.
#[tokio::test(start_paused = true)]
async fn list_at_an_expired_version_is_repeated_without_one() {
    for reason in ["Expired", "Gone"] {
        let fake = Fake::new()
            .list(page(&[], "10"))
            .watch([error(410, "Expired")])
            .list(Listed::Fail(api(410, reason)))
            .list(page(&[], "30"))
            .watch([error(410, "Expired")]);
        let scene = Scene::start(fake).after(10 * SECOND).await;
        assert_eq!(
            scene.calls(),
            [
                r#"list "" limit 500"#,
                r#"watch "10""#,
                r#"list "10""#,
                r#"list "" limit 500"#,
                r#"watch "30""#,
                // The list succeeded, so its version can be requested again.
                r#"list "30""#,
                r#"watch "1""#,
            ]
        );
        let times = scene.fake.times();
        assert_eq!(times[2], times[3]);
    }
}

/// Proves reflector/list-version, reflector/backoff.
#[tokio::test(start_paused = true)]
async fn failed_consistent_list_backs_off_and_stays_consistent() {
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([error(410, "Expired")])
        .list(Listed::Fail(api(410, "Expired")))
        .list(Listed::Fail(api(410, "Expired")))
        .list(Listed::Fail(api(410, "Expired")));
    let scene = Scene::start(fake).after(20 * SECOND).await;
    assert_eq!(
        scene.calls()[2..],
        [
            r#"list "10""#,
            r#"list "" limit 500"#,
            r#"list "" limit 500"#,
            r#"list "" limit 500"#,
            r#"watch "1""#
        ]
    );
    let times = scene.fake.times();
    assert!(
        times[4] - times[3] >= Duration::from_millis(1600),
        "{:?}",
        times[4] - times[3]
    );
}

/// Proves reflector/list-version.
#[tokio::test(start_paused = true)]
async fn too_large_version_is_recognised_in_three_dialects() {
    let too_large = |message: &str, cause: (&str, &str)| {
        let mut error = ApiError::new(504, "Timeout", message);
        error.causes = vec![(cause.0.into(), cause.1.into())];
        Listed::Fail(error.into())
    };
    for answer in [
        too_large("wait", ("ResourceVersionTooLarge", "")),
        too_large("wait", ("", "Too large resource version")),
        too_large(
            "Timeout: Too large resource version: 20, current: 1",
            ("", ""),
        ),
    ] {
        let fake = Fake::new()
            .list(page(&[], "10"))
            .watch([error(410, "Expired")])
            .list(answer)
            .list(page(&[], "30"));
        let scene = Scene::start(fake).after(10 * SECOND).await;
        assert_eq!(
            scene.calls()[2..],
            [r#"list "10""#, r#"list "" limit 500"#, r#"watch "30""#]
        );
    }
    // Any other timeout is not about the version.
    let fake = Fake::new()
        .list(page(&[], "10"))
        .watch([error(410, "Expired")])
        .list(too_large("slow", ("", "")));
    let scene = Scene::start(fake).after(10 * SECOND).await;
    assert_eq!(
        scene.calls()[2..],
        [r#"list "10""#, r#"list "10""#, r#"watch "1""#]
    );
}

/// Proves reflector/pages.
#[tokio::test(start_paused = true)]
async fn only_consistent_lists_are_paged_by_default() {
    let fake = || {
        Fake::new()
            .list(page(&[], "10"))
            .watch([error(410, "Expired")])
    };
    let scene = Scene::start(fake()).after(5 * SECOND).await;
    assert_eq!(scene.calls()[0], r#"list "" limit 500"#);
    assert_eq!(scene.calls()[2], r#"list "10""#);
    let scene = Scene::with(fake(), |reflector| reflector.page_size(7))
        .after(5 * SECOND)
        .await;
    assert_eq!(scene.calls()[0], r#"list "" limit 7"#);
    assert_eq!(scene.calls()[2], r#"list "10" limit 7"#);
}

/// Proves reflector/pages.
#[tokio::test(start_paused = true)]
async fn pages_form_one_list_and_expired_token_restarts_it() {
    let first = |token| Listed::Page {
        items: vec![object("a", "1")],
        version: "10",
        token,
    };
    let fake = Fake::new()
        .list(first(Some("t")))
        .list(page(&[("b", "2")], "11"));
    let scene = Scene::start(fake).after(SECOND).await;
    assert_eq!(
        scene.calls(),
        [
            r#"list "" limit 500"#,
            r#"list "" limit 500 continue t"#,
            r#"watch "10""#
        ]
    );
    assert_eq!(scene.events(), ["replace a@1 b@2 @10"]);

    let fake = Fake::new()
        .list(first(Some("t")))
        .list(Listed::Fail(api(410, "Expired")))
        .list(page(&[("c", "3")], "12"));
    let scene = Scene::start(fake).after(SECOND).await;
    assert_eq!(scene.calls()[2..], [r#"list """#, r#"watch "12""#]);
    assert_eq!(scene.events(), ["replace c@3 @12"]);
}

/// Proves reflector/prompt-stop.
#[tokio::test(start_paused = true)]
async fn hanging_list_does_not_delay_the_stop() {
    let scene = Scene::start(Fake::new().list(Listed::Hang))
        .after(SECOND)
        .await;
    assert_eq!(scene.status_line(), "listing");
    let status = scene.status.clone();
    assert!(scene.stops_immediately().await);
    assert_eq!(status.borrow().to_string(), "stopped");
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn one_unreadable_object_does_not_affect_the_rest() {
    let names: Vec<String> = (0..10_000).map(|n| format!("o{n}")).collect();
    let mut items: Vec<Bytes> = names.iter().map(|name| object(name, "1")).collect();
    items[5000] =
        Bytes::from_static(b"{\"metadata\":{\"namespace\":\"n\",\"name\":\"bad\"},\"x\":\"\xff\"}");
    let fake = Fake::new().list(Listed::Page {
        items,
        version: "10",
        token: None,
    });
    let scene = Scene::start(fake).after(SECOND).await;
    assert_eq!(scene.events()[0].split(' ').count(), 9_999 + 2);
    let status = scene.status.borrow().clone();
    assert_eq!(status.unreadable, 1);
    let unreadable = status.last_unreadable.unwrap();
    assert_eq!(unreadable.key.as_ref().unwrap().to_string(), "n/bad");
    assert!(
        unreadable
            .to_string()
            .starts_with("n/bad of configmaps at cluster scope: ")
    );
    assert!(matches!(status.phase, Phase::Watching { .. }));
    assert!(
        scene
            .metrics
            .encode()
            .contains(r#"pintle_reflector_unreadable_objects_total{resource="configmaps"} 1"#)
    );
}

/// Proves metrics/names.
#[tokio::test(start_paused = true)]
async fn metrics_are_labelled_by_resource() {
    let fake = Fake::new()
        .list(page(&[("a", "5")], "10"))
        .watch([added("b", "11")])
        .watch([]);
    let scene = Scene::start(fake).after(SECOND / 2).await;
    let text = scene.metrics.encode();
    for line in [
        r#"lists_total{resource="configmaps"} 1"#,
        r#"list_duration_seconds_count{resource="configmaps"} 1"#,
        r#"items_per_list_sum{resource="configmaps"} 1.0"#,
        r#"watches_total{resource="configmaps"} 2"#,
        r#"short_watches_total{resource="configmaps"} 1"#,
        r#"watch_duration_seconds_count{resource="configmaps"} 2"#,
        r#"last_resource_version{resource="configmaps"} 11"#,
        r#"failures_total{resource="configmaps"} 1"#,
    ] {
        assert!(
            text.contains(&format!("pintle_reflector_{line}\n")),
            "no {line} in\n{text}"
        );
    }
}

/// Proves fifo/transform.
#[tokio::test(start_paused = true)]
async fn transform_runs_once_per_object() {
    for streaming in [false, true] {
        let fake = if streaming {
            Fake::streaming().watch([
                added("a", "1"),
                added("b", "2"),
                marker("10"),
                added("c", "11"),
                Script::Hang,
            ])
        } else {
            Fake::new()
                .list(page(&[("a", "1"), ("b", "2")], "10"))
                .watch([added("c", "11"), Script::Hang])
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = calls.clone();
        let reader = Reader::new().transform(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let scene = Scene::reading(fake, reader, |reflector| reflector)
            .after(SECOND)
            .await;
        assert_eq!(scene.events(), ["replace a@1 b@2 @10", "add c@11"]);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }
}
