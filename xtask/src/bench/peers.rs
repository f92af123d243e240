//! Builds the programs to compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::program::shown;
use crate::workspace;

/// The programs by name, or the reason why one is missing.
pub(super) struct Programs {
    found: BTreeMap<&'static str, Result<PathBuf, String>>,
}

impl Programs {
    /// Builds everything, or finds existing binaries. A peer that does not build is reported as
    /// missing; our own programs must build.
    pub(super) fn build(build: bool) -> Result<Self> {
        let root = workspace::root();
        let peers = root.join("benches/peers");
        let release = workspace::target().join("release");
        // The controller is built alone and without features, like its image: building it together
        // with the other program would unify their features.
        let bench = ["--package=pintle-bench"].as_slice();
        let foo = ["--package=sample-controller", "--no-default-features"].as_slice();
        for program in [foo, bench] {
            let mut cargo = workspace::cargo();
            cargo.args(["build", "--release"]).args(program);
            finish(build, &mut cargo).context("cannot build Pintle's own programs")?;
        }
        let foo = root.join("target/bench/pintle-foo");
        if build {
            std::fs::create_dir_all(root.join("target/bench"))?;
            std::fs::copy(release.join("sample-controller"), &foo)?;
        }

        let mut found = BTreeMap::new();
        found.insert("pintle", Ok(release.join("pintle-bench")));
        found.insert("pintle-foo", Ok(foo));
        found.insert(
            "client-go",
            go(build, &peers.join("client-go"), "bench-client-go"),
        );
        let runtime = go(
            build,
            &peers.join("controller-runtime"),
            "bench-controller-runtime",
        );
        found.insert("controller-runtime", runtime);
        found.insert("kube-rs", kube_rs(build, &peers.join("kube-rs")));
        found.insert(
            "sample-controller",
            sample_controller(build, &peers.join("sample-controller")),
        );
        let found = found
            .into_iter()
            .map(|(name, built)| {
                (
                    name,
                    built.map_err(|error: anyhow::Error| format!("{error:#}")),
                )
            })
            .collect();
        Ok(Self { found })
    }

    pub(super) fn get(&self, name: &str) -> Result<&Path, &str> {
        match self.found.get(name) {
            Some(Ok(path)) => Ok(path),
            Some(Err(why)) => Err(why),
            None => Err("unknown peer"),
        }
    }

    /// Returns a program that a benchmark requires.
    pub(super) fn need(&self, name: &str) -> Result<&Path> {
        self.get(name).map_err(|why| anyhow::anyhow!("{why}"))
    }

    /// Returns `pintle-bench`.
    pub(super) fn ours(&self) -> Result<&Path> {
        self.need("pintle")
    }

    /// Describes what could not be built.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> {
        let missing = self.found.iter();
        missing.filter_map(|(name, built)| {
            let why = built.as_ref().err()?;
            Some(format!("{name} is missing: {why}"))
        })
    }
}

fn go(build: bool, folder: &Path, name: &str) -> Result<PathBuf> {
    there(&folder.join("go.mod"))?;
    let program = workspace::root().join("target/bench").join(name);
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("CGO_ENABLED", "0")
        .current_dir(folder);
    finish(build, &mut command)?;
    there(&program)?;
    Ok(program)
}

fn kube_rs(build: bool, folder: &Path) -> Result<PathBuf> {
    there(&folder.join("Cargo.toml"))?;
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--release", "--locked"])
        .current_dir(folder);
    // These variables refer to our own workspace.
    for name in ["CARGO_TARGET_DIR", "CARGO_MANIFEST_DIR", "RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    finish(build, &mut cargo)?;
    let program = folder.join("target/release/bench-kube-rs");
    there(&program)?;
    Ok(program)
}

/// Builds the published Go sample-controller with its rate limits removed.
fn sample_controller(build: bool, folder: &Path) -> Result<PathBuf> {
    there(&folder.join("build.sh"))?;
    let mut command = Command::new("sh");
    command.arg("build.sh").current_dir(folder);
    command.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    finish(build, &mut command)?;
    let program = folder.join("target/bench-sample-controller");
    there(&program)?;
    Ok(program)
}

fn there(file: &Path) -> Result<()> {
    if !file.is_file() {
        bail!("missing program {}", shown(file));
    }
    Ok(())
}

/// Runs a build, unless builds are skipped.
fn finish(build: bool, command: &mut Command) -> Result<()> {
    if !build {
        return Ok(());
    }
    let out = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !out.status.success() {
        bail!("{}: {}", out.status, tail(&out.stderr));
    }
    Ok(())
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("\n")
}
