use super::*;

/// Proves controller/outcomes.
#[test]
fn boxed_error_keeps_its_decision() {
    let delay = Duration::from_secs(3);
    for error in [
        ReconcileError::retry("a"),
        ReconcileError::retry_after("b", delay),
        ReconcileError::terminal("c"),
    ] {
        let (text, action) = (error.to_string(), error.action());
        let boxed = BoxError::from(error);
        assert_eq!(boxed.to_string(), text);
        let back = ReconcileError::from_boxed(boxed);
        assert_eq!((back.to_string(), back.action()), (text, action));
    }
    assert!(!ReconcileError::from_boxed("plain".into()).is_terminal());
}
