//! Starts and stops the processes of one control plane, in order.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::credentials::Credentials;
use super::process::Process;
use super::run_dir::{RunDir, State, remove, write_private};
use super::{
    BARE_VARIABLE, ELECTOR_VARIABLE, KUBECONFIG_VARIABLE, KUBECTL_VARIABLE, XTASK_VARIABLE,
    binaries, cache_dir, elector, quoted,
};
use crate::interrupt::Interrupt;

/// Time limit of each step: the API server until it is ready, the controller manager until its
/// first object exists. Normally seconds; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_mins(2);

/// The audit policy of the API server, which logs writes to `logs/audit.log`: Leases and new
/// `ConfigMap`s for the leader election tests, and objects called `audited` for the differential.
const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- level: Request
  resources: [{ group: "", resources: ["*"], resourceNames: [audited] }]
- level: RequestResponse
  verbs: [create, update]
  resources: [{ group: coordination.k8s.io, resources: [leases] }]
- level: Metadata
  verbs: [create]
  resources: [{ group: "", resources: [configmaps] }]
- level: None
"#;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) controller_manager: bool,
    /// `None` for any free port.
    pub(crate) api_server_port: Option<u16>,
}

/// A running control plane. Dropping this value leaves it running: [`down`] stops it.
pub(crate) struct ControlPlane {
    dir: RunDir,
    state: State,
}

impl ControlPlane {
    /// Starts a control plane in `dir` and waits until it is ready. A failure leaves only the logs
    /// behind.
    pub(crate) fn up(dir: RunDir, options: Options, interrupt: &Interrupt) -> Result<Self> {
        if let Some(state) = alive(&dir)? {
            bail!(
                "already running: API server https://127.0.0.1:{}, files in {} \
                 (stop it with cargo xtask real-cluster down, or start another with --dir)",
                state.api_server_port,
                dir.path().display()
            );
        }
        let cache = cache_dir()?;
        let bin = binaries::ensure(&cache, interrupt)?;
        let elector = elector::ensure(&cache, interrupt)?;
        // Another process may take a free port before our process binds it.
        for _ in 0..3 {
            let mut start = Start::new(&dir, &bin, &elector, options, interrupt)?;
            match start.run() {
                Ok(()) => {
                    let state = start.state;
                    return Ok(Self { dir, state });
                }
                Err(why) => {
                    let lost_a_port = start.state.processes.iter().any(Process::lost_its_port);
                    down(&dir)?;
                    if !lost_a_port || interrupt.is_raised() {
                        return Err(why);
                    }
                }
            }
        }
        bail!("another process took a chosen port, three times in a row; try again")
    }

    /// Returns the control plane of `dir`, if it is running.
    pub(crate) fn running(dir: RunDir) -> Result<Option<Self>> {
        Ok(alive(&dir)?.map(|state| Self { dir, state }))
    }

    pub(crate) fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The folder of the binaries, including kubectl.
    pub(crate) fn bin(&self) -> &Path {
        &self.state.bin
    }

    /// Returns the pids of the processes, in start order.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        let processes = self.state.processes.iter();
        processes.filter_map(|process| u32::try_from(process.pid).ok())
    }

    /// Restarts the API server and waits until it is ready.
    pub(crate) fn restart_api_server(&mut self, interrupt: &Interrupt) -> Result<()> {
        let server = self.process("kube-apiserver")?;
        *server = server.restart()?;
        self.dir.write_state(&self.state)?;
        let what = "the API server to be ready again";
        wait_for(&self.dir, &self.state, interrupt, what, "/readyz")
    }

    /// Compacts etcd up to its current revision and returns it.
    pub(crate) fn compact(&mut self) -> Result<i64> {
        // Every response carries the revision.
        let range = self.ask_etcd("range", &serde_json::json!({ "key": "AA==" }))?;
        let revision = range["header"]["revision"].as_str();
        let revision: i64 = revision
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("no revision in etcd's response: {range}"))?;
        let compact = serde_json::json!({ "revision": revision, "physical": true });
        self.ask_etcd("compaction", &compact)?;
        Ok(revision)
    }

    /// Sends a request to etcd's JSON gateway with kubectl, which can post a file to any path with
    /// any certificate.
    fn ask_etcd(&mut self, what: &str, body: &serde_json::Value) -> Result<serde_json::Value> {
        let server = self.process("kube-apiserver")?;
        let flag = |name: &str| {
            let value = server.flag(name).map(str::to_owned);
            value.with_context(|| format!("kube-apiserver was started without --{name}"))
        };
        let (url, ca) = (flag("etcd-servers")?, flag("etcd-cafile")?);
        let (cert, key) = (flag("etcd-certfile")?, flag("etcd-keyfile")?);
        let file = self.dir.path().join("etcd-request.json");
        write_private(&file, &body.to_string())?;
        let answer = Command::new(self.state.bin.join("kubectl"))
            .env("KUBECONFIG", "/dev/null")
            .args(["--server", &url, "--certificate-authority", &ca])
            .args(["--client-certificate", &cert, "--client-key", &key])
            .args(["create", "--raw", &format!("/v3/kv/{what}"), "--filename"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .context("cannot run kubectl")?;
        remove(&file)?;
        if !answer.status.success() {
            let why = String::from_utf8_lossy(&answer.stderr);
            bail!("etcd rejected {what}: {}", why.trim());
        }
        serde_json::from_slice(&answer.stdout).context("etcd's response is not JSON")
    }

    fn process(&mut self, name: &str) -> Result<&mut Process> {
        let mut processes = self.state.processes.iter_mut();
        let found = processes.find(|process| process.name == name);
        found.with_context(|| format!("no process {name}"))
    }

    /// The kubectl of the same version.
    pub(crate) fn kubectl(&self) -> PathBuf {
        self.state.bin.join("kubectl")
    }

    /// The replica elected by client-go.
    pub(crate) fn elector(&self) -> PathBuf {
        self.state.elector.clone()
    }

    /// Returns shell exports.
    pub(crate) fn exports(&self) -> String {
        let kubeconfig = quoted(&self.dir.kubeconfig());
        let bin = quoted(&self.state.bin);
        let kubectl = quoted(&self.kubectl());
        let elector = quoted(&self.state.elector);
        let xtask = quoted(&std::env::current_exe().unwrap_or_default());
        let managed = |process: &Process| process.name == "kube-controller-manager";
        let variable = if self.state.processes.iter().any(managed) {
            KUBECONFIG_VARIABLE
        } else {
            BARE_VARIABLE
        };
        format!(
            "export KUBECONFIG={kubeconfig}\n\
             export {variable}={kubeconfig}\n\
             export {KUBECTL_VARIABLE}={kubectl}\n\
             export {ELECTOR_VARIABLE}={elector}\n\
             export {XTASK_VARIABLE}={xtask}\n\
             export PATH={bin}:\"$PATH\"\n"
        )
    }

    /// Describes the running processes and their addresses.
    pub(crate) fn describe(&self) -> String {
        let processes: Vec<String> = self
            .state
            .processes
            .iter()
            .map(|p| format!("{} (pid {})", p.name, p.pid))
            .collect();
        format!(
            "API server  https://127.0.0.1:{}\nprocesses   {}\nkubeconfig  {}\nkubectl     {}\nlogs        {}",
            self.state.api_server_port,
            processes.join(", "),
            self.dir.kubeconfig().display(),
            self.state.bin.join("kubectl").display(),
            self.dir.logs().display(),
        )
    }
}

/// Returns what is running in `dir`. A control plane with a dead process is an error.
fn alive(dir: &RunDir) -> Result<Option<State>> {
    let Some(state) = dir.state()? else {
        return Ok(None);
    };
    let (alive, dead): (Vec<_>, Vec<_>) = state.processes.iter().partition(|p| p.is_alive());
    if alive.is_empty() {
        return Ok(None);
    }
    if dead.is_empty() {
        return Ok(Some(state));
    }
    let names = |processes: &[&Process]| {
        let names: Vec<&str> = processes.iter().map(|p| p.name.as_str()).collect();
        names.join(", ")
    };
    bail!(
        "only part of it is running: {} alive, {} dead; logs in {} \
         (clear it away with cargo xtask real-cluster down)",
        names(&alive),
        names(&dead),
        dir.logs().display()
    )
}

/// Stops the processes of `dir` in reverse start order and returns the names of those that were
/// alive.
pub(crate) fn down(dir: &RunDir) -> Result<Vec<String>> {
    let mut stopped = Vec::new();
    if let Some(state) = dir.state()? {
        for process in state.processes.iter().rev() {
            if process.stop()? {
                stopped.push(process.name.clone());
            }
        }
    }
    dir.clear()?;
    Ok(stopped)
}

/// Stops the processes that killed tasks left running, and removes the files that finished tasks
/// left, in directories below `parent` whose name starts with `prefix`.
pub(crate) fn down_abandoned(parent: &Path, prefix: &str) -> Result<()> {
    for dir in RunDir::idle(parent, prefix)? {
        let stopped = down(&dir)?;
        if !stopped.is_empty() {
            println!(
                "stopped {}, left behind by a killed task",
                stopped.join(", ")
            );
        }
        dir.remove()?;
    }
    Ok(())
}

/// One attempt at starting everything.
struct Start<'a> {
    dir: &'a RunDir,
    options: Options,
    interrupt: &'a Interrupt,
    credentials: Credentials,
    state: State,
}

impl<'a> Start<'a> {
    fn new(
        dir: &'a RunDir,
        bin: &Path,
        elector: &Path,
        options: Options,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let api_server_port = match options.api_server_port {
            Some(port) => claim(port)?,
            None => free_port()?,
        };
        dir.prepare()?;
        let credentials = Credentials::create(&dir.credentials())?;
        credentials.write_kubeconfigs(&dir.kubeconfig(), api_server_port)?;
        std::fs::write(dir.audit_policy(), AUDIT_POLICY)
            .context("cannot write the audit policy")?;
        let state = State {
            api_server_port,
            bin: bin.to_owned(),
            elector: elector.to_owned(),
            processes: Vec::new(),
        };
        Ok(Self {
            dir,
            options,
            interrupt,
            credentials,
            state,
        })
    }

    fn run(&mut self) -> Result<()> {
        let etcd = format!("https://127.0.0.1:{}", free_port()?);
        self.spawn("etcd", &self.etcd_flags(&etcd)?)?;
        self.spawn("kube-apiserver", &self.api_server_flags(&etcd))?;
        self.wait_for("the API server to be ready", "/readyz")?;
        if self.options.controller_manager {
            self.spawn("kube-controller-manager", &self.controller_manager_flags())?;
            // The default service account proves that it works.
            let account = "/api/v1/namespaces/default/serviceaccounts/default";
            self.wait_for(
                "the controller manager to create the default service account",
                account,
            )?;
        } else {
            self.wait_for("the default namespace", "/api/v1/namespaces/default")?;
        }
        Ok(())
    }

    /// Starts a program and records it immediately, so that `down` always finds it.
    fn spawn(&mut self, name: &str, flags: &[String]) -> Result<()> {
        let log = self.dir.logs().join(format!("{name}.log"));
        let process = Process::spawn(name, &self.state.bin.join(name), flags, &log)?;
        self.state.processes.push(process);
        self.dir.write_state(&self.state)
    }

    fn wait_for(&self, what: &str, path: &str) -> Result<()> {
        wait_for(self.dir, &self.state, self.interrupt, what, path)
    }

    fn etcd_flags(&self, url: &str) -> Result<Vec<String>> {
        let peers = format!("https://127.0.0.1:{}", free_port()?);
        let file = |name| self.credentials.file(name);
        Ok(flags(&[
            ("name", "default".into()),
            ("data-dir", self.dir.data().display().to_string()),
            ("listen-client-urls", url.into()),
            ("advertise-client-urls", url.into()),
            ("listen-peer-urls", peers.clone()),
            ("initial-advertise-peer-urls", peers.clone()),
            ("initial-cluster", format!("default={peers}")),
            ("cert-file", file("tls.crt")),
            ("key-file", file("tls.key")),
            ("trusted-ca-file", file("ca.crt")),
            ("client-cert-auth", "true".into()),
            ("peer-cert-file", file("tls.crt")),
            ("peer-key-file", file("tls.key")),
            ("peer-trusted-ca-file", file("ca.crt")),
            ("peer-client-cert-auth", "true".into()),
            // The data is temporary, so there is no point in waiting for the disk.
            ("unsafe-no-fsync", "true".into()),
        ]))
    }

    fn api_server_flags(&self, etcd: &str) -> Vec<String> {
        let file = |name| self.credentials.file(name);
        // Without a controller manager, the service accounts that Pods need are never created.
        let needless = if self.options.controller_manager {
            ""
        } else {
            "ServiceAccount"
        };
        flags(&[
            ("disable-admission-plugins", needless.into()),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", self.state.api_server_port.to_string()),
            ("tls-cert-file", file("tls.crt")),
            ("tls-private-key-file", file("tls.key")),
            ("etcd-servers", etcd.into()),
            ("etcd-cafile", file("ca.crt")),
            ("etcd-certfile", file("tls.crt")),
            ("etcd-keyfile", file("tls.key")),
            ("authorization-mode", "RBAC".into()),
            ("token-auth-file", file("tokens.csv")),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".into(),
            ),
            ("service-account-key-file", file("service-accounts.pub")),
            (
                "service-account-signing-key-file",
                file("service-accounts.key"),
            ),
            ("service-cluster-ip-range", "10.96.0.0/16".into()),
            ("allow-privileged", "true".into()),
            // Endpoints reject loopback addresses, and no Pod runs here that would use them.
            ("advertise-address", "127.0.0.1".into()),
            ("endpoint-reconciler-type", "none".into()),
            (
                "audit-policy-file",
                self.dir.audit_policy().display().to_string(),
            ),
            (
                "audit-log-path",
                self.dir.logs().join("audit.log").display().to_string(),
            ),
        ])
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        let file = |name| self.credentials.file(name);
        flags(&[
            ("kubeconfig", file("controller-manager.kubeconfig")),
            // Each loop under its own account and its own RBAC role, as in a real cluster.
            ("use-service-account-credentials", "true".into()),
            (
                "service-account-private-key-file",
                file("service-accounts.key"),
            ),
            ("root-ca-file", file("ca.crt")),
            ("cluster-signing-cert-file", file("ca.crt")),
            ("cluster-signing-key-file", file("ca.key")),
            ("leader-elect", "false".into()),
            // Its own endpoints are unused.
            ("secure-port", "0".into()),
        ])
    }
}

/// Waits until a GET of `path` succeeds.
fn wait_for(
    dir: &RunDir,
    state: &State,
    interrupt: &Interrupt,
    what: &str,
    path: &str,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = Command::new(state.bin.join("kubectl"))
            .arg("--kubeconfig")
            .arg(dir.kubeconfig())
            .args(["--request-timeout=5s", "get", "--raw", path])
            .stdin(Stdio::null())
            .output()
            .context("cannot run kubectl")?;
        if interrupt.is_raised() {
            bail!("interrupted");
        }
        if let Some(dead) = state.processes.iter().find(|p| !p.is_alive()) {
            bail!(
                "{} exited while starting:\n{}",
                dead.name,
                dead.last_words()
            );
        }
        if answer.status.success() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let last = state.processes.last().map(Process::last_words);
            bail!(
                "waited {} s for {what}: {}\n{}",
                PATIENCE.as_secs(),
                String::from_utf8_lossy(&answer.stderr).trim(),
                last.unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?.port())
}

fn claim(port: u16) -> Result<u16> {
    TcpListener::bind(("127.0.0.1", port))
        .map(|_| port)
        .map_err(|error| anyhow!("port {port} is not available ({error}): choose another, or omit it for any free port"))
}
