//! Wall clocks that differ, jump or stop.

use parking_lot::Mutex;

use super::*;

fn day(day: i64) -> jiff::Timestamp {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start
        + Duration::from_hours(24)
            .checked_mul(u32::try_from(day).unwrap())
            .unwrap()
}

/// Proves election/one-leader.
#[tokio::test(start_paused = true)]
async fn wall_clocks_may_differ_by_days() {
    let server = ApiServer::builder().build();
    let clock = |number| Clock::starting_at(day(number));
    let mut a = Replica::with(&server, "a", |election| election.clock(clock(0)));
    let mut b = Replica::with(&server, "b", |election| election.clock(clock(8)));
    let term = a.lead().await;
    assert!(b.leads_within(Duration::from_mins(5)).await.is_none());
    term.resign().await;
    let term = b.lead().await;
    assert!(a.leads_within(Duration::from_mins(5)).await.is_none());
    assert!(term.is_current());
}

/// Candidates would not notice a renewal that does not change the Lease.
///
/// Proves election/one-leader.
#[tokio::test(start_paused = true)]
async fn leader_keeps_its_lease_while_its_clock_is_stopped() {
    let server = ApiServer::builder().build();
    let stopped = Clock::from_fn(|| day(0));
    let mut a = Replica::with(&server, "a", |election| election.clock(stopped));
    let mut b = Replica::new(&server, "b");
    let term = a.lead().await;
    assert!(b.leads_within(Duration::from_mins(5)).await.is_none());
    assert!(term.is_current());
}

/// Proves election/one-leader.
#[tokio::test(start_paused = true)]
async fn leader_keeps_its_lease_while_its_clock_jumps() {
    let server = ApiServer::builder().build();
    // Days ahead, then back by more than the lease duration, then back and forth.
    let start = Instant::now();
    let jumping = Clock::from_fn(move || {
        let passed = start.elapsed();
        let today = match passed.as_secs() {
            0..30 => 8,
            30..90 => 3,
            second => second % 5,
        };
        day(i64::try_from(today).unwrap()) + passed
    });
    let mut a = Replica::with(&server, "a", |election| election.clock(jumping));
    let mut b = Replica::new(&server, "b");
    let term = a.lead().await;
    assert!(b.leads_within(Duration::from_mins(5)).await.is_none());
    assert!(term.is_current());
}

/// client-go candidates compare the times in a Lease by whole seconds.
///
/// Proves election/client-go-format.
#[tokio::test(start_paused = true)]
async fn every_renewal_changes_the_whole_seconds() {
    let server = ApiServer::builder().build();
    // The clock repeats the same second.
    let readings = Mutex::new(0_i64);
    let repeating = Clock::from_fn(move || {
        let mut readings = readings.lock();
        *readings += 1;
        day(0) + Duration::from_millis(u64::try_from(*readings % 3).unwrap() * 300)
    });
    let mut a = Replica::with(&server, "a", |election| election.clock(repeating));
    let term = a.lead().await;
    sleep(SECOND).await; // Sample between two renewals, which are two seconds apart.
    let mut seconds = Vec::new();
    for _ in 0..20 {
        let renewed = spec(&server).await["renewTime"]
            .as_str()
            .unwrap()
            .to_owned();
        seconds.push(renewed.split_once('.').unwrap().0.to_owned());
        sleep(2 * SECOND).await;
    }
    for pair in seconds.windows(2) {
        assert_ne!(pair[0], pair[1], "{seconds:?}");
    }
    assert!(term.is_current());
}
