//! The loops of a cluster, and the manager that runs them on one set of informers and one client.
//!
//! A loop that fails or panics is restarted after a delay that doubles with each failure; the other
//! loops keep running.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{
        Endpoints, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
        Secret, Service,
    },
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use pintle::{
    cache::Kind,
    clock::{Clock, Rng},
    controller::{Controller, ControllerError},
    events::{ApiSink, EventBroadcaster},
    informer::InformerFactory,
    manager::{Component, Manager},
    metrics::Metrics,
};
use pintle_apiserver::ApiServer;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    api,
    autoscaler::Loads,
    nodes::{self, machines::Machines},
    pods::{plan::Pace, script::Scripts},
    service_cidrs,
    volumes::behavior::ClaimScripts,
};

/// How long a start waits for the informers to sync, and then for the nodes to be ready.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// The context that the loops share.
pub(crate) struct Environment {
    pub(crate) informers: InformerFactory,
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) events: EventBroadcaster,
    pub(crate) metrics: Metrics,
    pub(crate) pace: Pace,
    pub(crate) scripts: Scripts,
    pub(crate) claims: ClaimScripts,
    pub(crate) loads: Loads,
    pub(crate) machines: Machines,
    pub(crate) root_ca: String,
    /// Whether a loop binds claims to volumes.
    pub(crate) binds_claims: bool,
    /// The server of the cluster, unless the loops run on another one.
    pub(crate) server: Option<ApiServer>,
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

    /// Sets the kinds the loop implements. The server does not warn that such objects have no
    /// effect.
    pub(crate) fn acts_on(self, kinds: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            acts_on: kinds,
            ..self
        }
    }

    fn component(self, environment: &Arc<Environment>) -> Component {
        let (run, environment) = (self.run, Arc::clone(environment));
        let task = move |cx: pintle::manager::Environment| {
            run(Arc::clone(&environment), cx.shutdown().clone())
        };
        Component::task(self.name, task).restarts()
    }
}

/// The running loops. Dropping them aborts all of them, like a crash.
pub(crate) struct RunningLoops {
    stop: CancellationToken,
    task: JoinHandle<()>,
    names: Vec<&'static str>,
    /// Keeps the shared informers alive across restarts of loops.
    _informers: Vec<Box<dyn Any + Send + Sync>>,
}

impl RunningLoops {
    /// Starts the loops, and waits up to 5 s each for the shared informers to sync and for the
    /// nodes to be ready, so that tests can use them immediately.
    pub(crate) async fn start(environment: Environment, loops: Vec<Loop>) -> Self {
        let names: Vec<_> = loops.iter().map(|one| one.name).collect();
        let informers = environment.informers.clone();
        let machines = environment.machines.clone();
        let retained = if loops.is_empty() {
            Vec::new()
        } else {
            // core/v1 events, like kube-controller-manager: unlike events.k8s.io, it does not merge
            // events that differ only in their message. The sink stops with the broadcaster.
            let sink = ApiSink::new(environment.client.clone());
            let _ = environment.events.start_recording_to_sink(sink);
            shared_informers(&informers)
        };
        let mut manager = Manager::builder("cluster", environment.client.clone())
            .informers(informers.clone())
            .metrics(&environment.metrics)
            .events(environment.events.clone())
            .clock(environment.clock.clone())
            .rng(environment.rng.clone())
            // Loops wait for their caches without a time limit.
            .sync_timeout(Duration::MAX)
            .build();
        let environment = Arc::new(environment);
        for one in loops {
            manager.add(one.component(&environment));
        }
        let stop = CancellationToken::new();
        let shutdown = stop.clone();
        let task = tokio::spawn(async move {
            match manager.run_until(&shutdown).await {
                Ok(stopped) => tracing::debug!(?stopped, "loops stopped"),
                Err(error) => tracing::error!(%error, "loops stopped with an error"),
            }
        });
        let running = Self {
            stop,
            task,
            names,
            _informers: retained,
        };
        // Let the manager's task start the informers first, because only started ones are waited
        // for.
        tokio::task::yield_now().await;
        if let Err(error) = informers.wait_for_sync_within(SYNC_TIMEOUT).await {
            tracing::warn!(%error, "informers did not sync in time; loops will start once they do");
        }
        if running.names.contains(&nodes::LOOP) {
            let nodes = informers.informer::<Node>().lister();
            let started = timeout(SYNC_TIMEOUT, nodes::started(&nodes, &machines));
            if started.await.is_err() {
                tracing::warn!("nodes were not ready in time; Pods stay pending until they are");
            }
        }
        running
    }

    /// Stops the loops, then the informers, then the event broadcaster.
    ///
    /// Not cancel safe: dropping the future aborts the loops that are still running.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "loops task panicked or was aborted");
        }
    }
}

/// Requests the informers that several loops use.
fn shared_informers(informers: &InformerFactory) -> Vec<Box<dyn Any + Send + Sync>> {
    let (sets, pods) = (
        informers.informer::<ReplicaSet>(),
        informers.informer::<Pod>(),
    );
    let revisions = informers.informer::<ControllerRevision>();
    let jobs = informers.informer::<Job>();
    let slices = informers.informer::<EndpointSlice>();
    let volumes = informers.informer::<PersistentVolume>();
    let services = informers.informer::<Service>();
    let indexed = api::index_controllers(&sets)
        .and(api::index_controllers(&pods))
        .and(api::index_controllers(&revisions))
        .and(api::index_controllers(&jobs))
        .and(api::index_slices(&slices))
        .and(api::index_volumes(&volumes))
        .and(service_cidrs::index(&services));
    if let Err(error) = indexed {
        tracing::error!(%error, "failed to create the indexes; loops cannot find their objects");
    }
    vec![
        Box::new(informers.informer::<Deployment>()),
        Box::new(sets),
        Box::new(pods),
        Box::new(revisions),
        Box::new(jobs),
        Box::new(slices),
        Box::new(services),
        Box::new(informers.informer::<Endpoints>()),
        Box::new(informers.informer::<CronJob>()),
        Box::new(informers.informer::<StatefulSet>()),
        Box::new(informers.informer::<DaemonSet>()),
        Box::new(informers.informer::<Node>()),
        Box::new(volumes),
        Box::new(informers.informer::<StorageClass>()),
        Box::new(informers.informer::<ReplicationController>()),
        Box::new(informers.informer::<PersistentVolumeClaim>()),
        Box::new(informers.informer::<PodDisruptionBudget>()),
        Box::new(informers.informer::<Secret>()),
        Box::new(informers.informer::<ServiceCIDR>()),
    ]
}

impl Drop for RunningLoops {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for RunningLoops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningLoops")
            .field("loops", &self.names)
            .finish_non_exhaustive()
    }
}
