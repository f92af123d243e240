//! `cargo xtask fuzz`: runs every fuzz target for a bounded time, on the stable toolchain.
//!
//! Equivalent to cargo-fuzz with `--sanitizer none`, without installing it: LLVM's coverage
//! instrumentation is a set of compiler flags, and `libfuzzer-sys` contains libFuzzer.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

/// Instruments the code, so that libFuzzer sees which paths an input takes.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// Limits per input: size in bytes, seconds, and memory of the process.
const LIMITS: [&str; 3] = ["-max_len=65536", "-timeout=30", "-rss_limit_mb=2048"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds per target
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Targets to run [default: all]
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

/// Builds the targets and runs them one after the other, each from its committed corpus.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = workspace::root().join("fuzz");
    let all = targets(&folder)?;
    if let Some(unknown) = args.targets.iter().find(|name| !all.contains(name)) {
        bail!(
            "unknown fuzz target {unknown:?}; known targets: {}",
            all.join(", ")
        );
    }
    let build = workspace::target().join("fuzz");
    let host = host()?;
    let started = Instant::now();
    let mut command = cargo();
    // `--target` keeps the instrumentation out of build scripts and proc macros.
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

/// Runs one target. New corpus entries stay in the target directory; the path of a crashing input
/// is printed.
fn fuzz(name: &str, program: &Path, folder: &Path, found: &Path, seconds: u32) -> Result<()> {
    let (learned, broken) = (found.join("corpus"), found.join("artifacts"));
    for folder in [&learned, &broken] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    println!("--- {name}");
    let mut command = Command::new(program);
    command
        // libFuzzer writes to the first folder only.
        .args([&learned, &folder.join("corpus").join(name)])
        .args(LIMITS)
        // A fixed seed makes a failure in CI reproducible.
        .args(["-seed=1".into(), format!("-max_total_time={seconds}")])
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .args(["-print_final_stats=1", "-print_funcs=0", "-verbosity=0"]);
    workspace::run(&mut command).with_context(|| format!("fuzz target {name} failed"))
}

/// Returns the names of all targets, sorted, and checks that each has a corpus.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in workspace::files(&folder.join("fuzz_targets"), &["rs"])? {
        if let Some(name) = path.file_stem() {
            let name = name.to_string_lossy().into_owned();
            if !folder.join("corpus").join(&name).is_dir() {
                bail!("fuzz target {name} has no corpus");
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the host's target triple.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output();
    let output = output.context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` printed no host")?.to_owned())
}
