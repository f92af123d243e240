//! The controller's processes: starting, crashing, restarting.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Once},
    time::Duration,
};

use futures::{FutureExt, future::LocalBoxFuture};
use pintle_apiserver::User;
use pintle_clock::Rng;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    cx::Cx,
    gateway::{Gateway, PAUSE, Session},
    hub::{Hub, Signal},
    trace::Abort,
};

/// How long a crashed process takes to restart.
const RESTART: Duration = Duration::from_secs(1);
/// How long two processes run side by side.
pub(crate) const OVERLAP: Duration = Duration::from_secs(6);
/// How often a process may exit on its own before the scenario is aborted.
const EXITS: u32 = 8;
/// The user that the controller acts as.
pub(crate) const USER: &str = "system:serviceaccount:default:controller";

/// Starts the controller in a new process.
pub(crate) type Factory = Arc<dyn Fn(Cx) -> LocalBoxFuture<'static, ()> + Send + Sync>;

thread_local! {
    /// The panics of the scenario on this thread.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    /// The main task of the process that started last. Older tasks count as tasks of ended
    /// processes.
    static MAIN_TASK: Cell<u64> = const { Cell::new(0) };
}

/// The main task while no process runs.
const NO_PROCESS: u64 = u64::MAX;

/// Ignores panics until the next process starts: after a crash, no task of the process would run.
pub(crate) fn ignore_panics() {
    MAIN_TASK.set(NO_PROCESS);
}

/// Returns the number of a task. Tokio numbers tasks in the order in which they are spawned. It
/// does not promise to; `panics_of_crashed_processes_do_not_count` fails if that changes.
fn number(task: tokio::task::Id) -> u64 {
    task.to_string().parse().unwrap_or(NO_PROCESS - 1)
}

/// Returns whether the current task belongs to a process that has ended.
fn is_ended() -> bool {
    let main = MAIN_TASK.get();
    main == NO_PROCESS || tokio::task::try_id().is_some_and(|task| number(task) < main)
}

/// Collects panics on this thread instead of printing them. Panics of crashed processes are
/// dropped.
pub(crate) fn collect_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let collected = PANICS.with_borrow_mut(|panics| {
                let Some(panics) = panics else {
                    return false;
                };
                if !is_ended() {
                    panics.push(info.to_string());
                }
                true
            });
            if !collected {
                default(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
    MAIN_TASK.set(0);
}

/// Returns the panics since [`collect_panics`] and stops collecting.
pub(crate) fn take_panics() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}

struct Running {
    session: Arc<Session>,
    task: JoinHandle<()>,
}

/// Runs the processes until the scenario ends.
pub(crate) async fn supervise(
    hub: Arc<Hub>,
    factory: Factory,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) {
    let mut running: BTreeMap<u32, Running> = BTreeMap::new();
    let mut exits = 0;
    let mut stopped = false;
    let mut next = 1;
    let mut start = |running: &mut BTreeMap<u32, Running>| {
        running.insert(next, spawn(&hub, &factory, next));
        next += 1;
    };
    let kill = |process: Running| {
        process.session.sever();
        process.task.abort();
    };
    start(&mut running);
    while let Some(signal) = signals.recv().await {
        match signal {
            Signal::Crash(id) => {
                running.remove(&id).into_iter().for_each(kill);
                later(&hub, RESTART, Signal::Start);
            }
            Signal::Exited(id, panic) => {
                let Some(process) = running.remove(&id) else {
                    continue;
                };
                if process.session.is_severed() {
                    continue;
                }
                process.session.sever();
                exits += 1;
                let why = panic.unwrap_or_else(|| "its future completed".to_owned());
                hub.record.lock().mark(format!("process {id} exits: {why}"));
                if exits > EXITS {
                    hub.give_up(Abort::CrashLoop(EXITS as usize + 1, why));
                    return;
                }
                if running.is_empty() {
                    // Back off like a kubelet, so that a process may exit while the server is down.
                    let delay = RESTART * 2_u32.saturating_pow(exits - 1);
                    hub.record.lock().busy_for(delay + RESTART * 2);
                    later(&hub, delay, Signal::Start);
                }
            }
            Signal::Start => {
                if running.is_empty() && !stopped {
                    start(&mut running);
                }
            }
            Signal::Stop => {
                stopped = true;
                std::mem::take(&mut running).into_values().for_each(kill);
            }
            Signal::Resume => {
                stopped = false;
                if running.is_empty() {
                    start(&mut running);
                }
            }
            Signal::Overlap(id) => {
                start(&mut running);
                later(&hub, OVERLAP, Signal::Retire(id));
            }
            Signal::Pause(id) => {
                start(&mut running);
                later(&hub, PAUSE + OVERLAP, Signal::Retire(id));
            }
            Signal::Retire(id) => {
                if let Some(process) = running.remove(&id) {
                    hub.record
                        .lock()
                        .mark(format!("process {id} stops (fault)"));
                    kill(process);
                }
            }
        }
    }
}

/// Sends a signal after a delay.
fn later(hub: &Arc<Hub>, delay: Duration, signal: Signal) {
    let signals = hub.signals.clone();
    tokio::task::spawn_local(async move {
        sleep(delay).await;
        let _ = signals.send(signal);
    });
}

fn spawn(hub: &Arc<Hub>, factory: &Factory, id: u32) -> Running {
    let session = Session::new(id);
    hub.record.lock().mark(format!("process {id} starts"));
    // The permissions that the controller uses are recorded and compared with its Role afterwards.
    let user = User::new(USER).group("system:masters");
    let gateway = Gateway {
        hub: Arc::clone(hub),
        session: Arc::clone(&session),
        server: hub.server.service_as(user),
    };
    let (hub, factory) = (Arc::clone(hub), Arc::clone(factory));
    let of_task = Arc::clone(&session);
    let task = tokio::task::spawn_local(async move {
        let cx = Cx {
            client: kube::Client::new(gateway.clone(), "default"),
            gateway,
            clock: hub.clock.clone(),
            // Processes differ, for example in the identity under which they hold a Lease.
            rng: Rng::with_seed(hub.process_seed + u64::from(id)),
            shutdown: CancellationToken::new(),
        };
        let run = AssertUnwindSafe(async { factory(cx).await }).catch_unwind();
        let result = run.await;
        let panicked = result.is_err() && !of_task.is_severed();
        let panic = panicked.then(|| {
            PANICS.with_borrow_mut(|panics| {
                panics
                    .as_mut()
                    .and_then(Vec::pop)
                    .unwrap_or_else(|| "it panicked".to_owned())
            })
        });
        let _ = hub.signals.send(Signal::Exited(id, panic));
    });
    MAIN_TASK.set(number(task.id()));
    Running { session, task }
}
