//! Builds the replica that is elected by client-go, for the tests of leader election.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::binaries::{ENVIRONMENT, check_go, fingerprint};
use super::process::last_lines;
use super::run_dir::{lock, remove};
use crate::interrupt::Interrupt;

const GO_MOD: &str = include_str!("../../../tests/real/elector/go.mod");
const GO_SUM: &str = include_str!("../../../tests/real/elector/go.sum");
const MAIN: &str = include_str!("../../../tests/real/elector/main.go");

/// The Go release that its go.mod names.
const GO: &str = "1.26.0";

/// Returns the program, building it if necessary. Like the control plane's programs, it is in the
/// user's cache under a name that contains a fingerprint of its source.
pub(crate) fn ensure(cache: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
    let environment = ENVIRONMENT.map(|(name, value)| format!("{name}={value}"));
    let fingerprint = fingerprint(&[GO_MOD, GO_SUM, MAIN, &environment.join(" ")]);
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let home = cache.join(format!("elector-{os}-{arch}-{fingerprint:016x}"));
    let program = home.join("elector");
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let _lock = lock(&home.join("lock"))?;
    if !program.is_file() {
        build(&home, &program, interrupt)?;
    }
    Ok(program)
}

fn build(home: &Path, program: &Path, interrupt: &Interrupt) -> Result<()> {
    check_go(GO)?;
    println!("building the client-go elector from source");
    let (unfinished, module) = (home.join("elector.unfinished"), home.join("module"));
    remove(&unfinished)?;
    remove(&module)?;
    std::fs::create_dir_all(&module)?;
    for (name, text) in [("go.mod", GO_MOD), ("go.sum", GO_SUM), ("main.go", MAIN)] {
        std::fs::write(module.join(name), text)?;
    }
    let log = home.join("build.log");
    let out = std::fs::File::create(&log)?;
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .args([&unfinished, Path::new(".")])
        .envs(ENVIRONMENT)
        .current_dir(&module)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .status()
        .context("cannot run go")?;
    if interrupt.is_raised() {
        bail!("interrupted");
    }
    if !status.success() {
        bail!("building the elector failed:\n{}", last_lines(&log, 20));
    }
    std::fs::rename(&unfinished, program).context("cannot move the elector into place")
}
