use super::*;

/// Proves lists/pages.
#[test]
fn states_expire_in_steps_and_never_early() {
    let history = History::default();
    history.note(1000, 5);
    history.note(1009, 6);
    history.note(1010, 7);
    assert_eq!(history.expire(1309), None);
    assert_eq!(history.expire(1310), Some(6));
    assert_eq!(history.expire(1319), None);
    assert_eq!(history.expire(1320), Some(7));
    // The record stays bounded.
    for second in 0..10_000 {
        history.note(second, 8);
        history.expire(second);
    }
    assert!(history.steps.lock().len() <= 32);
}
