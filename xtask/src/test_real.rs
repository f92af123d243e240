//! `cargo xtask test-real`: the tests that need a real control plane, with one of their own.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt::Interrupt;
use crate::real_cluster::{self, ControlPlane, KUBECONFIG_VARIABLE, Options, RunDir};
use crate::workspace::{self, ChildFailed};

/// The feature under which such tests are compiled. A package that has it has such tests.
const FEATURE: &str = "real-cluster";

/// How long the tests may take to end after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to `cargo test`: the name of a test, or `-- --nocapture`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_test: Vec<String>,
}

/// Brings the control plane up, runs the tests, and takes it down whatever happened to them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let packages = packages()?;
    let runs = real_cluster::cache_dir()?.join("run");
    real_cluster::down_abandoned(&runs)?;

    // First of all: a compile error needs no control plane.
    cargo_test(&packages, &["--no-run".to_owned()], None, &interrupt)?;

    let dir = RunDir::open(&runs.join(format!("test-{}", std::process::id())))?;
    let options = Options {
        controller_manager: true,
        api_server_port: None,
        attended: true,
    };
    let started = Instant::now();
    let cluster = ControlPlane::up(dir, options, &interrupt)?;
    println!(
        "control plane ready after {:.1} s",
        started.elapsed().as_secs_f32()
    );

    let kubeconfig = cluster.dir().kubeconfig();
    let outcome = cargo_test(&packages, &args.cargo_test, Some(&kubeconfig), &interrupt);
    real_cluster::down(cluster.dir())?;
    if outcome.is_ok() {
        cluster.dir().remove()?;
    } else {
        println!(
            "control plane stopped; its logs: {}",
            cluster.dir().logs().display()
        );
    }
    outcome
}

/// The packages of the workspace with tests of this kind.
fn packages() -> Result<Vec<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).context("cannot read cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names: Vec<String> = packages
        .filter(|package| package["features"].get(FEATURE).is_some())
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() {
        bail!("no package of the workspace has the feature {FEATURE}");
    }
    Ok(names)
}

fn cargo_test(
    packages: &[String],
    args: &[String],
    kubeconfig: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command
        .arg("test")
        .current_dir(workspace::root())
        .stdin(Stdio::null());
    for package in packages {
        command.args(["--package", package]);
    }
    command.args(["--features", FEATURE]).args(args);
    if let Some(path) = kubeconfig {
        command.env(KUBECONFIG_VARIABLE, path);
    }
    // A group of its own: whoever is asked to stop, cargo, the tests or we, all of them stop.
    let mut child = command
        .process_group(0)
        .spawn()
        .context("cannot run cargo test")?;
    loop {
        if interrupt.is_raised() {
            stop(&mut child)?;
            return Err(ChildFailed::interrupted("interrupted").into());
        }
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            return Err(ChildFailed::new("the tests failed", status).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends cargo and all it started.
fn stop(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    let _ = signal(Signal::INT);
    let deadline = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The group may outlive cargo; once it is empty this does nothing.
    let _ = signal(Signal::KILL);
    child.wait()?;
    Ok(())
}
