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
            "pintle-clock",
            "pintle-cluster"
        ]
    );
}
