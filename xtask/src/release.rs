//! `cargo xtask release`: releases a version with one command.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::workspace::{self, cargo};

/// Options of `cargo xtask release`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The version to release, such as 0.2.0
    #[arg(required_unless_present = "dry_run")]
    version: Option<String>,
    /// Check everything without changing or uploading anything
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(crate) fn dry_run() -> Self {
        Self {
            version: None,
            dry_run: true,
        }
    }
}

/// Verifies the packages, then, unless this is a dry run, updates version and changelog, commits,
/// tags and uploads.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let manifest = read(&root.join("Cargo.toml"))?;
    let changelog = read(&root.join("CHANGELOG.md"))?;
    let current = current_version(&manifest)?;
    let version = args.version.as_deref().unwrap_or(&current);
    // A dry run exercises these too.
    let manifest = set_version(&manifest, &current, version)?;
    let changelog = close_unreleased(&changelog, version, &today()?)?;
    packages::verify()?;
    if args.dry_run {
        println!("dry run: {version} can be released; nothing changed");
        return Ok(());
    }
    if !git_output(&["status", "--porcelain"])?.is_empty() {
        bail!("the working tree has uncommitted changes");
    }
    std::fs::write(root.join("Cargo.toml"), manifest)?;
    std::fs::write(root.join("CHANGELOG.md"), changelog)?;
    workspace::run(cargo().args(["update", "--workspace", "--offline"]))?;
    let (tag, message) = (format!("v{version}"), format!("release: {version}"));
    workspace::run(git().args(["commit", "--all", "--message", &message]))?;
    workspace::run(git().args(["tag", "--annotate", &tag, "--message", &message]))?;
    // Uploads the crates in the order of their dependencies.
    workspace::run(cargo().args(["publish", "--workspace"]))?;
    println!("published {version}; now push it: git push origin main {tag}");
    Ok(())
}

/// Compares the public API of every published crate with the last release, using
/// cargo-semver-checks. Before the first release there is nothing to compare with.
pub(crate) fn check_semver() -> Result<()> {
    let tags = git_output(&[
        "tag",
        "--list",
        "v*",
        "--merged=HEAD",
        "--sort=-version:refname",
    ])?;
    let Some(tag) = tags.lines().next() else {
        println!("skipped: no release tag yet, so there is no API to compare with");
        return Ok(());
    };
    println!("comparing with {tag}");
    let mut command = cargo();
    command.args(["semver-checks", "--baseline-rev", tag]);
    for package in packages::published()? {
        command.args(["--package", package.name()]);
    }
    workspace::run(&mut command)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(workspace::root());
    command
}

fn git_output(arguments: &[&str]) -> Result<String> {
    let output = git().args(arguments).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {} failed", arguments.join(" "));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let output = output.context("cannot run date")?;
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// Returns the version in `[workspace.package]`.
fn current_version(manifest: &str) -> Result<String> {
    let package = manifest.split("[workspace.package]").nth(1);
    let line = package
        .into_iter()
        .flat_map(str::lines)
        .find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|line| line.strip_suffix('"'));
    Ok(version
        .context("Cargo.toml has no version in [workspace.package]")?
        .into())
}

/// Sets the version of the workspace and of its crates' dependencies on each other.
fn set_version(manifest: &str, current: &str, version: &str) -> Result<String> {
    let numbers: Vec<&str> = version.split('.').collect();
    if numbers.len() != 3 || numbers.iter().any(|n| n.parse::<u32>().is_err()) {
        bail!("{version} is not a version such as 0.2.0");
    }
    let old = format!("version = \"{current}\"");
    let new = format!("version = \"{version}\"");
    let ours = |line: &str| line.starts_with("version = ") || line.contains("path = \"crates/");
    let lines = manifest.lines().map(|line| {
        if ours(line) {
            line.replace(&old, &new)
        } else {
            line.into()
        }
    });
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}

/// Moves the entries under "Unreleased" to `version` and leaves "Unreleased" empty.
fn close_unreleased(changelog: &str, version: &str, date: &str) -> Result<String> {
    const HEADING: &str = "## [Unreleased]\n";
    let (before, rest) = changelog
        .split_once(HEADING)
        .context("CHANGELOG.md has no section [Unreleased]")?;
    let entries = rest.split("\n## [").next().unwrap_or_default();
    if !entries.lines().any(|line| line.starts_with("- ")) {
        bail!("CHANGELOG.md has nothing under [Unreleased]");
    }
    Ok(format!(
        "{before}{HEADING}\n## [{version}] - {date}\n{rest}"
    ))
}

#[cfg(test)]
mod tests {
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
        let changelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [0.1.0] - 2026-01-01\n\n- B.\n";
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
}
