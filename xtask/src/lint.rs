//! `cargo xtask lint`: house rules that clippy cannot see.

use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::source::{Keep, mask};
use crate::workspace;

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let files = workspace::files(root, &["rs", "toml", "md", "sh", "yaml", "yml"])?;
    let mut problems = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let name = workspace::relative(root, file);
        problems.extend(check(name, &text));
        if is_published(name, &text) {
            let library = file.with_file_name("src").join("lib.rs");
            problems.extend(undocumented(root, &library));
        }
    }
    if problems.is_empty() {
        println!("{} files keep the house rules", files.len());
        return Ok(());
    }
    for problem in &problems {
        println!("  {problem}");
    }
    bail!("{} house rules broken", problems.len())
}

/// Every rule against one file.
fn check(file: &Path, text: &str) -> Vec<String> {
    let mut problems: Vec<(usize, String)> = machine_paths(text);
    if file.extension().is_some_and(|e| e == "rs") {
        problems.extend(unbiased_selects(text));
        problems.extend(skipped_tests(text));
    }
    if is_package(file, text) && !text.contains("[lints]\nworkspace = true") {
        problems.push((
            1,
            "a package takes the workspace's lints: [lints] workspace = true".into(),
        ));
    }
    problems.sort();
    problems
        .into_iter()
        .map(|(line, problem)| format!("{}:{line}: {problem}", file.display()))
        .collect()
}

static SELECT: LazyLock<Regex> = LazyLock::new(|| regex(r"\bselect!\s*[{(\[]\s*(biased\s*;)?"));
static SKIPPED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"#!?\[\s*(?:cfg_attr\([^\]]*\b)?ignore\b"));
static SKIPPED_DOC: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^\s*//[/!]\s*```[a-z0-9_, ]*\bignore\b"));
static MACHINE_PATH: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:^|[^\w.:*~/-])/(?:home|root|work|Users)/[A-Za-z0-9._-]+"));

fn regex(pattern: &str) -> Regex {
    #[expect(
        clippy::expect_used,
        reason = "the patterns are constants of this file"
    )]
    Regex::new(pattern).expect("a valid pattern")
}

/// `select!` takes a random branch unless told otherwise, and a run must replay from its seed.
fn unbiased_selects(text: &str) -> Vec<(usize, String)> {
    let code = mask(text, Keep::Code);
    SELECT
        .captures_iter(&code)
        .filter(|found| found.get(1).is_none())
        .filter_map(|found| found.get(0))
        .map(|found| {
            (
                line_of(&code, found.start()),
                "`select!` must start with `biased;`".into(),
            )
        })
        .collect()
}

/// A test that does not run proves nothing.
fn skipped_tests(text: &str) -> Vec<(usize, String)> {
    let code = mask(text, Keep::Code);
    let tests = SKIPPED.find_iter(&code).map(|found| {
        (
            line_of(&code, found.start()),
            "no test is ignored".to_owned(),
        )
    });
    let examples = SKIPPED_DOC.find_iter(text).map(|found| {
        (
            line_of(text, found.end()),
            "no example is ignored: no_run still compiles it".to_owned(),
        )
    });
    tests.chain(examples).collect()
}

/// What only exists on one machine has no place in the project.
fn machine_paths(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(n, line)| MACHINE_PATH.find(line).map(|found| (n + 1, found.as_str())))
        .map(|(n, found)| (n, format!("the path of one machine: {}", found.trim())))
        .collect()
}

/// A package of this workspace; one that is a workspace of its own has its own rules.
fn is_package(file: &Path, text: &str) -> bool {
    file.file_name().is_some_and(|name| name == "Cargo.toml")
        && text.contains("[package]")
        && !text.contains("[workspace]")
}

fn is_published(file: &Path, text: &str) -> bool {
    is_package(file, text) && !text.contains("\npublish = false")
}

/// Who takes a crate from the registry reads its docs.
fn undocumented(root: &Path, library: &Path) -> Option<String> {
    let text = std::fs::read_to_string(library).ok()?;
    let name = workspace::relative(root, library).display();
    (!text.contains("#![deny(missing_docs)]"))
        .then(|| format!("{name}:1: a published crate has #![deny(missing_docs)]"))
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        let problems = check(Path::new(file), text);
        problems
            .iter()
            .filter_map(|p| p.split(':').nth(1)?.parse().ok())
            .collect()
    }

    #[test]
    fn a_select_without_bias_is_found_wherever_it_hides() {
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
    fn an_ignored_test_or_example_is_found() {
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
            lines("a.rs", "#[must_use]\nfn ignore() {}\n// #[ignore]"),
            [0; 0]
        );
    }

    #[test]
    fn the_path_of_a_machine_is_found() {
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
    fn packages_keep_the_workspace_rules() {
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
    fn only_published_crates_must_be_documented() {
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
}
