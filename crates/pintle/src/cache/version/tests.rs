use super::*;

/// Proves cache/version.
#[test]
fn versions_compare_as_numbers_of_any_length() {
    let long = "1".repeat(40);
    assert_eq!(compare_versions("10", "9"), Ok(Ordering::Greater));
    assert_eq!(compare_versions("10", "10"), Ok(Ordering::Equal));
    assert_eq!(compare_versions("99", &long), Ok(Ordering::Less));
    for opaque in ["", "0", "010", "-1", "1.0", "a", "1a"] {
        assert!(
            compare_versions(opaque, "1").is_err(),
            "{opaque:?} compared"
        );
        assert!(
            compare_versions("1", opaque).is_err(),
            "{opaque:?} compared"
        );
    }
}
