use super::*;

#[tokio::test(start_paused = true)]
async fn repeated_failure_is_logged_at_a_falling_rate() {
    let (repeats, start) = (Repeats::new(), Instant::now());
    let mut admitted = Vec::new();
    while start.elapsed() < Duration::from_hours(1) {
        if repeats.admit(&"a", "conflict").is_some() {
            admitted.push(start.elapsed().as_secs());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(
        admitted,
        [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    );
}

#[tokio::test(start_paused = true)]
async fn new_failure_is_logged_with_suppressed_count() {
    let repeats = Repeats::new();
    assert_eq!(repeats.admit(&"a", "conflict"), Some(0));
    assert_eq!(repeats.admit(&"b", "conflict"), Some(0), "another key");
    assert_eq!(repeats.admit(&"a", "conflict"), None);
    assert_eq!(repeats.admit(&"a", "forbidden"), None, "too soon");
    tokio::time::advance(CHANGED).await;
    assert_eq!(repeats.admit(&"a", "forbidden"), Some(2));
    repeats.forget(&"a");
    assert_eq!(repeats.admit(&"a", "forbidden"), Some(0), "after a success");
}
