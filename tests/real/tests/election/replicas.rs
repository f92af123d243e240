//! The processes that compete for the Lease.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use pintle::clock::Clock;
use real_tests::{ELECTOR_VARIABLE, eventually, from_environment, kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

pub(super) const LEASE: &str = "operator";
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(4);
const RENEW_DEADLINE: Duration = Duration::from_millis(2_500);
const RETRY_PERIOD: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Elected by Pintle, with a wall clock that is off by this many hours.
    Pintle { skew_hours: i32 },
    /// Elected by client-go.
    ClientGo { releases: bool },
}

/// One process. It is killed when this is dropped, and exits on its own if this process is killed.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) identity: String,
    pub(super) kind: Kind,
    child: Child,
    /// Taken out of `child`, which would close it before waiting for the process.
    #[allow(dead_code, reason = "closed on drop, which ends the process")]
    stdin: ChildStdin,
    said: Arc<Mutex<Vec<String>>>,
}

impl Replica {
    /// Starts a process and waits until it knows the leader.
    pub(super) async fn start(identity: String, kind: Kind, namespace: &str) -> Self {
        let program = match kind {
            Kind::Pintle { .. } => PathBuf::from(env!("CARGO_BIN_EXE_replica")),
            Kind::ClientGo { .. } => from_environment(ELECTOR_VARIABLE),
        };
        let mut command = command(&program, &identity, namespace);
        match kind {
            Kind::Pintle { skew_hours } => command.arg(format!("--skew={skew_hours}h")),
            Kind::ClientGo { releases } => command.arg(format!("--release={releases}")),
        };
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listened = Arc::clone(&said);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                listened.lock().unwrap().push(line);
            }
        });
        let replica = Self {
            identity,
            kind,
            stdin: child.stdin.take().unwrap(),
            child,
            said,
        };
        replica.says("following", 1).await;
        replica
    }

    /// Waits until it has printed `line` this many times.
    pub(super) async fn says(&self, line: &str, times: usize) {
        let what = format!("{} to print {line}", self.identity);
        eventually(&what, async || {
            let said = self.said.lock().unwrap();
            (said.iter().filter(|said| *said == line).count() >= times).then_some(())
        })
        .await;
    }

    /// Returns how many terms of this process have ended.
    pub(super) fn ended(&self) -> usize {
        let said = self.said.lock().unwrap();
        said.iter().filter(|said| *said == "ended").count()
    }

    /// Sends a signal and returns the time.
    pub(super) fn signal(&self, signal: Signal) -> Timestamp {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(Pid::from_raw).unwrap();
        let now = Clock::system().now();
        kill_process(pid, signal).unwrap();
        now
    }

    /// Waits until the process has exited after SIGTERM.
    pub(super) async fn exits(mut self) {
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        let status = status.unwrap().unwrap();
        assert!(status.success(), "{}: {status}", self.identity);
    }

    pub(super) fn is_pintle(&self) -> bool {
        matches!(self.kind, Kind::Pintle { .. })
    }
}

fn command(program: &Path, identity: &str, namespace: &str) -> Command {
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    let millis = |name: &str, value: Duration| format!("--{name}={}ms", value.as_millis());
    let mut command = Command::new(program);
    command
        .arg(flag("kubeconfig", &kubeconfig().display().to_string()))
        .arg(flag("namespace", namespace))
        .arg(flag("lease", LEASE))
        .arg(flag("identity", identity))
        .arg(millis("lease-duration", LEASE_DURATION))
        .arg(millis("renew-deadline", RENEW_DEADLINE))
        .arg(millis("retry-period", RETRY_PERIOD))
        .arg(millis("pause", PAUSE))
        // It exits when the pipe is closed.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}
