use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Proves daemonset/failures.
#[test]
fn delay_doubles_up_to_a_limit_and_expires() {
    let key = ("set".to_owned(), 1, "node".to_owned());
    let other = ("set".to_owned(), 2, "node".to_owned());
    let mut backoff = Backoff::default();
    let seconds = |backoff: &Backoff, now| backoff.remaining(&key, at(now)).as_secs();
    assert_eq!(seconds(&backoff, 0), 0);
    backoff.record(key.clone(), at(0));
    assert_eq!(seconds(&backoff, 0), 1);
    backoff.record(key.clone(), at(1));
    assert_eq!((seconds(&backoff, 1), seconds(&backoff, 2)), (2, 1));
    assert_eq!(
        backoff.remaining(&other, at(1)),
        Duration::ZERO,
        "a new generation starts over"
    );
    for _ in 0..20 {
        backoff.record(key.clone(), at(2));
    }
    assert_eq!(seconds(&backoff, 2), 900);
    backoff.record(key.clone(), at(3 + 1800));
    assert_eq!(
        seconds(&backoff, 3 + 1800),
        1,
        "no failure for half an hour resets the delay"
    );
}
