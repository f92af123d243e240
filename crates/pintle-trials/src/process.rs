//! The controller's processes: starting, crashing, restarting.

use std::{
    cell::RefCell,
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
    gateway::{Gateway, Session},
    hub::{Hub, Signal},
    trace::Abort,
};

/// How long a crashed process takes to come back.
const RESTART: Duration = Duration::from_secs(1);
/// How often a process may exit on its own before the scenario is aborted.
const EXITS: usize = 8;
/// The user that the controller acts as.
pub(crate) const USER: &str = "system:serviceaccount:default:controller";

/// Starts the controller in a new process.
pub(crate) type Factory = Arc<dyn Fn(Cx) -> LocalBoxFuture<'static, ()> + Send + Sync>;

thread_local! {
    /// The panics of the scenario on this thread.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Collects panics on this thread instead of printing them.
pub(crate) fn collect_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let collected = PANICS.with_borrow_mut(|panics| {
                panics
                    .as_mut()
                    .map(|panics| panics.push(info.to_string()))
                    .is_some()
            });
            if !collected {
                default(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

/// Returns the panics since [`collect_panics`] and stops collecting.
pub(crate) fn take_panics() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}

struct Running {
    session: Arc<Session>,
    task: JoinHandle<()>,
}

/// Runs the processes until the scenario is over.
pub(crate) async fn supervise(
    hub: Arc<Hub>,
    factory: Factory,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) {
    let mut running: BTreeMap<u32, Running> = BTreeMap::new();
    let mut exits = 0;
    let mut next = 1;
    let mut start = |running: &mut BTreeMap<u32, Running>| {
        running.insert(next, spawn(&hub, &factory, next));
        next += 1;
    };
    start(&mut running);
    while let Some(signal) = signals.recv().await {
        match signal {
            Signal::Crash(id) => {
                if let Some(process) = running.remove(&id) {
                    process.session.sever();
                    process.task.abort();
                }
                sleep(RESTART).await;
                start(&mut running);
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
                    hub.give_up(Abort::CrashLoop(exits, why));
                    return;
                }
                hub.record.lock().busy_for(RESTART * 3);
                sleep(RESTART).await;
                start(&mut running);
            }
        }
    }
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
    let task = tokio::task::spawn_local(async move {
        let cx = Cx {
            client: kube::Client::new(gateway.clone(), "default"),
            gateway,
            clock: hub.clock.clone(),
            rng: Rng::with_seed(hub.seed + 1),
            shutdown: CancellationToken::new(),
        };
        let run = AssertUnwindSafe(async { factory(cx).await }).catch_unwind();
        let result = run.await;
        let panic = result.err().map(|_| {
            PANICS.with_borrow_mut(|panics| {
                panics
                    .as_mut()
                    .and_then(Vec::pop)
                    .unwrap_or_else(|| "it panicked".to_owned())
            })
        });
        let _ = hub.signals.send(Signal::Exited(id, panic));
    });
    Running { session, task }
}
