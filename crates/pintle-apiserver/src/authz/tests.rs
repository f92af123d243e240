use super::*;

/// Proves rbac/defaults.
#[test]
fn unknown_modes_do_not_parse() {
    assert_eq!("AlwaysAllow".parse(), Ok(Authorization::AlwaysAllow));
    for mode in ["Node", "Webhook", "ABAC", "AlwaysDeny"] {
        assert_eq!(
            mode.parse::<Authorization>(),
            Err(AuthorizationError::NotImplemented(mode.to_owned()))
        );
    }
    let error = "rbac".parse::<Authorization>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown authorization mode \"rbac\"; use RBAC or AlwaysAllow"
    );
}
