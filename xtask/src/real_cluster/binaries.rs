//! Builds the control plane's programs from the Go module proxy, into the user's cache.
//!
//! `xtask/real-cluster/go.mod` pins every version. Each build has its own folder, renamed into
//! place when finished, so an existing folder is always complete. Its name contains the versions
//! and a fingerprint of everything that affects the build.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::process::last_lines;
use super::run_dir::{lock, remove};
use crate::interrupt::Interrupt;

const GO_MOD: &str = include_str!("../../real-cluster/go.mod");
const GO_SUM: &str = include_str!("../../real-cluster/go.sum");

/// Binaries and the Go packages they are built from.
const PROGRAMS: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

/// Static and reproducible, independent of the user's Go settings.
pub(super) const ENVIRONMENT: [(&str, &str); 4] = [
    ("CGO_ENABLED", "0"),
    ("GOTOOLCHAIN", "local"),
    ("GOFLAGS", "-mod=readonly"),
    ("GOWORK", "off"),
];

/// Returns the directory with all four programs, building them if necessary.
pub(crate) fn ensure(cache: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
    let versions = Versions::pinned()?;
    let home = cache.join(versions.folder_name());
    let bin = home.join("bin");
    if bin.is_dir() {
        return Ok(bin);
    }
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let _lock = lock(&home.join("lock"))?;
    if !bin.is_dir() {
        build(&home, &bin, &versions, interrupt)?;
    }
    Ok(bin)
}

fn build(home: &Path, bin: &Path, versions: &Versions, interrupt: &Interrupt) -> Result<()> {
    check_go(&versions.go)?;
    println!(
        "building Kubernetes {} and etcd {} from source (once per machine, about ten minutes on two cores)",
        versions.kubernetes, versions.etcd
    );
    let (unfinished, module) = (home.join("bin.unfinished"), home.join("module"));
    remove(&unfinished)?;
    remove(&module)?;
    std::fs::create_dir_all(&unfinished)?;
    std::fs::create_dir_all(&module)?;
    std::fs::write(module.join("go.mod"), GO_MOD)?;
    std::fs::write(module.join("go.sum"), GO_SUM)?;
    for (name, package) in PROGRAMS {
        let started = Instant::now();
        let log = home.join(format!("build-{name}.log"));
        let out = std::fs::File::create(&log)?;
        let status = Command::new("go")
            .args([
                "build",
                "-trimpath",
                "-ldflags",
                &versions.link_flags(),
                "-o",
            ])
            .args([&unfinished.join(name), Path::new(package)])
            .envs(ENVIRONMENT)
            .current_dir(&module)
            .stdin(std::process::Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .status()
            .context("cannot run go")?;
        if interrupt.is_raised() {
            bail!("interrupted; finished packages stay in Go's build cache");
        }
        if !status.success() {
            bail!("building {name} failed:\n{}", last_lines(&log, 20));
        }
        println!("  {name:<24} {:>4} s", started.elapsed().as_secs());
    }
    std::fs::rename(&unfinished, bin).context("cannot move the binaries into place")
}

/// Most tasks do not need Go, so the error explains what does.
pub(super) fn check_go(needed: &str) -> Result<()> {
    let advice = format!(
        "the real control plane is built from source with Go {needed} or newer: \
         install it from https://go.dev/dl and put it in PATH (cargo build and cargo test do not need it)"
    );
    let Ok(out) = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .output()
    else {
        bail!("no Go toolchain found: {advice}");
    };
    let found = String::from_utf8_lossy(&out.stdout)
        .trim()
        .trim_start_matches("go")
        .to_owned();
    if !out.status.success() || found.is_empty() {
        bail!("`go env GOVERSION` failed: {advice}");
    }
    if release(&found) < release(needed) {
        bail!("Go {found} is too old: {advice}");
    }
    Ok(())
}

/// Parses `1.26.8` into numbers, up to the first part that is not a number, such as `27rc1`.
fn release(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// The versions go.mod pins.
struct Versions {
    kubernetes: String,
    etcd: String,
    go: String,
}

impl Versions {
    fn pinned() -> Result<Self> {
        let of = |module: &str| {
            GO_MOD
                .lines()
                .find_map(|line| line.trim().strip_prefix(module)?.split_whitespace().next())
                .map(str::to_owned)
                .with_context(|| format!("go.mod does not pin {module}"))
        };
        Ok(Self {
            kubernetes: of("k8s.io/kubernetes ")?,
            etcd: of("go.etcd.io/etcd/server/v3 ")?,
            go: of("go ")?,
        })
    }

    fn folder_name(&self) -> String {
        let environment = ENVIRONMENT
            .map(|(name, value)| format!("{name}={value}"))
            .join(" ");
        let fingerprint = fingerprint(&[GO_MOD, GO_SUM, &self.link_flags(), &environment]);
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        format!(
            "{}-etcd-{}-{os}-{arch}-{fingerprint:016x}",
            self.kubernetes, self.etcd
        )
    }

    /// Kubernetes takes its version from linker flags; without them a server reports v0.0.0.
    fn link_flags(&self) -> String {
        let mut numbers = self.kubernetes.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
        let mut flags = "-s -w".to_owned();
        for package in [
            "k8s.io/component-base/version",
            "k8s.io/client-go/pkg/version",
        ] {
            for (name, value) in [
                ("gitVersion", self.kubernetes.as_str()),
                ("gitMajor", major),
                ("gitMinor", minor),
                ("gitTreeState", "clean"),
            ] {
                let _ = write!(flags, " -X {package}.{name}={value}");
            }
        }
        flags
    }
}

/// FNV-1a, which is stable across machines and Rust releases.
pub(super) fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
