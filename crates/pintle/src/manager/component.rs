//! The components of a manager: controllers, servers, and tasks.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::BoxError, controller::BuiltController, events::EventBroadcaster,
    informer::InformerFactory, metrics::Metrics, rbac::Rules,
};

/// A part of a program that a [`Manager`](super::Manager) runs.
///
/// A controller converts into one; servers and tasks are async functions.
///
/// ```
/// # use pintle::{cache::BoxError, manager::{Component, Environment, Manager}};
/// # use std::time::Duration;
/// # async fn sweep(_: &kube::Client) -> Result<(), BoxError> { Ok(()) }
/// # fn example(manager: &mut Manager) {
/// // Runs on the leader only, and is started again if it fails.
/// let sweeper = Component::task("sweeper", async |cx: Environment| {
///     let mut ticks = tokio::time::interval(Duration::from_secs(60));
///     while cx.until_shutdown(ticks.tick()).await.is_some() {
///         sweep(cx.client()).await?;
///     }
///     Ok::<_, BoxError>(())
/// });
/// manager.add(sweeper.restarts());
/// # }
/// ```
#[must_use = "a component does nothing until it is added to a manager"]
pub struct Component {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) election: Election,
    pub(super) on_failure: OnFailure,
    pub(super) rules: Rules,
}

pub(super) enum Work {
    Controller(BuiltController),
    Server(Run),
    Task(Run),
}

/// A user's function. It is called again for every term, and after a failure if it restarts.
pub(super) type Run =
    Arc<dyn Fn(Environment) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Which election decides where a component runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Election {
    /// The manager's, if it has one.
    Default,
    Named(String),
    /// None: it runs on every replica.
    None,
}

/// How the manager handles a component that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// The manager stops.
    Stop,
    /// The component ends; the others continue.
    Isolate,
    /// The component is started again after a delay.
    Restart,
}

impl Component {
    fn new(name: String, work: Work, election: Election) -> Self {
        Self {
            name,
            work,
            election,
            on_failure: OnFailure::Stop,
            rules: Rules::new(),
        }
    }

    /// Returns a task that starts after the caches are filled, on the leader if there is an
    /// election.
    ///
    /// It runs until its [token](Environment::shutdown) is cancelled or it has nothing left to do;
    /// returning `Ok` is not a failure. A leader that is elected again calls `run` again.
    pub fn task<F, R, E>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Environment) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(name.into(), Work::Task(erase(run)), Election::Default)
    }

    /// Returns a server, such as one for webhooks. It runs on every replica. Caches and controllers
    /// start only when it has called [`Environment::ready`], because lists as well as writes may
    /// depend on it: the API server calls a conversion webhook for both.
    ///
    /// A request that needs the caches therefore has to wait for them, after the server is ready:
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use pintle::{cache::BoxError, manager::{Component, Environment, Manager}};
    /// # async fn next_request() {}
    /// # fn example(manager: &mut Manager) {
    /// let pods = manager.informers().informer::<Pod>().lister();
    /// manager.add(Component::server("webhooks", move |cx: Environment| {
    ///     let pods = pods.clone();
    ///     async move {
    ///         cx.ready(); // the socket is bound
    ///         while cx.until_shutdown(next_request()).await.is_some() {
    ///             if cx.wait_for_caches().await {
    ///                 println!("there are {} pods", pods.len());
    ///             }
    ///         }
    ///         Ok::<_, BoxError>(())
    ///     }
    /// }));
    /// # }
    /// ```
    ///
    /// A server that returns before shutdown counts as failed.
    pub fn server<F, R, E>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Environment) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(name.into(), Work::Server(erase(run)), Election::None)
    }

    /// Returns the name, as it appears in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the component on every replica, with a client that is not gated.
    ///
    /// ```
    /// # use pintle::{controller::BuiltController, manager::{Component, Manager}};
    /// # fn example(manager: &mut Manager, controller: BuiltController) {
    /// manager.add(Component::from(controller).on_every_replica());
    /// # }
    /// ```
    pub fn on_every_replica(mut self) -> Self {
        self.election = Election::None;
        self
    }

    /// Runs the component on the replica that holds the Lease `name`, which is elected like the
    /// manager's own.
    ///
    /// Components with the same name run together. A server is not elected.
    pub fn elected_as(mut self, name: impl Into<String>) -> Self {
        self.election = Election::Named(name.into());
        self
    }

    /// Ends only this component when it fails, instead of the whole program. The failure is logged,
    /// and `manager_component_running` shows 0. The manager does not wait for the component's
    /// caches when it starts, and continues without a server that is not ready in time.
    pub fn isolated(mut self) -> Self {
        self.on_failure = OnFailure::Isolate;
        self
    }

    /// Restarts a failed task or server after a delay of one second, which doubles with each
    /// failure up to a minute.
    ///
    /// A controller cannot be restarted: it already retries failed reconciles, and fails only when
    /// an informer has died. For a controller this is the same as [`isolated`](Self::isolated).
    pub fn restarts(mut self) -> Self {
        self.on_failure = match self.work {
            Work::Controller(_) => OnFailure::Isolate,
            Work::Server(_) | Work::Task(_) => OnFailure::Restart,
        };
        self
    }

    /// Declares permissions that the component needs, for
    /// [`Manager::rules`](super::Manager::rules). A controller's permissions are added
    /// automatically.
    pub fn declares(mut self, rules: Rules) -> Self {
        self.rules = self.rules.and(rules);
        self
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(self.work, Work::Server(_))
    }
}

fn erase<F, R, E>(run: F) -> Run
where
    F: Fn(Environment) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError>,
{
    Arc::new(move |environment| {
        let run = run(environment);
        async move { run.await.map_err(Into::into) }.boxed()
    })
}

impl From<BuiltController> for Component {
    fn from(controller: BuiltController) -> Self {
        let name = controller.name().to_owned();
        // Permissions in another cluster do not belong in this one's manifests.
        let rules = if controller.is_elsewhere() {
            Rules::new()
        } else {
            controller.rules().clone()
        };
        Self::new(name, Work::Controller(controller), Election::Default).declares(rules)
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.name)
            .field("election", &self.election)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

/// The resources that a manager provides to a task or server.
#[derive(Clone)]
pub struct Environment {
    pub(super) client: Client,
    pub(super) informers: InformerFactory,
    pub(super) events: EventBroadcaster,
    pub(super) metrics: Metrics,
    pub(super) shutdown: CancellationToken,
    pub(super) ready: CancellationToken,
    /// Cancelled once the manager's caches are filled.
    pub(super) filled: CancellationToken,
}

impl Environment {
    /// Returns the client. If the component is elected, it writes only during the term.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the shared informers.
    pub fn informers(&self) -> &InformerFactory {
        &self.informers
    }

    /// Returns the broadcaster that records events.
    pub fn events(&self) -> &EventBroadcaster {
        &self.events
    }

    /// Returns the metrics of the program.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the token that is cancelled when the component has to stop: at shutdown, and at the
    /// end of a term.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Waits for `future`; returns `None` if the component has to stop first.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `future`, which is dropped at shutdown.
    pub async fn until_shutdown<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            output = future => Some(output),
        }
    }

    /// Waits until the manager's caches are filled; returns false if the component has to stop
    /// first.
    ///
    /// Only servers need this: they start before the caches, and must not wait before they are
    /// [`ready`](Self::ready). See [`Component::server`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn wait_for_caches(&self) -> bool {
        self.until_shutdown(self.filled.cancelled()).await.is_some()
    }

    /// Reports that a server accepts requests, so that caches and controllers may start.
    pub fn ready(&self) {
        self.ready.cancel();
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}
