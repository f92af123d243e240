//! `cargo xtask release`: releases a version with one command.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::workspace::{self, cargo};

/// The workspaces whose `Cargo.lock` names the version of our crates.
const LOCKED: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];
const UNRELEASED: &str = "## [Unreleased]\n";

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
    for manifest in LOCKED {
        let update = ["update", "--workspace", "--manifest-path"];
        workspace::run(cargo().args(update).arg(manifest))?;
    }
    let (tag, message) = (format!("v{version}"), format!("release: {version}"));
    workspace::run(git().args(["commit", "--all", "--message", &message]))?;
    workspace::run(git().args(["tag", "--annotate", &tag, "--message", &message]))?;
    // Uploads the crates in dependency order.
    workspace::run(cargo().args(["publish", "--workspace"]))?;
    println!("published {version}; now push it: git push origin main {tag}");
    Ok(())
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(workspace::root());
    command
}

pub(crate) fn git_output(arguments: &[&str]) -> Result<String> {
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

/// Returns the section "Unreleased" without its heading.
pub(crate) fn unreleased(changelog: &str) -> Option<&str> {
    let (_, rest) = changelog.split_once(UNRELEASED)?;
    rest.split("\n## [").next()
}

/// Moves the entries under "Unreleased" to `version` and leaves "Unreleased" empty.
fn close_unreleased(changelog: &str, version: &str, date: &str) -> Result<String> {
    let (before, rest) = changelog
        .split_once(UNRELEASED)
        .context("CHANGELOG.md has no section [Unreleased]")?;
    let entries = unreleased(changelog).unwrap_or_default();
    if !entries.lines().any(|line| line.starts_with("- ")) {
        bail!("CHANGELOG.md has nothing under [Unreleased]");
    }
    Ok(format!(
        "{before}{UNRELEASED}\n## [{version}] - {date}\n{rest}"
    ))
}

#[cfg(test)]
mod tests;
