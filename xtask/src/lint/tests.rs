use super::*;

fn lines(file: &str, text: &str) -> Vec<usize> {
    let problems = check(Path::new(file), text);
    problems
        .iter()
        .filter_map(|p| p.split(':').nth(1)?.parse().ok())
        .collect()
}

#[test]
fn unbiased_select_is_found() {
    assert_eq!(
        lines("a.rs", "tokio::select! {\n    biased;\n    _ = a => {}\n}"),
        [0; 0]
    );
    assert_eq!(lines("a.rs", "select! { // why\n    biased ;\n}"), [0; 0]);
    assert_eq!(
        lines("a.rs", "// select! {}\nlet s = \"select! {}\";"),
        [0; 0]
    );
    assert_eq!(
        lines("a.rs", "x\ntokio::select! {\n    _ = a => {}\n}"),
        [2]
    );
    assert_eq!(lines("a.rs", "select!(\n a = b => { biased; }\n)"), [1]);
}

#[test]
fn ignored_tests_and_examples_are_found() {
    assert_eq!(
        lines("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}"),
        [2]
    );
    assert_eq!(lines("a.rs", "#[cfg_attr(miri, ignore)]\nfn a() {}"), [1]);
    assert_eq!(
        lines("a.rs", "/// ```ignore\n/// ```\n/// ```no_run\n"),
        [1]
    );
    assert_eq!(
        lines("README.md", "```sh\nx\n```\n```rust,ignore\n```"),
        [4]
    );
    assert_eq!(
        lines("a.rs", "#[must_use]\nfn ignore() {}\n// #[ignore]"),
        [0; 0]
    );
}

#[test]
fn machine_specific_paths_are_found() {
    assert_eq!(
        lines(
            "a.md",
            &format!("see {}me/x\nand `{}y`", "/home/", "/root/")
        ),
        [1, 2]
    );
    assert_eq!(
        lines(
            "a.md",
            "https://example.com/home/page and ~/work/x, crates/work/y"
        ),
        [0; 0]
    );
}

#[test]
fn packages_need_the_workspace_lints() {
    assert_eq!(
        lines("crates/x/Cargo.toml", "[package]\nname = \"x\"\n"),
        [1]
    );
    assert_eq!(
        lines(
            "crates/x/Cargo.toml",
            "[package]\n[lints]\nworkspace = true\n"
        ),
        [0; 0]
    );
    assert_eq!(
        lines("x/Cargo.toml", "[package]\nname = \"x\"\n[workspace]\n"),
        [0; 0]
    );
}

#[test]
fn only_published_crates_need_missing_docs() {
    let manifest = Path::new("crates/x/Cargo.toml");
    assert!(is_published(manifest, "[package]\nname = \"x\"\n"));
    assert!(!is_published(
        manifest,
        "[package]\nname = \"x\"\npublish = false\n"
    ));
    assert!(!is_published(Path::new("Cargo.toml"), "[workspace]\n"));

    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("lib.rs");
    std::fs::write(&library, "//! X.\n").unwrap();
    let problem = undocumented(folder.path(), &library);
    assert_eq!(problem.as_deref().map(|p| &p[..9]), Some("lib.rs:1:"));
    std::fs::write(&library, "//! X.\n#![deny(missing_docs)]\n").unwrap();
    assert_eq!(undocumented(folder.path(), &library), None);
}

#[test]
fn missing_files_of_the_tour_are_found() {
    let tour = "| `lone.rs` |\n\n| in `a/src`: |\n| `b.rs`, `c/mod.rs` and `c` |\n| in `d`: |\n| `b.rs` |\n";
    let problems = missing_files(tour, |path| path == "a/src/b.rs");
    assert_eq!(
        problems,
        [
            "ARCHITECTURE.md:4: no file a/src/c/mod.rs",
            "ARCHITECTURE.md:6: no file d/b.rs",
        ]
    );
}

#[test]
fn stated_number_of_files_must_match_the_list() {
    let tour = "It passes folders.\nA patch passes 2 files.\n| `a.rs`, `b/c.rs` in `b` |\n\n## Next\n| `d.rs` |\n";
    assert_eq!(wrong_count(tour), None);
    let problem = wrong_count(&tour.replace("2 files", "3 files"));
    assert_eq!(
        problem.as_deref(),
        Some("ARCHITECTURE.md: states 3 files, lists 2")
    );
}

#[test]
fn misplaced_modules_are_found() {
    let files = [
        "src/both.rs",
        "src/both/part.rs",
        "src/both/part/tests.rs",
        "src/folder/mod.rs",
        "src/folder/part/mod.rs",
        "src/folder/part/a.rs",
        "src/lone/mod.rs",
        "src/lone/tests.rs",
        "src/plain.rs",
        "src/plain/tests/case.rs",
        "src/plain/tests/mod.rs",
        "tests/it/main.rs",
    ];
    let problems = misplaced_modules(&files.map(Path::new));
    assert_eq!(
        problems,
        [
            "src/both.rs:1: belongs in src/both/mod.rs",
            "src/lone/mod.rs:1: belongs in src/lone.rs",
        ]
    );
}

#[test]
fn unformatted_programs_are_found() {
    let document = "a\n```rust,no_run\nfn main() {\n    x();\n}\n```\n\
                    ```rust\nfn main() { x(); }\n```\n\
                    ```rust\n# fn main() { x(); }\n```\n\
                    ```sh\nfn main() { x(); }\n```\n";
    let problems = unformatted(Path::new("a.md"), document).unwrap();
    assert_eq!(problems, ["a.md:7: the example is not formatted"]);
}
