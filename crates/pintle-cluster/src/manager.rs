//! The controller manager: every loop in one process, on one set of informers and one client.
//!
//! Loops start in order and stop in the opposite order. A loop that fails or panics is started
//! again after a pause, which doubles while it keeps failing; the others do not notice.

use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
};
use pintle::{
    client::describe, clock::Clock, controller::ControllerError, events::EventBroadcaster,
    informer::InformerFactory, metrics::Metrics,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{api, pods::plan::Pace};

/// The first pause before a failed loop is started again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// A loop that ran for this long before it failed starts over with the first pause.
const SOUND: Duration = Duration::from_mins(2);
/// How long a start waits for the informers.
const SYNC: Duration = Duration::from_secs(5);
/// How long events that were recorded may take to be written when the manager stops.
const FLUSH: Duration = Duration::from_secs(2);

/// What every loop is given.
pub(crate) struct Environment {
    pub(crate) informers: InformerFactory,
    pub(crate) client: kube::Client,
    /// Ends the informers: after the last loop.
    pub(crate) informing: CancellationToken,
    pub(crate) clock: Clock,
    pub(crate) events: EventBroadcaster,
    pub(crate) metrics: Metrics,
    pub(crate) pace: Pace,
    pub(crate) nodes: u16,
    pub(crate) root_ca: String,
}

/// Why a loop ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoopError {
    #[error(transparent)]
    Controller(#[from] ControllerError),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("it panicked: {0}")]
    Panic(String),
}

type Run = Arc<
    dyn Fn(Arc<Environment>, CancellationToken) -> BoxFuture<'static, Result<(), LoopError>>
        + Send
        + Sync,
>;

/// One loop: a name and a function that runs it until told to stop.
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

    /// Sets the kinds the loop implements. While it runs, the server does not warn that such objects
    /// have no effect.
    pub(crate) fn acts_on(self, kinds: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            acts_on: kinds,
            ..self
        }
    }
}

/// Runs loops. Dropping it ends them at once, as a crash would.
pub(crate) struct Manager {
    environment: Arc<Environment>,
    running: Vec<Running>,
    /// Keep the shared informers alive while loops come and go.
    _informers: Vec<Box<dyn Any + Send>>,
}

struct Running {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Manager {
    /// Starts the loops, in the order given.
    pub(crate) fn start(environment: Environment, loops: Vec<Loop>) -> Self {
        let environment = Arc::new(environment);
        let informers = &environment.informers;
        informers.start(&environment.informing);
        let mut kept: Vec<Box<dyn Any + Send>> = Vec::new();
        if !loops.is_empty() {
            let (sets, pods) = (
                informers.informer::<ReplicaSet>(),
                informers.informer::<Pod>(),
            );
            let indexed = api::index_controllers(&sets).and(api::index_controllers(&pods));
            if let Err(error) = indexed {
                tracing::error!(%error, "the loops will not find what belongs together");
            }
            kept.push(Box::new(informers.informer::<Deployment>()));
            kept.push(Box::new(sets));
            kept.push(Box::new(pods));
            kept.push(Box::new(informers.informer::<Node>()));
            kept.push(Box::new(informers.informer::<PersistentVolume>()));
            kept.push(Box::new(informers.informer::<PersistentVolumeClaim>()));
            kept.push(Box::new(informers.informer::<PodDisruptionBudget>()));
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
            _informers: kept,
        }
    }

    /// Waits, not for ever, until the shared informers know what there is.
    ///
    /// Cancel safe.
    pub(crate) async fn synced(&self) {
        let synced = self.environment.informers.wait_for_sync_within(SYNC);
        if let Err(error) = synced.await {
            tracing::warn!(%error, "the loops start without knowing everything");
        }
    }

    /// Stops the loops, last first, then the informers, then the events.
    ///
    /// Not cancel safe: what is not stopped yet when the future is dropped ends at once.
    pub(crate) async fn stop(mut self) {
        while let Some(last) = self.running.last_mut() {
            last.stop.cancel();
            if let Err(error) = (&mut last.task).await {
                tracing::error!(name = last.name, %error, "a loop did not stop cleanly");
            }
            self.running.pop();
        }
        self.environment.informing.cancel();
        self.environment.informers.shutdown().await;
        let flushed = self.environment.events.shutdown(FLUSH).await;
        tracing::debug!(?flushed, "the events are written");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for running in &self.running {
            running.task.abort();
        }
        self.environment.informing.cancel();
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

/// Runs one loop until `stop`, again and again if it fails.
async fn supervise(
    name: &'static str,
    run: Run,
    environment: Arc<Environment>,
    stop: CancellationToken,
) {
    let mut pause = PAUSES.0;
    while !stop.is_cancelled() {
        let started = Instant::now();
        // The loop gets nothing of ours that it could leave half changed.
        let outcome = AssertUnwindSafe(run(environment.clone(), stop.clone()))
            .catch_unwind()
            .await;
        let error = match outcome {
            Ok(Ok(())) if stop.is_cancelled() => return,
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(panic) => Some(LoopError::Panic(message(&*panic))),
        };
        if started.elapsed() >= SOUND {
            pause = PAUSES.0;
        }
        if let Some(error) = error {
            let error = describe(&error);
            tracing::error!(name, error, ?pause, "a loop failed; it is started again");
        } else {
            tracing::warn!(name, ?pause, "a loop ended by itself; it is started again");
        }
        tokio::select! {
            biased; // Who is told to stop does not start again.
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSES.1);
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
            informing: CancellationToken::new(),
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

    /// Fails, panics, and ends by itself in turn, until the fourth start.
    fn fragile(starts: &Arc<AtomicU32>) -> Loop {
        let starts = starts.clone();
        Loop::new("fragile", move |_, stop| {
            let start = starts.fetch_add(1, Ordering::SeqCst);
            async move {
                match start {
                    0 => Err(LoopError::Panic("not really".into())),
                    1 => panic!("really"),
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
    async fn a_loop_that_fails_is_started_again_and_the_others_go_on() {
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
        // One second, two, four: each pause is twice the one before.
        sleep(Duration::from_millis(6500)).await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        assert!(
            ticks.load(Ordering::SeqCst) >= 7,
            "the steady one never stopped"
        );
        manager.stop().await;
    }

    /// Proves cluster/loop-restart.
    #[tokio::test(start_paused = true)]
    async fn loops_stop_one_after_the_other_the_last_first() {
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
