use super::*;

/// An informer with a resync of 30 seconds, not yet running.
fn every_half_minute(server: &Server) -> SharedInformer<Thing> {
    SharedInformer::builder(server.clone())
        .resync(SECOND * 30)
        .build()
}

/// How many resyncs a handler is told of in each of `spans`.
async fn told(diary: &Diary, spans: &[u32]) -> Vec<usize> {
    let mut counts = Vec::new();
    for seconds in spans {
        tokio::time::sleep(SECOND * *seconds).await;
        counts.push(
            diary
                .take()
                .iter()
                .filter(|line| line.starts_with('='))
                .count(),
        );
    }
    counts
}

/// Proves fifo/resync-and-bookmark, informer/resync-period, reflector/resync.
#[tokio::test(start_paused = true)]
async fn everything_is_told_again_without_asking_the_server() {
    let server = Server::new();
    server.put("n/a", "1");
    let running = run(every_half_minute(&server));
    let (diary, registration) = Diary::of(&running.informer);
    registration.synced().await;
    assert_eq!(told(&diary, &[29, 2, 28, 2]).await, [0, 1, 0, 1]);
    assert_eq!(server.lists(), 1);
}

/// Proves informer/resync-period.
#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_period_in_multiples_of_the_informers() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = every_half_minute(&server);
    let (slow, quick, never) = (Diary::default(), Diary::default(), Diary::default());
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
    assert_eq!(told(&quick, &[10, 10, 10, 10, 10]).await, [1, 1, 1, 1, 1]);
    assert_eq!(
        told(&slow, &[0]).await,
        [1],
        "45 seconds are rounded up to 50"
    );
    assert_eq!(told(&never, &[100]).await, [0]);

    // After the start a shorter one is not given.
    let late = Diary::default();
    let _late = running
        .informer
        .handler()
        .resync(SECOND * 2)
        .on_event(late.writer());
    assert_eq!(told(&late, &[12, 10, 10]).await, [1, 1, 1]);
}

/// Proves informer/resync-period.
#[tokio::test(start_paused = true)]
async fn a_resync_is_at_most_once_a_second() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = SharedInformer::builder(server.clone())
        .resync(Duration::from_millis(1))
        .build();
    let (diary, _registration) = Diary::of(&informer);
    let _running = run(informer);
    let count = told(&diary, &[10]).await[0];
    assert!((8..=10).contains(&count), "{count}");
}

/// Proves informer/resync-period.
#[tokio::test(start_paused = true)]
async fn an_informer_without_a_resync_gives_none() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = SharedInformer::new(server.clone());
    let diary = Diary::default();
    let _registration = informer
        .handler()
        .resync(SECOND * 5)
        .on_event(diary.writer());
    let _running = run(informer);
    assert_eq!(told(&diary, &[600]).await, [0]);
}

/// Proves informer/resync-turns.
#[tokio::test(start_paused = true)]
async fn what_a_relist_finds_unchanged_is_for_those_who_resync() {
    let server = Server::new();
    server.put("n/a", "1");
    let informer = every_half_minute(&server);
    let (diary, never) = (Diary::default(), Diary::default());
    let _resyncing = informer.on_event(diary.writer());
    let _never = informer
        .handler()
        .resync(Duration::ZERO)
        .on_event(never.writer());
    let _running = run(informer);
    settle().await;
    // Before the first check everybody hears of it.
    server.forget_history();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(told(&diary, &[0]).await, [1]);
    assert_eq!(told(&never, &[0]).await, [1]);
    // Then only those whose turn it was at the last check.
    tokio::time::sleep(SECOND * 32).await;
    assert_eq!(told(&diary, &[0]).await, [1]);
    server.forget_history();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(server.lists(), 3);
    assert_eq!(told(&diary, &[0]).await, [1]);
    assert_eq!(told(&never, &[0]).await, [0]);
    server.put("n/a", "2");
    settle().await;
    assert_eq!(
        told(&never, &[0]).await,
        [1],
        "a real change is for everybody"
    );
}
