//! Controllers that are programs in any language: they run as processes, in real time, against the
//! API server over TLS.
//!
//! ```text
//! program ─► TCP proxy ─► TLS listener ─► API server ◄── users, garbage collector, kubelets
//!    ▲           ▲                           │
//!    │           └── cut, hold, refuse ──────┤ after a write was committed
//!    └────────────── kill, stop, continue ───┘
//! ```
//!
//! The planners, the story and the oracles are the same as for a controller in this process. Writes
//! are observed as commits of the server, and the fault is injected before the response leaves: a
//! crash after one write is also a crash before the next write.

mod proxy;
mod story;

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal as Kill, kill_process_group};
use tokio::{
    net::TcpListener,
    process::Command,
    sync::mpsc,
    time::{Instant, sleep},
};

use self::proxy::Gate;
use crate::{
    Check,
    check::check,
    hub::{Hub, Signal},
    plan::Fault,
    run::timing::Timing,
    trace::Abort,
};

/// How long a crashed program takes to restart.
const RESTART: Duration = Duration::from_secs(1);
/// How long a program is stopped, as by a debugger or a machine out of memory.
const STOPPED: Duration = Duration::from_secs(5);
/// How long the API server is down.
const DOWN: Duration = Duration::from_secs(3);
/// How long two processes run side by side.
const OVERLAP: Duration = Duration::from_secs(4);
/// How often the program may exit on its own before the scenario ends.
const EXITS: u32 = 8;
/// The families that can be injected into a program.
const FAMILIES: [&str; 11] = [
    "crash-after",
    "lost-response",
    "delay",
    "paused",
    "overlap",
    "server-restart",
    "stopped",
    "drift-delete",
    "user-next",
    "user-delete",
    "user-recreate",
];

/// A program that is tested.
#[derive(Debug)]
pub(crate) struct Program {
    command: String,
    /// How many scenarios were started.
    started: AtomicUsize,
}

/// Starts a check of a program: an operator in any language, which connects to the API server of a
/// kubeconfig.
///
/// `command` is run by a shell, with `{}` replaced by the path of a kubeconfig, which is also in
/// the environment as `KUBECONFIG`. `story` is a directory of YAML files, which are applied in file
/// name order, one step for each object. Files whose names end with `.delete.yaml` delete the
/// objects that they name. CRDs, and files whose names start with `given`, are installed before the
/// program starts.
///
/// Scenarios run in real time and take some seconds each. By default, four per core run
/// concurrently.
///
/// ```no_run
/// pintle_trials::program("./operator --kubeconfig {}", "story").sample(50).run();
/// ```
pub fn program(command: impl Into<String>, story: impl AsRef<Path>) -> Check {
    let mut check = check(|_| async {});
    check = check.name("program");
    check.options.replay_with = ("pintle-trials run ... --replay ", String::new());
    check.options.budget = Duration::from_secs(60 * 60);
    check.options.jobs = check.options.jobs.saturating_mul(4);
    check = check.only(&FAMILIES);
    check.setup.within = Duration::from_secs(90);
    check.setup.timing = timing(Duration::from_secs(2));
    check.setup.is_program = true;
    check.setup.program = Some(Arc::new(Program {
        command: command.into(),
        started: AtomicUsize::new(0),
    }));
    match story::load(story.as_ref()) {
        Ok(story) => {
            check.setup.crds = story.crds;
            check.setup.given = story.given;
            check.story = story.steps;
        }
        Err(error) => check.errors.push(error),
    }
    check
}

fn timing(idle: Duration) -> Timing {
    Timing {
        start: idle,
        long_idle: idle * 2,
        short_idle: idle,
        last_idle: idle,
        gap: Duration::from_millis(300),
        day: (idle * 4, idle),
        after_restart: idle * 3,
        deadline: Duration::from_secs(120),
        poll: Duration::from_millis(200),
        waits: &[2, 3, 5, 10, 20, 30],
    }
}

impl Check {
    /// Sets how long a program gets to start, and how long nothing may change before the cluster
    /// counts as idle. Must be longer than the timers with which the program waits for something.
    /// Default: two seconds.
    pub fn idle(mut self, time: Duration) -> Self {
        if self.setup.is_program {
            self.setup.timing = timing(time);
        }
        self
    }
}

/// The running processes, by number. They are killed with the scenario.
#[derive(Debug, Default)]
struct Processes(Mutex<BTreeMap<u32, Pid>>);

impl Processes {
    fn signal(&self, id: u32, signal: Kill) {
        if let Some(pid) = self.0.lock().get(&id) {
            // The process may have exited just now.
            let _ = kill_process_group(*pid, signal);
        }
    }

    fn newest(&self) -> Option<u32> {
        self.0.lock().keys().next_back().copied()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for pid in self.0.lock().values() {
            let _ = kill_process_group(*pid, Kill::KILL);
        }
    }
}

/// Starts processes of the program.
struct Launcher {
    hub: Arc<Hub>,
    command: String,
    kubeconfig: PathBuf,
    log: PathBuf,
    processes: Arc<Processes>,
}

impl Launcher {
    /// Starts a process.
    fn start(&self, id: u32) -> std::io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("exec {}", self.command))
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        self.processes.0.lock().extend(pid.map(|pid| (id, pid)));
        {
            let mut record = self.hub.record.lock();
            record.process = id;
            record.mark(format!("process {id} starts"));
            record.busy_for(RESTART);
        }
        let hub = Arc::clone(&self.hub);
        tokio::task::spawn_local(async move {
            let status = child.wait().await;
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let _ = hub.signals.send(Signal::Exited(id, Some(how)));
        });
        Ok(())
    }
}

/// Serves the cluster and runs the program until the scenario ends.
pub(crate) async fn supervise(
    hub: Arc<Hub>,
    program: Arc<Program>,
    signals: mpsc::UnboundedReceiver<Signal>,
) {
    if let Err(error) = serve(Arc::clone(&hub), &program, signals).await {
        hub.give_up(Abort::Story(format!("cannot run the program: {error}")));
    }
}

async fn serve(
    hub: Arc<Hub>,
    program: &Program,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) -> Result<(), Box<dyn std::error::Error>> {
    let bound = hub.server.serve("127.0.0.1:0").await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    let gate = Arc::new(Gate::default());
    let folder = tempfile::Builder::new()
        .prefix("pintle-trials-")
        .tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, bound.kubeconfig().replace(&bound.url(), &url))?;
    tokio::task::spawn_local(proxy::run(listener, bound.address(), Arc::clone(&gate)));

    let processes = Arc::new(Processes::default());
    let (of_hub, of_gate) = (Arc::downgrade(&hub), Arc::clone(&gate));
    let of_processes = Arc::downgrade(&processes);
    let inject = move |fault| {
        if let (Some(hub), Some(processes)) = (of_hub.upgrade(), of_processes.upgrade()) {
            inject(&hub, &of_gate, &processes, fault);
        }
    };
    let _ = hub.inject.set(Box::new(inject));
    let number = program.started.fetch_add(1, Ordering::Relaxed);
    let launcher = Launcher {
        hub: Arc::clone(&hub),
        command: program
            .command
            .replace("{}", &kubeconfig.display().to_string()),
        kubeconfig,
        log: std::env::temp_dir()
            .join(format!("pintle-trials-{}-{number}.log", std::process::id())),
        processes: Arc::clone(&processes),
    };
    {
        let log = launcher.log.display();
        hub.record
            .lock()
            .mark(format!("output of the program: {log}"));
    }
    let (mut next, mut exits, mut stopped) = (1, 0, false);
    let mut start = || {
        next += 1;
        launcher.start(next - 1)
    };
    start()?;
    while let Some(signal) = signals.recv().await {
        match signal {
            Signal::Crash(id) => {
                processes.signal(id, Kill::KILL);
                processes.0.lock().remove(&id);
                later(&hub, RESTART, Signal::Start);
            }
            Signal::Exited(id, how) => {
                if processes.0.lock().remove(&id).is_none() {
                    // It was killed.
                    continue;
                }
                exits += 1;
                let how = how.unwrap_or_default();
                hub.record.lock().mark(format!("process {id} exits: {how}"));
                if exits > EXITS {
                    hub.give_up(Abort::CrashLoop(EXITS as usize + 1, how));
                    return Ok(());
                }
                let delay = RESTART * 2_u32.saturating_pow(exits - 1).min(8);
                hub.record.lock().busy_for(delay + RESTART * 2);
                later(&hub, delay, Signal::Start);
            }
            Signal::Start | Signal::Resume => {
                stopped &= !matches!(signal, Signal::Resume);
                if !stopped && processes.newest().is_none() {
                    start()?;
                }
            }
            Signal::Stop => {
                stopped = true;
                for id in std::mem::take(&mut *processes.0.lock()).into_values() {
                    let _ = kill_process_group(id, Kill::KILL);
                }
            }
            Signal::Overlap(id) => {
                start()?;
                later(&hub, OVERLAP, Signal::Retire(id));
            }
            Signal::Retire(id) => {
                processes.signal(id, Kill::KILL);
                processes.0.lock().remove(&id);
            }
            Signal::Pause(_) => {}
        }
    }
    Ok(())
}

/// Sends a signal after a delay.
fn later(hub: &Arc<Hub>, delay: Duration, signal: Signal) {
    let signals = hub.signals.clone();
    tokio::task::spawn_local(async move {
        sleep(delay).await;
        let _ = signals.send(signal);
    });
}

/// Injects a fault. Runs before the response to the write leaves the server.
fn inject(hub: &Arc<Hub>, gate: &Gate, processes: &Arc<Processes>, fault: Fault) {
    let id = processes.newest().unwrap_or_default();
    let busy = |time: Duration| {
        let mut record = hub.record.lock();
        record.mark(format!("{} (fault)", fault.name()));
        record.busy_for(time + RESTART);
    };
    match fault {
        Fault::CrashAfter => {
            busy(RESTART * 2);
            processes.signal(id, Kill::KILL);
            gate.cut();
            let _ = hub.signals.send(Signal::Crash(id));
        }
        Fault::LostResponse => {
            busy(RESTART);
            gate.cut();
        }
        Fault::ServerRestart => {
            busy(DOWN + RESTART);
            hub.server.compact();
            gate.close(DOWN);
        }
        Fault::Delay(by) => {
            busy(by);
            gate.hold(by);
        }
        Fault::Paused => {
            busy(STOPPED + RESTART);
            processes.signal(id, Kill::STOP);
            let until = Instant::now() + STOPPED;
            let processes = Arc::downgrade(processes);
            tokio::task::spawn_local(async move {
                tokio::time::sleep_until(until).await;
                if let Some(processes) = processes.upgrade() {
                    processes.signal(id, Kill::CONT);
                }
            });
        }
        Fault::Overlap => {
            busy(OVERLAP + RESTART);
            let _ = hub.signals.send(Signal::Overlap(id));
        }
        Fault::UserDelete | Fault::UserNext | Fault::UserRecreate => {
            busy(RESTART);
            let hub = Arc::clone(hub);
            tokio::task::spawn_local(async move {
                match fault {
                    Fault::UserDelete => hub.user_delete().await,
                    Fault::UserNext => {
                        hub.advance().await;
                    }
                    _ => hub.user_recreate().await,
                }
            });
        }
        _ => {}
    }
}
