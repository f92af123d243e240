//! `cargo xtask fuzz`: every fuzz target for a bounded time, on the stable toolchain.
//!
//! What cargo-fuzz does for `--sanitizer none`, without installing it: the coverage instrumentation
//! of LLVM is a matter of compiler flags, and libFuzzer comes with `libfuzzer-sys`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

/// How libFuzzer learns which paths an input takes.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// What no input may exceed: its own size, the seconds it takes, and the memory of the process.
const LIMITS: [&str; 3] = ["-max_len=65536", "-timeout=30", "-rss_limit_mb=2048"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Which targets run; all unless named
    targets: Vec<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            seconds: 10,
            targets: Vec::new(),
        }
    }
}

/// Builds the targets, and runs one after the other, each from its committed corpus.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = workspace::root().join("fuzz");
    let all = targets(&folder)?;
    if let Some(unknown) = args.targets.iter().find(|name| !all.contains(name)) {
        bail!("no fuzz target {unknown:?}; there are {}", all.join(", "));
    }
    let build = workspace::target().join("fuzz");
    let host = host()?;
    let started = Instant::now();
    let mut command = cargo();
    // With a target named, build scripts and macros are built without the instrumentation.
    command
        .current_dir(&folder)
        .args(["build", "--locked", "--bins", "--target", &host])
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    workspace::run(&mut command)?;
    println!("built in {:.0} s", started.elapsed().as_secs_f32());
    let found = build.join("found");
    for name in all {
        if !args.targets.is_empty() && !args.targets.contains(&name) {
            continue;
        }
        let program = build.join(&host).join("debug").join(&name);
        fuzz(&name, &program, &folder, &found.join(&name), args.seconds)?;
    }
    Ok(())
}

/// Runs one target. What it learns stays with the build output; an input that breaks it is reported
/// with its path.
fn fuzz(name: &str, program: &Path, folder: &Path, found: &Path, seconds: u32) -> Result<()> {
    let (learned, broken) = (found.join("corpus"), found.join("artifacts"));
    for folder in [&learned, &broken] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    println!("--- {name}");
    let mut command = Command::new(program);
    command
        // The first folder is written to, the second only read.
        .args([&learned, &folder.join("corpus").join(name)])
        .args(LIMITS)
        // The same inputs in every run, so a failure in CI is not a matter of luck.
        .args(["-seed=1".into(), format!("-max_total_time={seconds}")])
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .args(["-print_final_stats=1", "-print_funcs=0", "-verbosity=0"]);
    workspace::run(&mut command).with_context(|| format!("the fuzz target {name} failed"))
}

/// The names of all targets, sorted. Each has a corpus.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in workspace::files(&folder.join("fuzz_targets"), &["rs"])? {
        if let Some(name) = path.file_stem() {
            let name = name.to_string_lossy().into_owned();
            if !folder.join("corpus").join(&name).is_dir() {
                bail!("the fuzz target {name} has no corpus");
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// The platform this machine compiles for.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output();
    let output = output.context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}
