use super::*;

#[test]
fn fixed_times_are_not_about_now() {
    let now = Clock::system().now();
    assert!(is_about_now(&now.to_string()));
    let described = now.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string();
    assert!(is_about_now(&described), "{described}");
    assert!(!is_about_now("2026-01-01T00:00:00Z"));
    assert!(!is_about_now("Thu, 01 Jan 2026 00:00:00 +0000"));
    assert!(!is_about_now("yesterday"));
}

#[test]
fn a_year_is_about_365_days() {
    let days = |days: i64| {
        let time = Clock::system().now() + SignedDuration::from_hours(24 * days);
        time.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
    };
    assert!(is_in_a_year(&days(365)));
    assert!(!is_in_a_year(&days(1)));
    assert!(!is_in_a_year("never"));
}
