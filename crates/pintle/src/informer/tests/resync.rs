use super::*;

/// An informer with a resync of 30 seconds, not yet running.
fn every_half_minute(server: &Server) -> SharedInformer<Thing> {
    SharedInformer::builder(server.clone())
        .resync(SECOND * 30)
        .build()
}

/// Returns the number of updates, including resyncs, that a handler receives in each of `spans`
/// (seconds).
async fn resyncs(events: &EventLog, spans: &[u32]) -> Vec<usize> {
    let mut counts = Vec::new();
    for seconds in spans {
        tokio::time::sleep(SECOND * *seconds).await;
        counts.push(
            events
                .take()
                .iter()
                .filter(|line| line.starts_with('='))
                .count(),
        );
    }
    counts
}

/// Proves fifo/entries, informer/resync.
#[tokio::test(start_paused = true)]
async fn resync_redelivers_without_a_request() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = run(every_half_minute(&server));
    let (events, registration) = EventLog::of(&running.informer);
    registration.synced().await;
    assert_eq!(resyncs(&events, &[29, 2, 28, 2]).await, [0, 1, 0, 1]);
    assert_eq!(server.lists(), 1);
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn handler_period_is_a_multiple_of_the_informers() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = every_half_minute(&server);
    let (slow, quick, never) = (
        EventLog::default(),
        EventLog::default(),
        EventLog::default(),
    );
    // Before the start a shorter period shortens the informer's own.
    let handlers = [
        informer
            .handler()
            .resync(SECOND * 45)
            .on_event(slow.writer()),
        informer
            .handler()
            .resync(SECOND * 10)
            .on_event(quick.writer()),
        informer
            .handler()
            .resync(Duration::ZERO)
            .on_event(never.writer()),
    ];
    let running = run(informer);
    settle().await;
    for handler in &handlers {
        assert!(handler.has_synced());
    }
    assert_eq!(
        resyncs(&quick, &[10, 10, 10, 10, 10]).await,
        [1, 1, 1, 1, 1]
    );
    assert_eq!(
        resyncs(&slow, &[0]).await,
        [1],
        "45 seconds are rounded up to 50"
    );
    assert_eq!(resyncs(&never, &[100]).await, [0]);

    // After the start a shorter period is raised.
    let late = EventLog::default();
    let _late = running
        .informer
        .handler()
        .resync(SECOND * 2)
        .on_event(late.writer());
    assert_eq!(resyncs(&late, &[12, 10, 10]).await, [1, 1, 1]);
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn resync_happens_at_most_once_a_second() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = SharedInformer::builder(server.clone())
        .resync(Duration::from_millis(1))
        .build();
    let (events, _registration) = EventLog::of(&informer);
    let _running = run(informer);
    let count = resyncs(&events, &[10]).await[0];
    assert!((8..=10).contains(&count), "{count}");
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn informer_without_resync_never_resyncs() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = SharedInformer::new(server.clone());
    let events = EventLog::default();
    let _registration = informer
        .handler()
        .resync(SECOND * 5)
        .on_event(events.writer());
    let _running = run(informer);
    assert_eq!(resyncs(&events, &[600]).await, [0]);
}

/// Proves informer/resync.
#[tokio::test(start_paused = true)]
async fn unchanged_relisted_object_goes_to_resyncing_handlers() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = every_half_minute(&server);
    let (events, never) = (EventLog::default(), EventLog::default());
    let _resyncing = informer.on_event(events.writer());
    let _never = informer
        .handler()
        .resync(Duration::ZERO)
        .on_event(never.writer());
    let _running = run(informer);
    settle().await;
    // Before the first check every handler gets it.
    server.forget_history();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(resyncs(&events, &[0]).await, [1]);
    assert_eq!(resyncs(&never, &[0]).await, [1]);
    // Then only the handlers that were due at the last check.
    tokio::time::sleep(SECOND * 32).await;
    assert_eq!(resyncs(&events, &[0]).await, [1]);
    server.forget_history();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(server.lists(), 3);
    assert_eq!(resyncs(&events, &[0]).await, [1]);
    assert_eq!(resyncs(&never, &[0]).await, [0]);
    server.put("n/a", "2");
    settle().await;
    assert_eq!(
        resyncs(&never, &[0]).await,
        [1],
        "every handler gets a real change"
    );
}
