use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;

fn queue() -> WorkQueue<ObjectKey> {
    WorkQueue::new("tests")
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::namespaced("default", &format!("map-{number}"))
}

fn ended(id: u64, outcome: Outcome) -> Reconciled {
    let error = (outcome == Outcome::Error).then(|| "broken".into());
    Reconciled {
        id,
        cause: 0,
        attempt: 1,
        took: Duration::from_millis(2),
        outcome,
        error,
        next: None,
    }
}

fn life(inspector: &Inspector, number: usize) -> KeyLife {
    inspector.key("maps", &key(number)).unwrap()
}

/// Proves inspect/bounded.
#[tokio::test(start_paused = true)]
async fn rings_are_bounded_per_key_and_in_total() {
    let settings = Settings::new("tests").entries_per_key(8).entries(40);
    let inspector = settings.build();
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    for id in 0..20 {
        record.reconciled(&key(0), Instant::now(), ended(id, Outcome::Error));
    }
    let first = life(&inspector, 0);
    assert_eq!((first.entries.len(), first.dropped), (8, 12));
    for number in 1..100 {
        record.delayed(&key(number), Delay::Requeue, Duration::from_secs(1));
    }
    let log = record.inner.log.lock();
    assert_eq!(log.entries, 40);
    let kept: usize = log.keys.iter().map(|(_, log)| log.entries.len()).sum();
    assert_eq!(kept, 40);
    assert!(
        !log.keys.contains(&key(0)),
        "the key that was idle longest was not evicted"
    );
    assert!(log.keys.contains(&key(99)));
}

/// Proves inspect/bounded.
#[tokio::test(start_paused = true)]
async fn states_of_objects_stay_within_their_budget() {
    let inspector = Settings::new("tests").state_bytes(1000).build();
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    let reader = crate::object::Reader::<ConfigMap>::new();
    let object = |value: usize| {
        let json = serde_json::json!({
            "metadata": {"name": "map-0", "namespace": "default", "uid": "1",
                "resourceVersion": value.to_string()},
            "data": {"value": value.to_string(), "padding": "x".repeat(100)},
        });
        reader.read(json.to_string().as_bytes()).unwrap()
    };
    for value in 0..20 {
        let (old, new) = (object(value), object(value + 1));
        record.woke(&key(0), &crate::informer::Event::Updated { old, new });
    }
    let retained = inspector.program.retained.lock().bytes();
    assert!((500..=1000).contains(&retained), "{retained}");
    let entries = life(&inspector, 0).entries;
    let fields = |entry: &Entry| match &entry.what {
        What::Woke { fields, .. } => fields.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(fields(&entries[19]), ["data.value"]);
    assert!(fields(&entries[0]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn repeated_runs_share_one_entry() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    for id in 0..5 {
        record.reconciled(&key(0), Instant::now(), ended(id, Outcome::Ok));
        tokio::time::advance(Duration::from_secs(30)).await;
    }
    record.reconciled(&key(0), Instant::now(), ended(5, Outcome::Error));
    let entries = life(&inspector, 0).entries;
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!((entries[0].times, entries[0].since), (5, Some(0.0)));
    assert!((entries[0].at - 120.0).abs() < 0.01, "{entries:?}");
    assert!(matches!(
        &entries[1].what,
        What::Reconcile { attempt: 1, .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn list_pages_and_puts_problems_first() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    for number in 0..1200 {
        let outcome = if number == 700 {
            Outcome::Error
        } else {
            Outcome::Ok
        };
        record.reconciled(&key(number), Instant::now(), ended(1, outcome));
    }
    let all = inspector.now(&Query::default());
    assert_eq!((all.matching, all.keys.len()), (1200, 100));
    assert_eq!(all.keys[0].key, "default/map-700");
    assert_eq!(all.keys[0].verdict, Verdict::Failing);
    assert!(all.keys[0].why.contains("broken"), "{}", all.keys[0].why);
    let found = inspector.now(&Query {
        search: "map-119".to_owned(),
        ..Query::default()
    });
    assert_eq!(found.matching, 11);
    let problems = inspector.now(&Query {
        problems: true,
        ..Query::default()
    });
    assert_eq!(problems.matching, 1);
}

/// Proves inspect/trace.
#[tokio::test(start_paused = true)]
async fn trace_survives_a_round_trip() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    record.reconciled(&key(0), Instant::now(), ended(1, Outcome::Error));
    record.delayed(&key(0), Delay::BackOff, Duration::from_secs(3));
    let trace = inspector.trace();
    assert_eq!(trace.format, TRACE_FORMAT);
    assert_eq!(trace.keys[0].entries.len(), 2);
    assert_eq!(trace.controllers[0].name, "maps");
    let text = serde_json::to_string(&trace).unwrap();
    assert_eq!(serde_json::from_str::<Trace>(&text).unwrap(), trace);
}

#[tokio::test(start_paused = true)]
async fn record_of_a_stopped_controller_is_gone() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    assert_eq!(inspector.now(&Query::default()).controllers.len(), 1);
    drop(record);
    assert!(inspector.now(&Query::default()).controllers.is_empty());
    assert!(inspector.key("maps", &key(0)).is_none());
}

/// Proves inspect/bounded.
#[tokio::test(start_paused = true)]
async fn long_errors_are_shortened() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    let long = "é".repeat(32 << 10);
    let mut failed = ended(1, Outcome::Error);
    failed.error = Some(format!("x{long}").into());
    record.reconciled(&key(0), Instant::now(), failed);
    let run = async { Err::<(), _>(long.clone()) };
    let error = record.reconcile(&key(0), run, Clone::clone).await;
    assert_eq!(error, Err(long.clone()));
    let write = entry::Write {
        id: 2,
        verb: "create",
        kind: "ConfigMap".to_owned(),
        object: "default/a".to_owned(),
        subresource: String::new(),
        took: Duration::ZERO,
        status: 422,
        error: Some(long),
        held: Mutex::default(),
        paths: std::sync::OnceLock::new(),
    };
    record.wrote(&key(0), write);
    let entries = life(&inspector, 0).entries;
    assert_eq!(entries.len(), 3);
    for entry in entries {
        let (What::Reconcile { error, .. } | What::Write { error, .. }) = entry.what else {
            panic!("{entry:?}");
        };
        let error = error.unwrap();
        assert!(error.ends_with("é…"), "{error}");
        assert!(
            (entry::MAX_ERROR - 2..=entry::MAX_ERROR).contains(&error.len()),
            "{}",
            error.len()
        );
    }
}

#[test]
fn shortened_error_has_no_half_token() {
    let token = format!("eyJ{}.{}", "a".repeat(100), "b".repeat(100));
    let error = format!("{} {token}", "x".repeat(entry::MAX_ERROR - 60));
    let short = entry::shortened(&error).unwrap();
    assert!(!short.contains("eyJ"), "{short}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_hand_written_worker_is_recorded() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    let reconciling = record.clone();
    let run = async { panic!("a bug") };
    let ended = tokio::spawn(async move {
        let describe = |error: &String| error.clone();
        reconciling.reconcile::<(), _>(&key(0), run, describe).await
    });
    assert!(ended.await.unwrap_err().is_panic());
    let life = life(&inspector, 0);
    assert_eq!(life.why.verdict, Verdict::Failing);
    assert!(
        life.why.sentence.contains("its reconcile panicked: a bug"),
        "{}",
        life.why.sentence
    );
}

#[test]
fn states_are_dropped_after_the_budget_is_unlocked() {
    let reader = crate::object::Reader::<ConfigMap>::new();
    let state = || -> Arc<dyn Header> {
        let json = serde_json::json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "1"},
        });
        Arc::new(reader.read(json.to_string().as_bytes()).unwrap())
    };
    let old = state();
    let watched = Arc::downgrade(&old);
    let change = Arc::new(entry::Change::update(&"ConfigMap".into(), old, state()));
    let retained = Mutex::new(Retained::default());
    let evicted = retained.lock().change(&change, 0);
    assert!(watched.upgrade().is_some(), "dropped under the lock");
    drop(evicted);
    assert!(watched.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn only_keys_on_the_page_are_judged() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    for number in 0..300 {
        record.reconciled(&key(number), Instant::now(), ended(1, Outcome::Ok));
    }
    queue.add(key(1000));
    let now = inspector.now(&Query {
        limit: 10,
        ..Query::default()
    });
    assert_eq!((now.matching, now.keys.len()), (301, 10));
    assert_eq!(
        now.keys[0].key, "default/map-1000",
        "a key without a record"
    );
    assert_eq!(record.inner.judged.lock().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn queue_without_metrics_measures_durations() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    queue.add(key(0));
    let early = queue.get().await.unwrap();
    tokio::time::advance(Duration::from_secs(100)).await;
    let record = inspector.record::<ConfigMap>("maps", &queue);
    record.workers(1);
    assert_eq!(
        inspector.now(&Query::default()).controllers[0]
            .queue
            .longest_millis,
        0
    );
    early.forget();
    queue.add(key(0));
    tokio::time::advance(Duration::from_secs(2)).await;
    let ready = KeyState::Ready {
        seconds: 2.0,
        ahead: 0,
    };
    assert_eq!(life(&inspector, 0).state, ready);
    let item = queue.get().await.unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    let now = inspector.now(&Query::default());
    assert_eq!(now.controllers[0].queue.longest_millis, 3000);
    let processing = KeyState::Processing { seconds: 3.0 };
    assert_eq!(life(&inspector, 0).state, processing);
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn rate_limit_delays_in_a_row_are_counted() {
    let inspector = Inspector::new("tests");
    let queue = queue();
    let record = inspector.record::<ConfigMap>("maps", &queue);
    for _ in 0..100 {
        record.delayed(&key(0), Delay::RateLimit, Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    record.delayed(&key(0), Delay::Requeue, Duration::from_secs(1));
    record.delayed(&key(0), Delay::Requeue, Duration::from_secs(1));
    let entries = life(&inspector, 0).entries;
    assert_eq!(entries.len(), 3, "{entries:?}");
    assert_eq!((entries[0].times, entries[0].since), (100, Some(0.0)));
}
