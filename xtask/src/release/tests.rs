use super::*;

const MANIFEST: &str = "[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
        [workspace.dependencies]\npintle = { path = \"crates/pintle\", version = \"0.1.0\" }\n\
        other = { version = \"0.1.0\" }\n";

#[test]
fn only_workspace_versions_change() {
    let current = current_version(MANIFEST).unwrap();
    let changed = set_version(MANIFEST, &current, "0.2.0").unwrap();
    assert!(changed.contains("[workspace.package]\nversion = \"0.2.0\""));
    assert!(changed.contains("path = \"crates/pintle\", version = \"0.2.0\""));
    assert!(changed.contains("other = { version = \"0.1.0\" }"));
    assert!(set_version(MANIFEST, &current, "next").is_err());
}

#[test]
fn unreleased_entries_move_to_the_version() {
    let changelog =
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [0.1.0] - 2026-01-01\n\n- B.\n";
    let closed = close_unreleased(changelog, "0.2.0", "2026-02-03").unwrap();
    assert_eq!(
        closed,
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-03\n\n### Added\n\n- A.\n\n\
             ## [0.1.0] - 2026-01-01\n\n- B.\n"
    );
}

#[test]
fn release_without_changelog_entries_fails() {
    let changelog = "## [Unreleased]\n\n## [0.1.0]\n\n- B.\n";
    assert!(close_unreleased(changelog, "0.2.0", "2026-02-03").is_err());
}

#[test]
fn every_lock_file_with_our_crates_is_updated() {
    let root = workspace::root();
    let ours = |path: &Path| read(path).unwrap().contains("\nname = \"pintle\"\n");
    let locks = workspace::files(root, &["lock"]).unwrap();
    let found: Vec<_> = locks
        .iter()
        .filter(|path| path.ends_with("Cargo.lock") && ours(path))
        .map(|path| workspace::relative(root, path).with_extension("toml"))
        .collect();
    assert_eq!(found, LOCKED.map(std::path::PathBuf::from));
}
