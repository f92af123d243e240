use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn burst_then_one_token_per_period() {
    let (quota, start) = (Quota::new(SECOND, 3), Instant::now());
    let mut bucket = Bucket::default();
    for _ in 0..3 {
        assert_eq!(bucket.try_take(quota, start), Ok(()));
    }
    assert_eq!(bucket.try_take(quota, start), Err(SECOND));
    assert_eq!(bucket.try_take(quota, start + SECOND / 2), Err(SECOND / 2));
    assert_eq!(bucket.try_take(quota, start + SECOND), Ok(()));
    assert_eq!(bucket.try_take(quota, start + SECOND), Err(SECOND));
    let rested = start + SECOND * 60;
    let taken = (0..10).filter(|_| bucket.try_take(quota, rested).is_ok());
    assert_eq!(taken.count(), 3, "full again, but not more");
}

#[test]
fn reservations_queue_up_to_the_longest_wait() {
    let (quota, now) = (Quota::new(SECOND, 2), Instant::now());
    let mut bucket = Bucket::default();
    let waits: Vec<_> = (0..6)
        .map(|_| bucket.reserve(quota, now, SECOND * 3).as_secs())
        .collect();
    assert_eq!(waits, [0, 0, 1, 2, 3, 3]);
}

#[test]
fn quota_refills_within_three_decades() {
    assert!(Quota::new(Duration::from_hours(24), 365 * 29).refills());
    assert!(!Quota::new(Duration::from_hours(24), 365 * 31).refills());
    assert!(!Quota::new(Duration::MAX, 2).refills());
}
