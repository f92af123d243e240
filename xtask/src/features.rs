//! Checks that every command enables the same features of third-party crates, and that every
//! combination of our own features compiles.
//!
//! Cargo compiles a crate once per set of features, so a command that enables another set compiles
//! that crate, and everything that depends on it, a second time. The package `workspace-hack` keeps
//! the sets equal; this check notices when a changed dependency makes them differ again.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use crate::packages::{self, Package};
use crate::workspace::{cargo, run};

/// Packages that do not share compiled dependencies, because they are measured with the features
/// their users would enable, or need so few crates that unifying features would only cost time.
const APART: [&str; 4] = ["pintle-bench", "pintle-gate", "workspace-hack", "xtask"];

const RUN: &str = "normal,build";
const TEST: &str = "normal,build,dev";

/// Compares `cargo run` and `cargo test`, for the workspace and for each package alone, and returns
/// one problem per crate that would be compiled again.
pub(crate) fn check() -> Result<Vec<String>> {
    let all = features(&["--workspace"], TEST)?;
    let mut problems = differences(&all, &features(&["--workspace"], RUN)?, "cargo run");
    let (published, local) = packages::members()?
        .into_iter()
        .filter(|package| !APART.contains(&package.name()))
        .partition::<Vec<Package>, _>(Package::is_published);
    for package in local.iter().chain(&published) {
        let name = ["--package", package.name()];
        let test = format!("cargo test -p {}", package.name());
        problems.extend(differences(&all, &features(&name, TEST)?, &test));
    }
    // A published crate must not depend on `workspace-hack`, so running one alone differs.
    for package in &local {
        let name = ["--package", package.name()];
        let run = format!("cargo run -p {}", package.name());
        problems.extend(differences(&all, &features(&name, RUN)?, &run));
    }
    Ok(problems)
}

/// Lints every combination of up to two features of each crate that has optional parts, including
/// none at all, with cargo-hack. The sample controller without features is what its container image
/// contains.
pub(crate) fn combinations() -> Result<()> {
    const CRATES: [&str; 5] = [
        "pintle",
        "pintle-apiserver",
        "pintle-cluster",
        "pintle-trials",
        "sample-controller",
    ];
    let mut command = cargo();
    command.args(["hack", "clippy", "--feature-powerset", "--depth", "2"]);
    // The defaults are linted with the workspace, the version of k8s-openapi is set in the
    // environment, `browser` and `real-cluster` only add tests, and `rustls-tls` only selects a
    // feature of kube.
    command.args(["--skip", "default,browser,real-cluster,rustls-tls,v1_36"]);
    // One of the two features implies the other.
    command.args(["--mutually-exclusive-features", "inspect,probes"]);
    for name in CRATES {
        command.args(["--package", name]);
    }
    run(command.args(["--", "-D", "warnings"]))
}

/// The feature sets of each third-party crate. A crate has two sets if build scripts or proc macros
/// also depend on it.
type Features = BTreeMap<String, BTreeSet<String>>;

fn features(packages: &[&str], edges: &str) -> Result<Features> {
    let output = cargo()
        .args(["tree", "--prefix=none", "--format={p}\t{f}", "--edges"])
        .arg(edges)
        .args(packages)
        .output()
        .context("cannot run cargo tree")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("cargo tree failed: {error}");
    }
    Ok(parse(&String::from_utf8(output.stdout)?))
}

fn parse(tree: &str) -> Features {
    let mut features = Features::new();
    for line in tree.lines() {
        let line = line.trim_end().trim_end_matches(" (*)").trim_end();
        let (name, set) = line.split_once('\t').unwrap_or((line, ""));
        // Local packages are followed by their path.
        if !name.is_empty() && !name.contains("(/") {
            let sets = features.entry(name.to_owned()).or_default();
            sets.insert(set.to_owned());
        }
    }
    features
}

fn differences(all: &Features, some: &Features, command: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, sets) in some {
        let Some(known) = all.get(name) else { continue };
        for set in sets.difference(known) {
            problems.push(format!(
                "workspace-hack/Cargo.toml:1: `{command}` enables other features of {name} than \
                 `cargo test`: [{set}] instead of [{}]",
                known
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join("] or ["),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests;
