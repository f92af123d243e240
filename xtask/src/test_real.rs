//! `cargo xtask test-real`: runs the tests that need a real control plane, and starts one for them.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::generate;
use crate::interrupt::Interrupt;
use crate::real_cluster::{
    self, BARE_VARIABLE, CORPUS_SERVER_VARIABLE, CORPUS_VARIABLE, ControlPlane, ELECTOR_VARIABLE,
    FULL_CORPUS_VARIABLE, KUBECONFIG_VARIABLE, KUBECTL_VARIABLE, Options, RunDir, XTASK_VARIABLE,
};
use crate::test_output::Totals;
use crate::workspace::{self, ChildFailed};

/// The feature that their test targets require.
const FEATURE: &str = "real-cluster";

/// Each run has its own locked directory. The logs of a failed run stay until the next run.
const RUN_PREFIX: &str = "test-";

/// Grace period for the tests after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Send every object generated for the corpus of CRDs, which takes much longer
    #[arg(long)]
    full_corpus: bool,
    /// Arguments for `cargo test`: a test name, or `-- --nocapture`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_test: Vec<String>,
}

/// Starts three control planes, runs the tests, always stops the control planes, and adds the
/// results to `totals`.
///
/// One control plane is complete; the others have no controller manager, so that only the tests
/// change their objects, and one of these is for the corpus of CRDs. Without test arguments, the
/// other one is first used to check the committed tables of built-in kinds.
pub(crate) fn run(args: &Args, totals: &mut Totals) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let runs = real_cluster::cache_dir()?.join("run");
    real_cluster::down_abandoned(&runs, RUN_PREFIX)?;

    // Compile first: a compile error needs no control plane.
    let mut tests = Tests {
        targets: targets()?,
        variables: Vec::new(),
        interrupt,
        totals,
    };
    tests.cargo_test(&["--no-run".to_owned()])?;

    let crds = real_cluster::corpus::ensure(&real_cluster::cache_dir()?, &tests.interrupt)?;
    let started = Instant::now();
    let up = |name: &str, controller_manager| {
        let name = format!("{RUN_PREFIX}{name}{}", std::process::id());
        let options = Options {
            controller_manager,
            api_server_port: None,
        };
        ControlPlane::up(RunDir::open(&runs.join(name))?, options, &tests.interrupt)
    };
    let started_all = std::thread::scope(|scope| {
        let bare = scope.spawn(|| up("bare-", false));
        let corpus = scope.spawn(|| up("corpus-", false));
        let joined = |it: std::thread::ScopedJoinHandle<'_, Result<ControlPlane>>| {
            let panicked = |_| Err(anyhow!("panicked while starting the API server"));
            it.join().unwrap_or_else(panicked)
        };
        [up("", true), joined(bare), joined(corpus)]
    });
    let [whole, bare, corpus] = match started_all {
        [Ok(whole), Ok(bare), Ok(corpus)] => [whole, bare, corpus],
        some => {
            let mut failure = None;
            for one in some {
                match one {
                    Ok(one) => drop(real_cluster::down(one.dir())?),
                    Err(why) => failure = failure.or(Some(why)),
                }
            }
            return Err(failure.unwrap_or_else(|| anyhow!("cannot start the control planes")));
        }
    };
    println!(
        "control planes ready after {:.1} s",
        started.elapsed().as_secs_f32()
    );

    tests.variables = vec![
        (KUBECONFIG_VARIABLE, whole.dir().kubeconfig()),
        (BARE_VARIABLE, bare.dir().kubeconfig()),
        (KUBECTL_VARIABLE, bare.kubectl()),
        (ELECTOR_VARIABLE, whole.elector()),
        (CORPUS_SERVER_VARIABLE, corpus.dir().kubeconfig()),
        (CORPUS_VARIABLE, crds),
        (XTASK_VARIABLE, std::env::current_exe()?),
    ];
    if args.full_corpus {
        tests.variables.push((FULL_CORPUS_VARIABLE, "1".into()));
    }
    let outcome = check_tables(args, &bare).and_then(|()| tests.cargo_test(&args.cargo_test));
    for cluster in [&whole, &bare, &corpus] {
        real_cluster::down(cluster.dir())?;
        if outcome.is_ok() {
            cluster.dir().remove()?;
        } else {
            let logs = cluster.dir().logs();
            println!("control plane stopped; its logs: {}", logs.display());
        }
    }
    outcome
}

fn check_tables(args: &Args, server: &ControlPlane) -> Result<()> {
    if !args.cargo_test.is_empty() {
        return Ok(());
    }
    generate::check(server.dir().kubeconfig(), server.kubectl())?;
    println!("the tables of built-in kinds match the server");
    Ok(())
}

/// Returns the names of the workspace's test targets that require [`FEATURE`].
fn targets() -> Result<Vec<String>> {
    let out = workspace::cargo()
        .args(["metadata", "--no-deps", "--format-version=1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).context("cannot read cargo metadata")?;
    let each = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let targets = each(&metadata["packages"])
        .into_iter()
        .flat_map(|p| each(&p["targets"]));
    let names: Vec<String> = targets
        .filter(|target| each(&target["kind"]).iter().any(|kind| kind == "test"))
        .filter(|target| {
            each(&target["required-features"])
                .iter()
                .any(|f| f == FEATURE)
        })
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() {
        bail!("no test target requires the feature {FEATURE}");
    }
    Ok(names)
}

struct Tests<'a> {
    targets: Vec<String>,
    /// Environment variables through which the tests find the control planes.
    variables: Vec<(&'static str, PathBuf)>,
    interrupt: Interrupt,
    totals: &'a mut Totals,
}

impl Tests<'_> {
    fn cargo_test(&mut self, args: &[String]) -> Result<()> {
        // `--workspace` enables the same features as plain `cargo test`.
        let mut command = workspace::cargo();
        command.args(["test", "--workspace", "--features", FEATURE]);
        for target in &self.targets {
            command.args(["--test", target]);
        }
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.envs(self.variables.iter().map(|(name, path)| (name, path)));
        // In its own process group, so that cargo and the tests can be stopped together.
        let mut child = command
            .process_group(0)
            .spawn()
            .context("cannot run cargo test")?;
        let output = child.stdout.take().context("cargo test has no output")?;
        let echo = std::thread::spawn(move || Totals::echo(output));
        let outcome = self.wait(&mut child);
        self.totals.add(echo.join().unwrap_or_default());
        outcome
    }

    fn wait(&self, child: &mut Child) -> Result<()> {
        loop {
            if self.interrupt.is_raised() {
                stop(child)?;
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
}

/// Stops cargo and everything it started.
fn stop(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    let _ = signal(Signal::INT);
    let deadline = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The group may outlive cargo. Signalling an empty group is a no-op.
    let _ = signal(Signal::KILL);
    child.wait()?;
    Ok(())
}
