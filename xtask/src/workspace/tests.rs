use super::*;

#[test]
fn cargo_does_not_inherit_package_variables() {
    // `cargo test` sets them like `cargo run`.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let command = cargo();
    let removed = |name: &str| command.get_envs().any(|env| env == (name.as_ref(), None));
    assert!(removed("CARGO_PKG_NAME"));
    assert!(removed("CARGO_MANIFEST_DIR"));
    assert!(!removed("CARGO_TARGET_DIR"));
}
