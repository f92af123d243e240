use super::*;

#[test]
fn long_paths_are_truncated() {
    let mut paths = FieldPaths::default();
    paths.add(["a", ".", "b"]);
    let long = "ä".repeat(MAX_PATH_LEN);
    paths.add(["a", ".", &long, ".b"]);
    let paths = paths.into_vec();
    assert_eq!(paths[0], "a.b");
    assert_eq!(paths[1].chars().count(), MAX_PATH_LEN);
    assert!(paths[1].starts_with("a.ä") && paths[1].ends_with('ä'));
}

#[test]
fn number_of_paths_is_limited() {
    let mut paths = FieldPaths::default();
    for _ in 0..MAX_PATHS {
        assert!(!paths.is_full());
        paths.add(["a"]);
    }
    assert!(paths.is_full());
    paths.add(["b"]);
    assert_eq!(paths.into_vec(), vec!["a"; MAX_PATHS]);
}
