use super::*;

fn connections(max: usize, max_handshakes: usize) -> Connections {
    let options = ServeOptions::default();
    Connections::new(&options.max_connections(max).max_handshakes(max_handshakes))
}

fn is_evicted(ticket: &Ticket) -> bool {
    ticket.0.evicted.is_cancelled()
}

fn established(connections: &Connections) -> Ticket {
    let ticket = connections.admit().unwrap();
    ticket.seat().established();
    ticket
}

/// Proves serve/connection-limit.
#[test]
fn oldest_handshake_is_evicted_for_a_new_one() {
    let connections = connections(10, 2);
    let idle = established(&connections);
    let first = connections.admit().unwrap();
    let second = connections.admit().unwrap();
    let third = connections.admit().unwrap();
    assert!(is_evicted(&first));
    for open in [&idle, &second, &third] {
        assert!(!is_evicted(open));
    }
}

/// Proves serve/connection-limit.
#[test]
fn unauthenticated_connections_are_evicted_first() {
    let connections = connections(3, 3);
    let authenticated = established(&connections);
    let request = authenticated.seat().begin();
    authenticated.seat().authenticated();
    drop(request);
    let unauthenticated = established(&connections);
    let busy = established(&connections);
    let request = busy.seat().begin();

    let fourth = established(&connections);
    assert!(is_evicted(&unauthenticated) && !is_evicted(&authenticated));
    let _fourth = fourth.seat().begin();
    let fifth = established(&connections);
    let _fifth = fifth.seat().begin();
    assert!(is_evicted(&authenticated) && !is_evicted(&busy));
    assert!(connections.admit().is_none(), "all are busy");
    drop(request);
    assert!(connections.admit().is_some());
    assert!(is_evicted(&busy));
}

/// Proves serve/connection-limit.
#[test]
fn connection_is_busy_until_its_last_request_ends() {
    let connections = connections(1, 1);
    let ticket = established(&connections);
    let (first, second) = (ticket.seat().begin(), ticket.seat().begin());
    drop(first);
    assert!(ticket.seat().is_busy());
    let upgraded = second.clone();
    drop(second);
    assert!(ticket.seat().is_busy());
    drop(upgraded);
    assert!(!ticket.seat().is_busy());
    drop(ticket);
    assert!(connections.0.lock().slots.is_empty());
    assert!(connections.0.lock().quiet.is_empty());
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_of_zero_does_not_spin() {
    let options = ServeOptions::default().idle_timeout(Duration::ZERO);
    let connections = Connections::new(&options);
    let ticket = established(&connections);
    let seat = ticket.seat();
    let request = seat.begin();
    let hour = Duration::from_secs(3600);
    let waited = tokio::time::timeout(hour, seat.overdue(&options)).await;
    assert!(waited.is_err(), "a request is in flight");
    drop(request);
    let start = Instant::now();
    seat.overdue(&options).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn first_request_and_idle_have_separate_timeouts() {
    let options = ServeOptions::default();
    let connections = Connections::new(&options);
    let ticket = established(&connections);
    let seat = ticket.seat();
    let start = Instant::now();
    seat.overdue(&options).await;
    assert_eq!(start.elapsed(), options.header_timeout);

    let request = seat.begin();
    let hour = Duration::from_secs(3600);
    let waited = tokio::time::timeout(hour, seat.overdue(&options)).await;
    assert!(waited.is_err(), "a request is in flight");
    drop(request);
    let start = Instant::now();
    seat.overdue(&options).await;
    assert_eq!(start.elapsed(), options.idle_timeout);
}
