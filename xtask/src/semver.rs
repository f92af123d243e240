//! The semver stage of CI: compares the public API of every published crate with the last release.
//!
//! The version in `Cargo.toml` changes only when a release is made, so it does not say whether a
//! breaking change is intended. The changelog does: a crate with an entry under `#### Breaking` in
//! its "Unreleased" section may break its API, all others may only add to it.

use std::process::Command;

use anyhow::Result;

use crate::{
    packages,
    release::{git_output, read, unreleased},
    workspace::{self, cargo},
};

/// Compares the published crates with the last release, using cargo-semver-checks.
pub(crate) fn check() -> Result<()> {
    let tags = git_output(&["tag", "--list", "v*", "--merged=HEAD"])?;
    let Some(tag) = last_release(&tags) else {
        println!("skipped: no release tag yet, so there is no API to compare with");
        return Ok(());
    };
    let folders = git_output(&["ls-tree", "--name-only", tag, "crates/"])?;
    let changelog = read(&workspace::root().join("CHANGELOG.md"))?;
    let packages = packages::published()?;
    let mut compared = Vec::new();
    for package in &packages {
        let name = package.name();
        match decide(name, &folders, &changelog) {
            Decision::Compare => compared.push(name),
            Decision::New => println!("{name}: not part of {tag}"),
            Decision::Breaking => println!("{name}: breaking changes are announced"),
        }
    }
    match command(tag, &compared) {
        Some(mut command) => workspace::run(&mut command),
        None => Ok(()),
    }
}

/// What to do with one crate.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It must be compatible with the last release.
    Compare,
    /// The last release does not contain it.
    New,
    /// The changelog announces breaking changes.
    Breaking,
}

/// Returns the newest of these tags that names a release. Pre-releases make no promises.
fn last_release(tags: &str) -> Option<&str> {
    let version = |tag: &str| -> Option<[u32; 3]> {
        let numbers = tag.strip_prefix('v')?.split('.').map(str::parse);
        let numbers: Vec<u32> = numbers.collect::<Result<_, _>>().ok()?;
        numbers.try_into().ok()
    };
    let releases = tags.lines().filter(|tag| version(tag).is_some());
    releases.max_by_key(|tag| version(tag))
}

/// Decides what to do with a crate, given the folders of crates at the last release and today's
/// changelog.
fn decide(name: &str, folders: &str, changelog: &str) -> Decision {
    if !folders
        .lines()
        .any(|folder| folder.strip_prefix("crates/") == Some(name))
    {
        return Decision::New;
    }
    let mut of_crate = false;
    for line in unreleased(changelog).into_iter().flat_map(str::lines) {
        if let Some(heading) = line.strip_prefix("### ") {
            of_crate = heading == name;
        } else if of_crate && line == "#### Breaking" {
            return Decision::Breaking;
        }
    }
    Decision::Compare
}

/// Returns the command that compares these crates with a tag, or none if there is none to compare.
fn command(tag: &str, packages: &[&str]) -> Option<Command> {
    if packages.is_empty() {
        return None;
    }
    let mut command = cargo();
    command.args(["semver-checks", "--baseline-rev", tag]);
    command.args(["--release-type", "minor"]);
    for package in packages {
        command.args(["--package", package]);
    }
    Some(command)
}

#[cfg(test)]
mod tests;
