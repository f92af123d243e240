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
async fn rings_are_bounded_per_key_and_in_all() {
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
        "the key that was idle for longest stays"
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
async fn equal_runs_are_counted() {
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
