use super::*;

/// The list is well formed and names no module twice.
#[test]
fn modules_are_pinned() {
    let modules = modules().unwrap();
    let paths: BTreeSet<&str> = modules.iter().map(|it| it.path).collect();
    assert_eq!(paths.len(), modules.len());
    for module in &modules {
        assert!(module.sum.starts_with("h1:"), "{}", module.path);
        assert!(!module.crds.is_empty(), "{}", module.path);
    }
}
