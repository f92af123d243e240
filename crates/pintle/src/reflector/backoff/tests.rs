use super::*;

fn delays() -> Delays {
    Delays::new(Backoff::default(), Rng::with_seed(1))
}

/// Proves reflector/backoff.
#[test]
fn delays_double_up_to_the_cap_with_jitter() {
    let mut delays = delays();
    let now = Instant::now();
    let seconds: Vec<f64> = (0..9).map(|_| delays.failed(now).as_secs_f64()).collect();
    let floors = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0];
    for (delay, floor) in seconds.iter().zip(floors) {
        assert!((floor..floor * 2.0).contains(delay), "{delay} for {floor}");
    }
    assert!((seconds[7] - seconds[8]).abs() > 1e-9, "no jitter");
}

/// Proves reflector/backoff.
#[test]
fn long_outage_does_not_reset_the_backoff() {
    let mut delays = delays();
    let mut now = Instant::now();
    let start = now;
    for _ in 0..6 {
        now += delays.failed(now);
    }
    while now.duration_since(start) < Duration::from_mins(10) {
        let delay = delays.failed(now);
        assert!(delay >= Duration::from_secs(30), "{delay:?}");
        now += delay;
    }
}

/// Proves reflector/backoff.
#[test]
fn backoff_resets_only_after_two_healthy_minutes() {
    let mut delays = delays();
    let now = Instant::now();
    for _ in 0..4 {
        delays.failed(now);
    }
    delays.healthy(now);
    assert!(delays.failed(now + Duration::from_secs(119)) >= Duration::from_secs(12));
    delays.healthy(now + Duration::from_secs(200));
    delays.healthy(now + Duration::from_mins(5));
    assert!(delays.failed(now + Duration::from_secs(320)) < Duration::from_millis(1600));
}

#[test]
fn invalid_settings_are_harmless() {
    let backoff = Backoff {
        factor: f64::NAN,
        jitter: -5.0,
        ..Backoff::default()
    };
    let mut delays = Delays::new(backoff, Rng::with_seed(1));
    for _ in 0..3 {
        assert!(delays.failed(Instant::now()) <= Duration::from_secs(30));
    }
}
