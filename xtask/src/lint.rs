//! `cargo xtask lint`: project rules that clippy cannot check.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::source::{Keep, mask};
use crate::{features, workspace};

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let files = workspace::files(root, &["rs", "toml", "md", "sh", "yaml", "yml"])?;
    let mut problems = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let name = workspace::relative(root, file);
        problems.extend(check(name, &text));
        if file.extension().is_some_and(|e| e == "md") {
            problems.extend(unformatted(name, &text)?);
        }
        if is_published(name, &text) {
            let library = file.with_file_name("src").join("lib.rs");
            problems.extend(undocumented(root, &library));
        }
    }
    let tour = std::fs::read_to_string(root.join("ARCHITECTURE.md"))
        .context("cannot read ARCHITECTURE.md")?;
    let names: Vec<&Path> = files.iter().map(|f| workspace::relative(root, f)).collect();
    problems.extend(misplaced_modules(&names));
    problems.extend(missing_files(&tour, |path| root.join(path).exists()));
    problems.extend(wrong_count(&tour));
    problems.extend(features::check()?);
    if problems.is_empty() {
        println!("{} files follow the project rules", files.len());
        return Ok(());
    }
    for problem in &problems {
        println!("  {problem}");
    }
    bail!("{} violations of the project rules", problems.len())
}

/// Returns the files that ARCHITECTURE.md names in a table and that do not exist. A row "in
/// `folder`:" sets the folder of the rows below it.
fn missing_files(tour: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut folder = None;
    let mut problems = Vec::new();
    for (number, line) in tour.lines().enumerate().map(|(n, line)| (n + 1, line)) {
        if !line.starts_with('|') {
            folder = None;
            continue;
        }
        // Every second piece is in backquotes.
        for name in line.split('`').skip(1).step_by(2) {
            if line.contains(&format!("in `{name}`:")) {
                folder = Some(name);
            } else if let Some(folder) = folder
                && Path::new(name).extension().is_some_and(|e| e == "rs")
                && !exists(&format!("{folder}/{name}"))
            {
                problems.push(format!("ARCHITECTURE.md:{number}: no file {folder}/{name}"));
            }
        }
    }
    problems
}

/// Returns a problem if ARCHITECTURE.md says that a patch "passes N files" but lists a different
/// number.
fn wrong_count(tour: &str) -> Option<String> {
    let found = COUNT.captures(tour)?;
    let (whole, stated) = (found.get(0)?, found.get(1)?.as_str());
    let walk = tour[whole.end()..]
        .split("\n## ")
        .next()
        .unwrap_or_default();
    let rows = walk.lines().filter(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let listed = names.filter(|name| Path::new(name).extension().is_some_and(|e| e == "rs"));
    let listed = listed.count();
    (stated != listed.to_string())
        .then(|| format!("ARCHITECTURE.md: states {stated} files, lists {listed}"))
}

/// Returns the modules whose file is not where a reader looks for it: `name/mod.rs` if the folder
/// holds other modules, `name.rs` if it holds only `tests`.
fn misplaced_modules(files: &[&Path]) -> Vec<String> {
    let is_rust = |path: &Path| path.extension().is_some_and(|e| e == "rs");
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| is_rust(file)) {
        let (folder, other, is_folder) = if file.ends_with("mod.rs") {
            let folder = file.parent().unwrap_or(file).to_owned();
            let other = folder.with_extension("rs");
            (folder, other, true)
        } else {
            let folder = file.with_extension("");
            let other = folder.join("mod.rs");
            (folder, other, false)
        };
        if is_folder && folder.ends_with("tests") {
            continue;
        }
        let has_modules = files.iter().any(|module| {
            let inside = module.strip_prefix(&folder).ok();
            let name = inside.and_then(|inside| inside.iter().next());
            module != file
                && is_rust(module)
                && name.is_some_and(|name| name != "tests.rs" && name != "tests")
        });
        if has_modules != is_folder {
            let (file, other) = (file.display(), other.display());
            problems.push(format!("{file}:1: belongs in {other}"));
        }
    }
    problems
}

/// Returns the Rust programs in a document that rustfmt would change. Examples with hidden lines
/// are excerpts, which it cannot read.
fn unformatted(name: &Path, text: &str) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (line, code) in programs(text) {
        let mut rustfmt = Command::new("rustfmt")
            .args(["--edition=2024", "--emit=stdout", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run rustfmt")?;
        if let Some(mut stdin) = rustfmt.stdin.take() {
            stdin.write_all(code.as_bytes())?;
        }
        let output = rustfmt.wait_with_output()?;
        if output.stdout != code.as_bytes() {
            let name = name.display();
            problems.push(format!("{name}:{line}: the example is not formatted"));
        }
    }
    Ok(problems)
}

/// Returns the Rust code blocks of a document that have a `main` and no hidden lines, with their
/// lines.
fn programs(text: &str) -> Vec<(usize, String)> {
    let mut programs = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut block {
            None if line.starts_with("```rust") => block = Some((number + 1, String::new())),
            None => {}
            Some(_) if line.starts_with("```") => programs.extend(block.take()),
            Some((_, code)) => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    programs.retain(|(_, code)| {
        code.contains("fn main()") && !code.lines().any(|line| line.starts_with("# "))
    });
    programs
}

/// Checks every rule against one file.
fn check(file: &Path, text: &str) -> Vec<String> {
    let mut problems: Vec<(usize, String)> = machine_paths(text);
    if file.extension().is_some_and(|e| e == "rs") {
        problems.extend(unbiased_selects(text));
        problems.extend(skipped_tests(text));
    }
    problems.extend(skipped_examples(text));
    if is_package(file, text) && !text.contains("[lints]\nworkspace = true") {
        problems.push((1, "missing `[lints] workspace = true`".into()));
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
    LazyLock::new(|| regex(r"(?m)^\s*(?://[/!]\s*)?```[a-z0-9_, ]*\bignore\b"));
static COUNT: LazyLock<Regex> = LazyLock::new(|| regex(r"passes (\d+) files"));
static MACHINE_PATH: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:^|[^\w.:*~/-])/(?:home|root|work|Users)/[A-Za-z0-9._-]+"));

fn regex(pattern: &str) -> Regex {
    #[expect(
        clippy::expect_used,
        reason = "the patterns are constants of this file"
    )]
    Regex::new(pattern).expect("the pattern must be valid")
}

/// Finds unbiased `select!`s, which poll their branches in random order, so that a run would not
/// replay from its seed.
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

/// Finds ignored tests, which are not allowed.
fn skipped_tests(text: &str) -> Vec<(usize, String)> {
    let code = mask(text, Keep::Code);
    SKIPPED
        .find_iter(&code)
        .map(|found| (line_of(&code, found.start()), "ignored test".to_owned()))
        .collect()
}

/// Finds ignored examples, which are not allowed in rustdoc or in the documents it includes.
fn skipped_examples(text: &str) -> Vec<(usize, String)> {
    let examples = SKIPPED_DOC.find_iter(text).map(|found| {
        (
            line_of(text, found.end()),
            "ignored example: use `no_run`, which still compiles it".to_owned(),
        )
    });
    examples.collect()
}

/// Finds paths that exist on one machine only.
fn machine_paths(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(n, line)| MACHINE_PATH.find(line).map(|found| (n + 1, found.as_str())))
        .map(|(n, found)| (n, format!("machine-specific path: {}", found.trim())))
        .collect()
}

/// Returns whether the file is the manifest of a package of this workspace.
fn is_package(file: &Path, text: &str) -> bool {
    file.file_name().is_some_and(|name| name == "Cargo.toml")
        && text.contains("[package]")
        && !text.contains("[workspace]")
}

fn is_published(file: &Path, text: &str) -> bool {
    is_package(file, text) && !text.contains("\npublish = false")
}

/// Returns a problem if a published crate lacks `#![deny(missing_docs)]`.
fn undocumented(root: &Path, library: &Path) -> Option<String> {
    let text = std::fs::read_to_string(library).ok()?;
    let name = workspace::relative(root, library).display();
    (!text.contains("#![deny(missing_docs)]"))
        .then(|| format!("{name}:1: missing #![deny(missing_docs)] in a published crate"))
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
