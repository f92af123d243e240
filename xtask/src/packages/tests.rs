use super::*;

#[test]
fn docs_rs_metadata_becomes_cargo_arguments() {
    let docs: DocsRs = serde_json::from_value(serde_json::json!({
        "all-features": true,
        "features": ["a", "b/c"],
        "cargo-args": ["--config", "x='1'"],
    }))
    .unwrap();
    assert_eq!(
        docs.arguments(),
        ["--all-features", "--features", "a,b/c", "--config", "x='1'"]
    );
}

#[test]
fn examples_and_tests_are_not_published() {
    let published = published().unwrap();
    let mut names: Vec<&str> = published.iter().map(|p| p.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "pintle",
            "pintle-apiserver",
            "pintle-cel",
            "pintle-clock",
            "pintle-cluster",
            "pintle-trials"
        ]
    );
}

#[test]
fn detached_package_ignores_parent_directories() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "not a manifest").unwrap();
    let package = folder.path().join("x");
    std::fs::create_dir_all(package.join("src")).unwrap();
    std::fs::write(package.join("src/lib.rs"), "").unwrap();
    let manifest = package.join("Cargo.toml");
    std::fs::write(&manifest, "[package]\nname = \"x\"\n").unwrap();
    let loads = || {
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
        command.current_dir(&package).output().unwrap().status
    };
    assert!(!loads().success());
    detach(&manifest).unwrap();
    assert!(loads().success());
}
