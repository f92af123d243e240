//! The program as a process: its output, probes, signals and exit codes.

use std::{
    net::SocketAddr,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use http::{Method, StatusCode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use pintle_apiserver::{ApiServer, Bound, Hold, Points};
use rustix::process::{Pid, Signal, kill_process};
use sample_controller::foo::Foo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long a process may take for one step, on a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Program {
    pub(crate) process: Child,
    out: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sample-controller"))
            .args(args)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, out }
    }

    async fn line(&mut self) -> String {
        let line = timeout(TIMEOUT, self.out.next_line()).await;
        line.expect("timed out").unwrap().expect("end of output")
    }

    /// Reads lines up to and including one that starts with `beginning`.
    pub(crate) async fn until(&mut self, beginning: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.line().await);
            if lines.last().is_some_and(|line| line.starts_with(beginning)) {
                return lines;
            }
        }
    }

    /// Waits for the program to print the address of its probes.
    async fn probes(&mut self) -> SocketAddr {
        let beginning = "Probes and metrics on http://";
        let lines = self.until(beginning).await;
        lines[lines.len() - 1][beginning.len()..].parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits for the program to exit. Returns its status and its log.
    async fn end(mut self) -> (ExitStatus, String) {
        let mut log = String::new();
        let mut err = self.process.stderr.take().unwrap();
        let ended = async {
            err.read_to_string(&mut log).await.unwrap();
            self.process.wait().await.unwrap()
        };
        let status = timeout(TIMEOUT, ended).await.expect("timed out");
        (status, log)
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// Polls `/readyz` until status and body match `predicate`.
async fn until_readyz(address: SocketAddr, predicate: impl Fn(u16, &str) -> bool) {
    let ready = async {
        loop {
            let (status, text) = get(address, "/readyz").await;
            if predicate(status, &text) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, ready).await.expect("timed out");
}

/// Proves sample/exit-codes, controller/span, sample/narration, metrics/names.
#[tokio::test]
async fn without_a_cluster_it_starts_one_and_narrates() {
    let mut program = Program::start(&["--bind", "127.0.0.1:0", "-v", "--log-json"]);
    let intro = program.until("Embedded cluster listening on").await;
    assert!(intro[1].contains("https://127.0.0.1:"), "{intro:?}");
    let probes = program.probes().await;
    let narration = program.until("Press Ctrl-C to stop.").await;
    for line in intro.iter().chain(&narration) {
        assert!(
            line.chars().count() <= 80,
            "{line:?} is wider than a terminal"
        );
    }
    let narration = narration.join("\n");
    for step in [
        "\nFoo/example-foo                    event Synced: Foo synced successfully\n",
        "\nDeployment/example-foo             1 replica, 1 ready, for Foo/example-foo\n",
        "\nReplicaSet/example-foo-",
        "\nPod/example-foo-",
        "\nsample-controller                  created Deployment/example-foo\n",
        "\nsample-controller                  updated the status of Foo/example-foo\n",
        "1 available, Ready=True (Available)",
        "kubectl edit foo example-foo",
        "kubectl get events",
    ] {
        assert!(
            narration.contains(step),
            "{step:?} is missing in\n{narration}"
        );
    }
    assert_eq!(get(probes, "/readyz").await.0, 200);
    let (_, metrics) = get(probes, "/metrics").await;
    for family in ["reflector_", "informer_", r#"{name="Foos""#, "events_"] {
        assert!(
            metrics.contains(family),
            "{family} is missing in\n{metrics}"
        );
    }

    program.signal(Signal::INT);
    let (status, log) = program.end().await;
    assert_eq!(status.code(), Some(0), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let created = lines
        .iter()
        .find(|line| line["fields"]["message"] == "created Deployment/example-foo");
    let created = created.unwrap_or_else(|| panic!("creation not logged:\n{log}"));
    assert_eq!(created["span"]["name"], "sync", "{log}");
    assert_eq!(created["span"]["foo"], "default/example-foo");
    let last = lines
        .iter()
        .any(|line| line["fields"]["message"] == "Shutting down workers");
    assert!(last, "{log}");
}

/// Proves sample/exit-codes.
#[tokio::test]
async fn existing_cluster_is_left_alone_without_install_crd() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    let flags = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--bind",
        "127.0.0.1:0",
    ];
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let installed = async || {
        definitions
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len()
    };

    let mut program = Program::start(&flags);
    let first = program.line().await;
    let expected = format!("Using {}/ (context ", bound.url());
    assert!(first.starts_with(&expected), "{first}");
    let probes = program.probes().await;
    until_readyz(probes, |status, reasons| {
        let foos = "[-]informer foos.samplecontroller.k8s.io at cluster scope failed: ";
        let others = "[+]informer deployments.apps at cluster scope ok";
        let why = reasons.contains(foos) && reasons.contains("404");
        status == 503 && why && reasons.contains(others)
    })
    .await;
    assert_eq!(get(probes, "/healthz").await.0, 200);
    assert_eq!(installed().await, 0);
    program.signal(Signal::TERM);
    let (status, log) = program.end().await;
    assert_eq!(status.code(), Some(0), "{log}");

    let mut program = Program::start(&[&flags[..], &["--install-crd"]].concat());
    let probes = program.probes().await;
    until_readyz(probes, |status, _| status == 200).await;
    assert_eq!(installed().await, 1);
    let foos = Api::<Foo>::all(server.client());
    assert!(
        foos.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    program.signal(Signal::INT);
    assert_eq!(program.end().await.0.code(), Some(0));
    bound.shutdown().await;
}

/// Holds the response to each creation of a Deployment until released.
#[derive(Clone, Default)]
struct Holding {
    requested: CancellationToken,
    released: CancellationToken,
}

impl Points for Holding {
    fn before_answer(&self, method: &Method, path: &str, _: StatusCode) -> Option<Hold> {
        if method != Method::POST || !path.ends_with("/deployments") {
            return None;
        }
        self.requested.cancel();
        Some(Box::pin(self.released.clone().cancelled_owned()))
    }
}

/// The program after one Ctrl-C, draining a sync that waits for a held response.
struct Draining {
    program: Program,
    holding: Holding,
    server: ApiServer,
    bound: Bound,
}

impl Draining {
    async fn new() -> Self {
        let holding = Holding::default();
        let server = ApiServer::builder().points(holding.clone()).build();
        let bound = server.serve("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        bound.write_kubeconfig(&kubeconfig).unwrap();
        let mut program = Program::start(&[
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--install-crd",
            "--bind=127.0.0.1:0",
        ]);
        let probes = program.probes().await;
        until_readyz(probes, |status, _| status == 200).await;

        let spec = json!({"deploymentName": "web", "replicas": 1});
        let foo = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec}));
        let foos = Api::<Foo>::default_namespaced(server.client());
        let params = PostParams::default();
        foos.create(&params, &foo.unwrap()).await.unwrap();
        let requested = timeout(TIMEOUT, holding.requested.cancelled()).await;
        requested.expect("no Deployment was created");

        program.signal(Signal::INT);
        // Wait until the signal is handled: two pending signals of the same kind are delivered as
        // one.
        let stopping = |status, reason: &str| status == 503 && reason.contains("shutting down");
        until_readyz(probes, stopping).await;
        assert_eq!(program.process.try_wait().unwrap(), None, "exited early");
        Self {
            program,
            holding,
            server,
            bound,
        }
    }
}

/// Proves sample/exit-codes.
#[tokio::test]
async fn first_signal_drains_the_current_sync() {
    let draining = Draining::new().await;
    draining.holding.released.cancel();
    let (status, log) = draining.program.end().await;
    assert_eq!(status.code(), Some(0), "{log}");
    let foos = Api::<Foo>::default_namespaced(draining.server.client());
    assert!(foos.get("a").await.unwrap().status.is_some());
    draining.bound.shutdown().await;
}

/// Proves sample/exit-codes.
#[tokio::test]
async fn second_signal_exits_immediately() {
    for signal in [Signal::INT, Signal::TERM] {
        let draining = Draining::new().await;
        draining.program.signal(signal);
        let (status, log) = draining.program.end().await;
        assert_eq!(status.code(), Some(1), "{log}");
        let foos = Api::<Foo>::default_namespaced(draining.server.client());
        assert!(foos.get("a").await.unwrap().status.is_none(), "not drained");
        // Dropped, not shut down: a request is still held.
        drop(draining.bound);
    }
}

/// Returns whether the tests run under nohup, which the program inherits.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1)
}

/// Proves sample/exit-codes.
#[tokio::test]
async fn closed_terminal_leaves_no_kubeconfig_behind() {
    if ignores_hangup() {
        return;
    }
    let mut program = Program::start(&[]);
    let export = "export KUBECONFIG=";
    let path = loop {
        let line = program.line().await;
        if let Some(path) = line.trim().strip_prefix(export) {
            break std::path::PathBuf::from(path);
        }
    };
    assert!(path.exists());
    program.signal(Signal::HUP);
    let (status, log) = program.end().await;
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!path.parent().unwrap().exists(), "the token is left behind");
}

/// Proves sample/exit-codes.
#[tokio::test]
async fn startup_errors_are_printed_and_exit_with_1() {
    for (flags, reason) in [
        (
            &["--kubeconfig", "/nowhere/kubeconfig"][..],
            "/nowhere/kubeconfig",
        ),
        (&["--master", "127.0.0.1:1"], "https://host:port"),
        (
            &["--kube-api-qps=5", "--kube-api-burst=0"],
            "invalid burst: must be at least 1",
        ),
    ] {
        let mut program = Program::start(flags);
        let printed = timeout(TIMEOUT, program.out.next_line()).await;
        assert_eq!(printed.unwrap().unwrap(), None, "errors go to stderr");
        let (status, log) = program.end().await;
        assert!(log.starts_with("error: ") && log.contains(reason), "{log}");
        assert_eq!(status.code(), Some(1));
    }
}

/// Proves sample/exit-codes.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_exits_with_1() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_sample-controller"))
        .arg("crd")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(printed.status.code(), Some(1));
}
