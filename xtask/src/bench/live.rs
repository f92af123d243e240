//! Benchmarks that need a control plane, or measure one.
//!
//! Servers run on the first core and the measured program on the second, so that neither slows down
//! the other. Load generators share the server's core, unless the server itself is measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::plan::{Work, count, size};
use super::program::{self, Cores, Outcome, Running};
use super::runner::Runner;
use super::samples::WorkResults;
use crate::interrupt::Interrupt;
use crate::real_cluster::{self, ControlPlane, Options, RunDir};

/// Each control plane has its own directory.
const RUN_PREFIX: &str = "bench-";
/// Time for a controller's initial lists before the load starts.
const WARM_UP: Duration = Duration::from_millis(1500);

pub(super) const PINTLE_SERVER: &str = "pintle-apiserver";
pub(super) const REAL_SERVER: &str = "kube-apiserver + etcd";
pub(super) const PINTLE_LOOPS: &str = "pintle-cluster on pintle-apiserver";
pub(super) const PINTLE_LOOPS_REAL: &str = "pintle-cluster on kube-apiserver";
pub(super) const REAL_LOOPS: &str = "kube-controller-manager on kube-apiserver";
pub(super) const GO_FOO: &str = "sample-controller (Go)";

/// A real API server and etcd, without a controller manager. Stopped on drop.
pub(super) struct Live {
    plane: ControlPlane,
    ready_after: Duration,
}

impl Live {
    pub(super) fn start(interrupt: &Interrupt) -> Result<Self> {
        let runs = real_cluster::cache_dir()?.join("run");
        real_cluster::down_abandoned(&runs, RUN_PREFIX)?;
        let dir = RunDir::open(&runs.join(format!("{RUN_PREFIX}{}", std::process::id())))?;
        let options = Options {
            controller_manager: false,
            api_server_port: None,
        };
        let begin = Instant::now();
        // Children inherit our CPU affinity.
        let plane = program::on_the_first_core(|| ControlPlane::up(dir, options, interrupt))?;
        Ok(Self {
            plane,
            ready_after: begin.elapsed(),
        })
    }

    /// Starts a server and fills it with Pods for every peer to sync from.
    pub(super) fn with_pods(runner: &Runner, pods: usize) -> Result<Self> {
        let live = Self::start(&runner.interrupt)?;
        let mut args = live.args();
        args.extend(["--objects".into(), pods.to_string()]);
        runner.drive("load", &args, Cores::All, Duration::from_secs(300))?;
        Ok(live)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.plane.dir().kubeconfig()
    }

    pub(super) fn server_pids(&self) -> Vec<u32> {
        self.plane.pids().collect()
    }

    fn args(&self) -> Vec<String> {
        server_args(&self.kubeconfig(), &self.server_pids())
    }

    /// Applies a manifest.
    fn apply(&self, manifest: &Path) -> Result<()> {
        let out = Command::new(self.plane.bin().join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["apply", "--server-side", "-f"])
            .arg(manifest)
            .output()
            .context("cannot run kubectl")?;
        if !out.status.success() {
            bail!("kubectl apply: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let stopped = real_cluster::down(self.plane.dir());
        if let Err(error) = stopped.and_then(|_| self.plane.dir().remove()) {
            eprintln!("cannot stop the control plane: {error:#}");
        }
    }
}

fn server_args(kubeconfig: &Path, pids: &[u32]) -> Vec<String> {
    let mut args = vec!["--kubeconfig".to_owned(), kubeconfig.display().to_string()];
    for pid in pids {
        args.extend(["--server-pid".to_owned(), pid.to_string()]);
    }
    args
}

/// A pintle-apiserver in its own process.
struct Ours {
    running: Running,
    folder: PathBuf,
    ready_after: Duration,
}

impl Ours {
    fn start(runner: &Runner) -> Result<Self> {
        let folder = crate::workspace::root().join("target/bench/server");
        std::fs::create_dir_all(&folder)?;
        let mut command = program::ours(runner.programs.ours()?, "serve", Cores::Server);
        command.arg("--kubeconfig").arg(folder.join("kubeconfig"));
        let begin = Instant::now();
        let mut running = Running::start("pintle-apiserver", &mut command)?;
        running.line(Duration::from_secs(60))?;
        Ok(Self {
            running,
            folder,
            ready_after: begin.elapsed(),
        })
    }

    fn args(&self) -> Vec<String> {
        server_args(&self.folder.join("kubeconfig"), &[self.running.pid()])
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Adds the figures of `more` to `line`.
fn merge(line: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        line[name] = value.clone();
    }
}

impl Runner {
    fn version(peer: &str) -> &'static str {
        match peer {
            REAL_SERVER | REAL_LOOPS => "1.36.4",
            GO_FOO => "0.36.4",
            _ => "this commit",
        }
    }

    /// Returns the peers in this round's order.
    fn in_turn<const N: usize>(round: u32, mut peers: [&'static str; N]) -> [&'static str; N] {
        if round.is_multiple_of(2) {
            peers.reverse();
        }
        peers
    }

    fn outcome(peer: &str, measured: Result<Value>) -> Outcome {
        match measured {
            Ok(mut line) => {
                line["peer"] = json!(peer);
                line["version"] = json!(Self::version(peer));
                Outcome::Line(line)
            }
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    // Foo.

    pub(super) fn foo(&mut self, results: &mut WorkResults) -> Result<()> {
        let foos = size(1000, self.quick);
        let case = format!("{} Foos", count(foos));
        let live = Live::start(&self.interrupt)?;
        self.install_foos(&live)?;
        // A warm-up, so that no peer is the first to use the server.
        self.foo_once(&live, "pintle", 0, foos / 10)?;
        for round in 1..=results.rounds {
            for peer in Self::in_turn(round, ["pintle", GO_FOO]) {
                if self.interrupt.is_raised() {
                    return Ok(());
                }
                self.progress
                    .step(&format!("{}: {case}, {peer}", Work::Foo.name()));
                let outcome = Self::outcome(peer, self.foo_once(&live, peer, round, foos));
                self.record(results, &case, peer, round, outcome);
            }
        }
        Ok(())
    }

    fn install_foos(&self, live: &Live) -> Result<()> {
        let ours = self.programs.need("pintle-foo")?;
        let out = Command::new(ours)
            .arg("crd")
            .output()
            .context("cannot run sample-controller")?;
        let folder = crate::workspace::root().join("target/bench");
        let manifest = folder.join("crd.yaml");
        std::fs::write(&manifest, out.stdout)?;
        live.apply(&manifest)?;
        // The CRD is served shortly after it is stored.
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn foo_once(&self, live: &Live, peer: &str, round: u32, foos: usize) -> Result<Value> {
        let program = if peer == "pintle" {
            "pintle-foo"
        } else {
            "sample-controller"
        };
        let program = self.programs.need(program)?;
        let mut command = program::command(program, Cores::Client);
        command.arg("--kubeconfig").arg(live.kubeconfig());
        let mut controller = Running::start(peer, &mut command)?;
        std::thread::sleep(WARM_UP);
        if !controller.is_alive() {
            bail!("sample-controller exited immediately: {}", controller.end());
        }
        let pid = controller.pid();
        let before = program::cpu_of(pid);
        let mut args = live.args();
        let name = if peer == "pintle" { "pintle" } else { "go" };
        args.extend([
            "--objects".into(),
            foos.to_string(),
            "--namespace".into(),
            format!("{name}-{round}"),
        ]);
        let patience = Duration::from_secs(180);
        let driven = self.drive("drive-foo", &args, Cores::Server, patience);
        let cpu = program::cpu_of(pid) - before;
        let peak = program::memory_of(pid, "VmHWM");
        let words = controller.end();
        self.drive("clean-foo", &args, Cores::Server, patience)?;
        let mut line = driven.with_context(|| format!("last output: {words}"))?;
        #[allow(clippy::cast_precision_loss, reason = "rounded for display")]
        let per_foo = cpu * 1e3 / foos as f64;
        merge(
            &mut line,
            &json!({"cpu_ms_per_foo": per_foo, "cpu_s": cpu, "peak_kib": peak}),
        );
        Ok(line)
    }

    // API servers.

    pub(super) fn apiserver(&mut self, results: &mut WorkResults) {
        let case = "over TLS, on one core";
        for round in 1..=results.rounds {
            for peer in Self::in_turn(round, [PINTLE_SERVER, REAL_SERVER]) {
                if self.interrupt.is_raised() {
                    return;
                }
                self.progress
                    .step(&format!("{}: {peer}", Work::Apiserver.name()));
                let measured = if peer == PINTLE_SERVER {
                    self.our_server()
                } else {
                    self.real_server()
                };
                let outcome = Self::outcome(peer, measured);
                self.record(results, case, peer, round, outcome);
            }
            let args = [
                "--in-process",
                "--count",
                &size(5000, self.quick).to_string(),
            ];
            let args = args.map(str::to_owned);
            let patience = Duration::from_secs(120);
            let inside = self.drive("drive-writes", &args, Cores::Client, patience);
            let outcome = Self::outcome(PINTLE_SERVER, inside);
            self.record(
                results,
                "in process, on one core",
                PINTLE_SERVER,
                round,
                outcome,
            );
        }
    }

    fn our_server(&self) -> Result<Value> {
        let server = Ours::start(self)?;
        let ready = server.ready_after;
        self.load_server(&server.args(), &[server.running.pid()], ready)
    }

    fn real_server(&self) -> Result<Value> {
        let server = Live::start(&self.interrupt)?;
        self.load_server(&server.args(), &server.server_pids(), server.ready_after)
    }

    fn load_server(&self, args: &[String], pids: &[u32], ready: Duration) -> Result<Value> {
        let rest = if self.quick { 500 } else { 3000 };
        std::thread::sleep(Duration::from_millis(rest));
        let idle: f64 = pids
            .iter()
            .map(|pid| program::memory_of(*pid, "VmRSS"))
            .sum();
        let mut line = json!({"ready_ms": ready.as_secs_f64() * 1e3, "idle_kib": idle});
        let with = |more: &[(&str, usize)]| {
            let more = more.iter();
            let more = more.flat_map(|(flag, value)| [format!("--{flag}"), value.to_string()]);
            args.iter().cloned().chain(more).collect::<Vec<_>>()
        };
        let drive = |work: &str, args: &[String]| {
            self.drive(work, args, Cores::Client, Duration::from_secs(120))
        };
        let quick = self.quick;
        merge(
            &mut line,
            &drive("drive-writes", &with(&[("count", size(5000, quick))]))?,
        );
        let watchers = with(&[("count", size(100, quick)), ("watchers", size(1000, quick))]);
        merge(&mut line, &drive("drive-watchers", &watchers)?);
        drive("load", &with(&[("objects", size(2000, quick))]))?;
        merge(&mut line, &drive("drive-lists", &with(&[("count", 10)]))?);
        Ok(line)
    }

    // The loops of the cluster.

    pub(super) fn cluster(&mut self, results: &mut WorkResults) {
        let objects = size(1000, self.quick);
        let cases = [
            (format!("{} Deployments of 3 Pods", count(objects)), false),
            (
                format!(
                    "{} Deployments, StatefulSets and Jobs each, of 3 Pods",
                    count(objects)
                ),
                true,
            ),
        ];
        for round in 1..=results.rounds {
            for (case, mixed) in &cases {
                for peer in Self::in_turn(round, [PINTLE_LOOPS, PINTLE_LOOPS_REAL, REAL_LOOPS]) {
                    if self.interrupt.is_raised() {
                        return;
                    }
                    self.progress
                        .step(&format!("{}: {case}, {peer}", Work::Cluster.name()));
                    let measured = self.loops_of(peer, objects, *mixed);
                    let outcome = Self::outcome(peer, measured);
                    self.record(results, case, peer, round, outcome);
                }
            }
        }
    }

    /// Measures the loops of a peer. With `mixed`, there are as many `StatefulSets` and Jobs as
    /// Deployments.
    fn loops_of(&self, peer: &str, objects: usize, mixed: bool) -> Result<Value> {
        if peer == PINTLE_LOOPS {
            let server = Ours::start(self)?;
            let loops = self.our_loops(&server.args(), mixed)?;
            return self.deploy(loops, &server.args(), objects, mixed);
        }
        let server = Live::start(&self.interrupt)?;
        let loops = if peer == REAL_LOOPS {
            Self::real_loops(&server, mixed)?
        } else {
            self.our_loops(&server.args(), mixed)?
        };
        self.deploy(loops, &server.args(), objects, mixed)
    }

    fn our_loops(&self, server: &[String], mixed: bool) -> Result<Running> {
        let mut command = program::ours(self.programs.ours()?, "loops", Cores::Client);
        command.args(server);
        if mixed {
            command.arg("--mixed");
        }
        let mut running = Running::start("pintle-cluster", &mut command)?;
        running.line(Duration::from_secs(60))?;
        Ok(running)
    }

    /// Runs only the loops that ours are compared with, without rate limits.
    fn real_loops(server: &Live, mixed: bool) -> Result<Running> {
        let program = server.plane.bin().join("kube-controller-manager");
        let credentials = server.plane.dir().credentials();
        let file = |name: &str| credentials.join(name).display().to_string();
        let mut command = program::command(&program, Cores::Client);
        let mut controllers = vec![
            "deployment-controller",
            "replicaset-controller",
            "garbage-collector-controller",
            "namespace-controller",
            "serviceaccount-controller",
        ];
        if mixed {
            controllers.extend(["statefulset-controller", "job-controller"]);
        }
        command.args([
            format!("--controllers={}", controllers.join(",")),
            format!("--kubeconfig={}", server.kubeconfig().display()),
            format!(
                "--service-account-private-key-file={}",
                file("service-accounts.key")
            ),
            format!("--root-ca-file={}", file("ca.crt")),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            "--kube-api-qps=100000".into(),
            "--kube-api-burst=100000".into(),
        ]);
        let mut running = Running::start("kube-controller-manager", &mut command)?;
        std::thread::sleep(WARM_UP * 2);
        if !running.is_alive() {
            bail!(
                "kube-controller-manager exited immediately: {}",
                running.end()
            );
        }
        Ok(running)
    }

    fn deploy(
        &self,
        mut loops: Running,
        server: &[String],
        objects: usize,
        mixed: bool,
    ) -> Result<Value> {
        let pid = loops.pid();
        let before = program::cpu_of(pid);
        let mut args = server.to_vec();
        args.extend(["--objects".to_owned(), objects.to_string()]);
        args.extend(mixed.then(|| "--mixed".to_owned()));
        let driven = self.drive(
            "drive-cluster",
            &args,
            Cores::Server,
            Duration::from_secs(240),
        );
        let cpu = program::cpu_of(pid) - before;
        let peak = program::memory_of(pid, "VmHWM");
        let words = loops.end();
        let mut line = driven.with_context(|| format!("last output: {words}"))?;
        merge(&mut line, &json!({"cpu_s": cpu, "peak_kib": peak}));
        Ok(line)
    }
}
