//! The manager: everything an operator runs, in one process and in any number of replicas.
//!
//! A program has a client, shared informers, several controllers, perhaps a webhook server and a
//! few background tasks, probes, metrics, events, and one way to stop. A [`Manager`] owns all of
//! it, as `kube-controller-manager` does for Kubernetes' own loops:
//!
//! ```no_run
//! # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
//! # use pintle::controller::{Action, Context};
//! # use std::{convert::Infallible, sync::Arc};
//! # async fn deploy(_: Arc<ConfigMap>, _: Context) -> Result<Action, Infallible> { unimplemented!() }
//! # async fn rotate(_: Arc<Secret>, _: Context) -> Result<Action, Infallible> { unimplemented!() }
//! use pintle::{controller::Controller, manager::Manager};
//!
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::builder("shop-operator", client)
//!     .leader_election() // one replica writes, the others stand by with warm caches
//!     .probes("0.0.0.0:8080") // /healthz, /readyz, /metrics
//!     .build();
//! let deployer = Controller::<ConfigMap>::new("deployer", manager.informers());
//! manager.add(deployer.owns::<Deployment>().build(deploy));
//! let rotator = Controller::<Secret>::new("rotator", manager.informers());
//! manager.add(rotator.build(rotate));
//! manager.run().await?; // until SIGTERM or Ctrl-C
//! # Ok(())
//! # }
//! ```
//!
//! # Start and stop
//!
//! ```text
//! start:  probes ─► servers ─► caches ─► controllers and tasks (the elected ones: when elected)
//! stop:   controllers and tasks ─► Lease released ─► caches ─► servers ─► events ─► probes
//! ```
//!
//! Stopping has a [time limit](Builder::stop_within). Work that has not ended by then is dropped
//! and reported in [`Stopped::left`].
//!
//! Servers come first because the API server may need them to answer a list: it calls the
//! conversion webhook of a CRD for every object that is stored in another version. Requests that
//! need the caches [wait for them](Environment::wait_for_caches). Readiness waits for both, so a
//! Service sends no requests to a Pod whose caches are empty, unless it publishes unready
//! addresses, as one for conversion webhooks has to.
//!
//! A component that fails stops the manager, and [`run`](Manager::run) returns its error, unless
//! the component was [isolated](Component::isolated) or [restarts](Component::restarts).
//!
//! # Several replicas
//!
//! With [`leader_election`](Builder::leader_election), controllers and tasks run only while this
//! replica holds the Lease, and the client they write with is gated: outside a term it rejects
//! writes, and it cancels those in flight when the term ends. [`crate::leader_election`] documents
//! precisely what that guarantees. Servers run on every replica, as does a component that [opts
//! out](Component::on_every_replica).
//!
//! A standby is *warm*. Its informers and handlers run from the start, so that its caches, indexes
//! and queues are filled when it is elected: a hand-over needs no lists. A replica that loses its
//! Lease stops its workers and competes again in the same process. In the next term each controller
//! waits until its watches are open again, up to half a minute, because its caches may be stale
//! after an outage; a task waits for all watches. The term continues with the same caches and
//! queues, and reconciles every object once, because this replica cannot know what the leader in
//! between left unfinished.
//!
//! The caches of a new leader may lag behind the last writes of the previous one, as every cache
//! may lag behind. Children with deterministic names make that harmless: a write that is based on a
//! past state is then rejected or changes nothing.
//!
//! Components can also be [elected under other names](Component::elected_as), so that replicas
//! share the work by controller.
//!
//! # Health
//!
//! `/readyz` returns 200 once everything has started and for as long as the caches follow the API
//! server, on standbys as well: a rolling update must not wait for a standby to lead. `/livez`
//! fails when an informer has died or the leader has not renewed its Lease for so long that its
//! elector must be stuck. Both accept [checks of your own](Builder::ready_check).

mod builder;
mod component;
mod election;
mod error;
mod member;
mod metrics;
#[cfg(feature = "probes")]
mod probes;
mod rules;
mod run;
mod stage;

pub use self::{
    builder::Builder,
    component::{Component, Environment},
    error::{Left, ManagerError, Stopped},
};

use std::{collections::BTreeSet, fmt};

use kube::Client;
use tokio_util::sync::CancellationToken;

use self::{
    builder::Common,
    component::Election,
    election::{ElectionPlan, Group},
};
use crate::{
    events::EventBroadcaster,
    informer::InformerFactory,
    leader_election::{Elector, Leadership},
    metrics::Metrics,
    signals,
};

/// Runs controllers, servers and tasks of one process. See the [module](self).
#[must_use = "a manager does nothing until it is run"]
pub struct Manager {
    common: Common,
    /// The election of components that do not name another.
    elector: Option<Result<Elector, ManagerError>>,
    election: ElectionPlan,
    components: Vec<Component>,
}

impl Manager {
    /// Configures a manager for the program `name`.
    ///
    /// The name appears in logs and metrics and is the name of the Lease. The client must not be
    /// gated; the manager does that.
    pub fn builder(name: impl Into<String>, client: Client) -> Builder {
        Builder::new(name.into(), client)
    }

    /// Returns the shared informers. All controllers of the manager should be built on them.
    pub fn informers(&self) -> &InformerFactory {
        &self.common.informers
    }

    /// Returns the client that writes only while this replica leads, if the manager elects a
    /// leader.
    ///
    /// A component that is elected under another name has its own client: use
    /// [`Context::client`](crate::controller::Context::client) in a reconcile and
    /// [`Environment::client`] in a task. The client passed to [`builder`](Self::builder) is not
    /// gated, nor is the client of the [informers](Self::informers).
    pub fn client(&self) -> Client {
        match self.leadership() {
            Some(leadership) => leadership.gate(&self.common.client),
            None => self.common.client.clone(),
        }
    }

    /// Returns the broadcaster that records events, for a recorder in the state of a controller.
    pub fn events(&self) -> &EventBroadcaster {
        &self.common.events
    }

    /// Returns the metrics that the manager serves. To serve your own metrics beside them, pass
    /// [`Metrics::with_registry`] to [`Builder::metrics`].
    pub fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// Returns the state of the election, if the manager elects a leader.
    pub fn leadership(&self) -> Option<&Leadership> {
        let elector = self.elector.as_ref()?.as_ref().ok()?;
        Some(elector.leadership())
    }

    /// Adds a controller, a server or a task.
    pub fn add(&mut self, component: impl Into<Component>) -> &mut Self {
        self.components.push(component.into());
        self
    }

    /// Runs everything until SIGTERM or Ctrl-C. A second signal exits immediately.
    ///
    /// # Errors
    ///
    /// Fails if a component fails, a cache is not filled in time, an address cannot be bound, or
    /// the configuration is invalid. By then everything that was started has been stopped in order.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future drops running reconciles, and releases the Lease
    /// without waiting for them.
    pub async fn run(self) -> Result<Stopped, ManagerError> {
        let shutdown = signals::shutdown_on_signal().map_err(ManagerError::Signals)?;
        self.run_until(&shutdown).await
    }

    /// Runs everything until `shutdown` is cancelled, without handling signals.
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    pub async fn run_until(self, shutdown: &CancellationToken) -> Result<Stopped, ManagerError> {
        run::run(self, shutdown).await
    }

    /// Splits the components into those of each election, those that run everywhere, and servers.
    fn into_groups(self) -> Result<(Common, Groups), ManagerError> {
        let Self {
            common,
            elector,
            election,
            components,
        } = self;
        let elector = elector.transpose()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = components.iter().find(|one| !names.insert(one.name())) {
            return Err(ManagerError::Duplicate(twice.name().to_owned()));
        }
        let mut groups = Groups::default();
        let mut default = Vec::new();
        for component in components {
            if component.is_server() {
                groups.servers.push(component);
                continue;
            }
            match component.election.clone() {
                Election::Default if elector.is_some() => default.push(component),
                Election::Named(name) if elector.is_some() && name == common.name => {
                    default.push(component);
                }
                Election::Default | Election::None => groups.everywhere.push(component),
                Election::Named(name) => {
                    let group = groups.elected.iter_mut().find(|group| group.name == name);
                    if let Some(group) = group {
                        group.members.push(component);
                        continue;
                    }
                    let elector = election.candidate(&common, &name)?;
                    groups.elected.push(Group {
                        name,
                        elector,
                        members: vec![component],
                    });
                }
            }
        }
        if let Some(elector) = elector {
            let name = common.name.clone();
            let group = Group {
                name,
                elector,
                members: default,
            };
            groups.elected.insert(0, group);
        }
        Ok((common, groups))
    }
}

/// The components of a manager, by where they run.
#[derive(Default)]
struct Groups {
    servers: Vec<Component>,
    everywhere: Vec<Component>,
    elected: Vec<Group>,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let components: Vec<_> = self.components.iter().map(Component::name).collect();
        f.debug_struct("Manager")
            .field("name", &self.common.name)
            .field("components", &components)
            .finish_non_exhaustive()
    }
}
