use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn paused_clock_is_followed() {
    let clock = Clock::system_or_paused();
    let before = clock.now();
    tokio::time::advance(Duration::from_secs(90)).await;
    assert_eq!(clock.now().duration_since(before).as_secs(), 90);
}

#[tokio::test]
async fn running_clock_is_the_system_clock() {
    assert!(!is_paused());
    let ahead = Clock::system_or_paused()
        .now()
        .duration_since(Clock::system().now());
    assert!(ahead.abs() < jiff::SignedDuration::from_secs(5), "{ahead}");
}
