//! Runs all loops of a cluster on one set of informers and one client.
//!
//! Loops start in order and stop in reverse order. A loop that fails or panics is restarted after a
//! delay that doubles with each failure; the other loops keep running.

use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
};
use pintle::{
    cache::Kind,
    client::describe,
    clock::Clock,
    controller::{Controller, ControllerError},
    events::EventBroadcaster,
    informer::InformerFactory,
    metrics::Metrics,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{api, pods::plan::Pace};

/// The first and the longest delay before a failed loop is restarted.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// A loop that ran for this long before it failed starts over with the first delay.
const HEALTHY_AFTER: Duration = Duration::from_mins(2);
/// How long a start waits for the informers to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stop waits for recorded events to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What the loops share.
pub(crate) struct Environment {
    pub(crate) informers: InformerFactory,
    pub(crate) client: kube::Client,
    /// Stops the informers; cancelled after the last loop has stopped.
    pub(crate) stop_informers: CancellationToken,
    pub(crate) clock: Clock,
    pub(crate) events: EventBroadcaster,
    pub(crate) metrics: Metrics,
    pub(crate) pace: Pace,
    pub(crate) nodes: u16,
    pub(crate) root_ca: String,
}

impl Environment {
    /// Returns a controller on the shared informers and metrics.
    pub(crate) fn controller<K>(&self, name: &'static str) -> Controller<K>
    where
        K: Kind<DynamicType: Default>,
    {
        Controller::new(name, &self.informers).metrics(&self.metrics)
    }
}

/// Why a loop ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoopError {
    #[error(transparent)]
    Controller(#[from] ControllerError),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("panicked: {0}")]
    Panic(String),
}

type Run = Arc<
    dyn Fn(Arc<Environment>, CancellationToken) -> BoxFuture<'static, Result<(), LoopError>>
        + Send
        + Sync,
>;

/// A named function that runs until its token is cancelled.
#[derive(Clone)]
pub(crate) struct Loop {
    name: &'static str,
    run: Run,
    /// The kinds the loop implements, as `(group, plural)`.
    pub(crate) acts_on: &'static [(&'static str, &'static str)],
}

impl Loop {
    pub(crate) fn new<F, R>(name: &'static str, run: F) -> Self
    where
        F: Fn(Arc<Environment>, CancellationToken) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), LoopError>> + Send + 'static,
    {
        let run: Run = Arc::new(move |environment, stop| run(environment, stop).boxed());
        Self {
            name,
            run,
            acts_on: &[],
        }
    }

    /// Sets the kinds the loop implements. The server does not warn that such objects have no effect.
    pub(crate) fn acts_on(self, kinds: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            acts_on: kinds,
            ..self
        }
    }
}

/// Runs loops. Dropping it aborts them, like a crash.
pub(crate) struct Manager {
    environment: Arc<Environment>,
    running: Vec<Running>,
    /// Keep the shared informers alive across restarts of loops.
    _informers: Vec<Box<dyn Any + Send>>,
}

struct Running {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Manager {
    /// Starts the loops in order.
    pub(crate) fn start(environment: Environment, loops: Vec<Loop>) -> Self {
        let environment = Arc::new(environment);
        let informers = &environment.informers;
        informers.start(&environment.stop_informers);
        let mut retained: Vec<Box<dyn Any + Send>> = Vec::new();
        if !loops.is_empty() {
            let (sets, pods) = (
                informers.informer::<ReplicaSet>(),
                informers.informer::<Pod>(),
            );
            let indexed = api::index_controllers(&sets).and(api::index_controllers(&pods));
            if let Err(error) = indexed {
                tracing::error!(%error, "creating the controller index failed; loops cannot find the objects they control");
            }
            retained.push(Box::new(informers.informer::<Deployment>()));
            retained.push(Box::new(sets));
            retained.push(Box::new(pods));
            retained.push(Box::new(informers.informer::<Node>()));
            retained.push(Box::new(informers.informer::<PersistentVolume>()));
            retained.push(Box::new(informers.informer::<PersistentVolumeClaim>()));
            retained.push(Box::new(informers.informer::<PodDisruptionBudget>()));
        }
        let running = loops
            .into_iter()
            .map(|Loop { name, run, .. }| {
                let stop = CancellationToken::new();
                let task = supervise(name, run, environment.clone(), stop.clone());
                Running {
                    name,
                    stop,
                    task: tokio::spawn(task),
                }
            })
            .collect();
        Self {
            environment,
            running,
            _informers: retained,
        }
    }

    /// Waits up to 5 s for the shared informers to sync.
    pub(crate) async fn synced(&self) {
        let synced = self
            .environment
            .informers
            .wait_for_sync_within(SYNC_TIMEOUT);
        if let Err(error) = synced.await {
            tracing::warn!(%error, "informers have not synced in time; loops start anyway");
        }
    }

    /// Stops the loops in reverse order, then the informers, then the event broadcaster.
    ///
    /// Not cancel safe: dropping the future aborts the loops that are still running.
    pub(crate) async fn stop(mut self) {
        while let Some(last) = self.running.last_mut() {
            last.stop.cancel();
            if let Err(error) = (&mut last.task).await {
                tracing::error!(name = last.name, %error, "loop ended abnormally");
            }
            self.running.pop();
        }
        self.environment.stop_informers.cancel();
        self.environment.informers.shutdown().await;
        let flushed = self.environment.events.shutdown(FLUSH_TIMEOUT).await;
        tracing::debug!(?flushed, "flushed events");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for running in &self.running {
            running.task.abort();
        }
        self.environment.stop_informers.cancel();
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.running.iter().map(|running| running.name).collect();
        f.debug_struct("Manager")
            .field("loops", &names)
            .finish_non_exhaustive()
    }
}

/// Runs one loop until `stop` is cancelled, restarting it whenever it ends.
async fn supervise(
    name: &'static str,
    run: Run,
    environment: Arc<Environment>,
    stop: CancellationToken,
) {
    let mut delay = RESTART_DELAY.0;
    while !stop.is_cancelled() {
        let started = Instant::now();
        // Unwind safe: the loop shares no state with this function.
        let outcome = AssertUnwindSafe(run(environment.clone(), stop.clone()))
            .catch_unwind()
            .await;
        let error = match outcome {
            Ok(Ok(())) if stop.is_cancelled() => return,
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(panic) => Some(LoopError::Panic(message(&*panic))),
        };
        if started.elapsed() >= HEALTHY_AFTER {
            delay = RESTART_DELAY.0;
        }
        if let Some(error) = error {
            let error = describe(&error);
            tracing::error!(name, error, restart_in = ?delay, "loop failed; restarting");
        } else {
            tracing::warn!(name, restart_in = ?delay, "loop ended early; restarting");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(delay) => {}
        }
        delay = (delay * 2).min(RESTART_DELAY.1);
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use parking_lot::Mutex;
    use pintle_apiserver::ApiServer;

    use super::*;

    fn environment() -> Environment {
        let client = ApiServer::builder().build().client();
        Environment {
            informers: InformerFactory::new(client.clone()),
            client,
            stop_informers: CancellationToken::new(),
            clock: Clock::system(),
            events: EventBroadcaster::new(),
            metrics: Metrics::new(),
            pace: Pace {
                ready_after: Duration::ZERO,
                stop_after: Duration::ZERO,
            },
            nodes: 0,
            root_ca: String::new(),
        }
    }

    /// Fails, panics and ends early in turn; from the fourth start on it runs until stopped.
    fn fragile(starts: &Arc<AtomicU32>) -> Loop {
        let starts = starts.clone();
        Loop::new("fragile", move |_, stop| {
            let start = starts.fetch_add(1, Ordering::SeqCst);
            async move {
                match start {
                    0 => Err(LoopError::Panic("an error".into())),
                    1 => panic!("a panic"),
                    2 => Ok(()),
                    _ => {
                        stop.cancelled().await;
                        Ok(())
                    }
                }
            }
        })
    }

    /// Proves cluster/loop-restart.
    #[tokio::test(start_paused = true)]
    async fn failed_loop_is_restarted_while_others_run_on() {
        let (starts, ticks) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let ticking = ticks.clone();
        let steady = Loop::new("steady", move |_, stop| {
            let ticks = ticking.clone();
            async move {
                while !stop.is_cancelled() {
                    ticks.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_secs(1)).await;
                }
                Ok(())
            }
        });
        let manager = Manager::start(environment(), vec![steady, fragile(&starts)]);
        // Delays of one, two and four seconds.
        sleep(Duration::from_millis(6500)).await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        assert!(
            ticks.load(Ordering::SeqCst) >= 7,
            "the steady loop was interrupted"
        );
        manager.stop().await;
    }

    /// Proves cluster/loop-restart.
    #[tokio::test(start_paused = true)]
    async fn loops_stop_in_reverse_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let slow = |name: &'static str| {
            let order = order.clone();
            Loop::new(name, move |_, stop| {
                let order = order.clone();
                async move {
                    order.lock().push(format!("{name} starts"));
                    stop.cancelled().await;
                    sleep(Duration::from_secs(1)).await;
                    order.lock().push(format!("{name} ends"));
                    Ok(())
                }
            })
        };
        let manager = Manager::start(environment(), vec![slow("first"), slow("second")]);
        sleep(Duration::from_secs(1)).await;
        manager.stop().await;
        assert_eq!(
            *order.lock(),
            ["first starts", "second starts", "second ends", "first ends"]
        );
    }
}
