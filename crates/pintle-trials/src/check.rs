//! The builder of a check.

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Cx, Oracle, Report, View,
    actors::Cast,
    gateway::request::ResourceName,
    run::{Setup, timing::Timing},
    runner::{self, Options},
    story::{Desired, KindRef, Step, Story},
};

/// A condition on the state of the cluster.
#[derive(Clone)]
pub(crate) struct Predicate {
    pub(crate) name: String,
    pub(crate) holds: Arc<dyn Fn(&View<'_>) -> bool + Send + Sync>,
}

/// Configures a check; see [`check`].
#[must_use = "call run or try_run to run the check"]
pub struct Check {
    pub(crate) setup: Setup,
    pub(crate) options: Options,
    pub(crate) story: Vec<Step>,
    pub(crate) walk: Option<Desired>,
    pub(crate) errors: Vec<String>,
}

/// Starts a check of a controller.
///
/// `controller` is called for every process that a scenario starts. It receives a client and a
/// clock and returns the future that runs the controller; when that future completes, the process
/// has exited.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn my_controller(client: kube::Client) {}
/// # fn map() -> ConfigMap { ConfigMap::default() }
/// use pintle_trials::{Oracle, Story, check};
///
/// check(|cx| my_controller(cx.client()))
///     .name("maps")
///     .story(Story::new().apply(&map()).delete(&map()))
///     .relax(Oracle::StatusTrue, "ConfigMaps have no status")
///     .run();
/// ```
pub fn check<F, R>(controller: F) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    let factory = move |cx| controller(cx).map(drop).boxed_local();
    let mut options = Options::from_env();
    let errors = std::mem::take(&mut options.errors);
    Check {
        setup: Setup {
            factory: Arc::new(factory),
            crds: Vec::new(),
            given: Vec::new(),
            ignored: Vec::new(),
            cast: Cast::default(),
            within: Duration::from_secs(60 * 60),
            timing: Timing::of_virtual_time(),
            is_program: false,
            #[cfg(feature = "cli")]
            program: None,
            always: Vec::new(),
            eventually: Vec::new(),
            namespaces: BTreeSet::new(),
            other_seed: 0,
            random: OnceLock::new(),
            prepared: OnceLock::new(),
        },
        options,
        story: Vec::new(),
        walk: None,
        errors,
    }
}

/// Checks that a controller converges on an object of a custom resource.
///
/// The CRD is installed from the type, and the story follows from its schema: create the object,
/// change its properties, set them back, delete it, create it again.
///
/// # Panics
///
/// Panics with a report if the controller does not converge.
///
/// # Examples
///
/// See the [crate documentation](crate).
#[track_caller]
#[allow(
    clippy::needless_pass_by_value,
    reason = "reads better in a one-line test"
)]
pub fn converges<F, R, K>(controller: F, object: K)
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
    K: CustomResourceExt + Resource<DynamicType = ()> + Serialize,
    K::Scope: 'static,
{
    check(controller).walk(&object).run();
}

impl Check {
    /// Sets the name of the check in reports and files. Default: the name of the test.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        if !self.options.replay_with.1.is_empty() {
            self.options.replay_with.1 = format!(" cargo test {}", self.options.name);
        }
        self
    }

    /// Installs the CRD of a type.
    pub fn kind<K: CustomResourceExt>(self) -> Self {
        self.crd(&K::crd())
    }

    /// Installs a CRD.
    pub fn crd(mut self, crd: &CustomResourceDefinition) -> Self {
        match serde_json::to_value(crd) {
            Ok(crd) => {
                let name = crd["metadata"]["name"].clone();
                self.setup.crds.retain(|it| it["metadata"]["name"] != name);
                self.setup.crds.push(crd);
            }
            Err(error) => self
                .errors
                .push(format!("failed to serialize the CRD: {error}")),
        }
        self
    }

    /// Creates an object before the controller starts. The controller must not change it, unless
    /// its kind is declared with [`may_write`](Self::may_write).
    pub fn given<K>(mut self, object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        match Desired::of(object) {
            Ok(object) => self.setup.given.push(object),
            Err(error) => self.errors.push(error),
        }
        self
    }

    /// Sets the story: the actions of users.
    pub fn story(mut self, story: Story) -> Self {
        self.errors.extend(story.errors);
        self.story = story.steps;
        self
    }

    /// Derives the story from one object and its CRD, which is installed unless [`crd`](Self::crd)
    /// installs another one.
    pub fn walk<K>(mut self, object: &K) -> Self
    where
        K: CustomResourceExt + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        let name = K::crd_name();
        if !self
            .setup
            .crds
            .iter()
            .any(|it| it["metadata"]["name"] == name)
        {
            self = self.crd(&K::crd());
        }
        match Desired::of(object) {
            Ok(object) => {
                let mut object = object;
                // Types often serialize unset fields as null.
                prune_nulls(&mut object.value);
                self.walk = Some(object);
            }
            Err(error) => self.errors.push(error),
        }
        self
    }

    /// Leaves Pods, workloads and claims as the controller wrote them. By default they become
    /// ready.
    pub fn without_workloads(mut self) -> Self {
        self.setup.cast.workloads = false;
        self
    }

    /// Leaves the objects of a built-in kind to the controller under test, which implements it. By
    /// default, the cluster makes Pods, workloads and claims ready.
    pub fn implements<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let kind = KindRef::of::<K>().resource;
        self.setup.cast.implemented.insert(kind);
        self
    }

    /// Does not delete objects whose owners are gone, for a controller under test that includes a
    /// garbage collector.
    pub fn without_garbage_collector(mut self) -> Self {
        self.setup.cast.garbage_collector = false;
        self
    }

    /// Sets the virtual time within which the controller has to converge after the last fault.
    /// Default: an hour.
    pub fn within(mut self, limit: Duration) -> Self {
        self.setup.within = limit;
        self
    }

    /// Requires a condition after every change.
    pub fn always(
        mut self,
        name: impl Into<String>,
        holds: impl Fn(&View<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.setup.always.push(Predicate {
            name: format!("always: {}", name.into()),
            holds: Arc::new(holds),
        });
        self
    }

    /// Requires a condition whenever the cluster is idle.
    pub fn eventually(
        mut self,
        name: impl Into<String>,
        holds: impl Fn(&View<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.setup.eventually.push(Predicate {
            name: format!("eventually: {}", name.into()),
            holds: Arc::new(holds),
        });
        self
    }

    /// Lets the controller change objects of a kind that it did not create.
    pub fn may_write<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.options.may_write.push(KindRef::of::<K>().resource);
        self
    }

    /// Declares that objects of a kind hold data: the controller must not delete one more often
    /// than without faults, even if it creates it again. Secrets, claims, volumes and namespaces
    /// always do.
    pub fn precious<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.options.precious.push(KindRef::of::<K>().resource);
        self
    }

    /// Disables an oracle. Reports include the reason.
    pub fn relax(mut self, oracle: Oracle, why: impl Into<String>) -> Self {
        self.options.relaxed.push((oracle, why.into()));
        self
    }

    /// Excludes a field from comparisons: `spec.template.metadata.annotations`, with `*` for every
    /// element. The kind may be `*`. Reports include the reason.
    pub fn ignore_field(mut self, kind: &str, path: &str, why: impl Into<String>) -> Self {
        let parts = path.split('.').map(str::to_owned).collect();
        self.setup.ignored.push((kind.to_owned(), parts));
        let note = format!("{kind} {path} is not compared: {}", why.into());
        self.options.notes.push(note);
        self
    }

    /// Skips a family of faults, by its name in reports. Reports include the reason.
    pub fn without(mut self, family: &str, why: impl Into<String>) -> Self {
        self.options.without.push((family.to_owned(), why.into()));
        self
    }

    /// Injects only these families of faults.
    pub fn only(mut self, families: &[&str]) -> Self {
        let families: BTreeSet<String> = families.iter().map(|it| (*it).to_owned()).collect();
        self.options.only = Some(families);
        self
    }

    /// Tries only about this many of the single faults, some of every family, so that a test is
    /// fast. If `PINTLE_TRIALS_BUDGET` is set, all are tried.
    pub fn sample(mut self, scenarios: usize) -> Self {
        self.options.sample = Some(scenarios);
        self
    }

    /// Also runs scenarios with two faults: a crash during the recovery from a crash or a lost
    /// response.
    pub fn pairs(mut self) -> Self {
        self.options.pairs = true;
        self
    }

    /// Also runs this many scenarios with random combinations of faults and latencies.
    pub fn seeds(mut self, seeds: usize) -> Self {
        self.options.seeds = Some(seeds);
        self
    }

    /// Also fails requests with 403 and 422 once, which controllers may treat as terminal errors.
    pub fn terminal_errors(mut self) -> Self {
        self.options.terminal_errors = true;
        self
    }

    /// Compares the permissions that the controller uses with those it has: the `rules` of a Role
    /// or `ClusterRole`. Missing and unused permissions are reported.
    pub fn role(mut self, rules: impl Serialize) -> Self {
        match serde_json::to_value(rules) {
            Ok(rules) => self.options.role = Some(rules),
            Err(error) => self
                .errors
                .push(format!("failed to serialize the rules: {error}")),
        }
        self
    }

    /// Sets the directory for pages and stored failures. Default: `target/trials` for pages, and
    /// `trials-regressions` next to the crate's manifest for failures.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.options.pages.clone_from(&folder);
        self.options.regressions = folder;
        self
    }

    /// Replays one scenario, given its token from a report, instead of running all.
    /// `PINTLE_TRIALS_REPLAY` overrides it.
    pub fn replay(mut self, token: impl Into<String>) -> Self {
        self.options.replay.get_or_insert(token.into());
        self
    }

    /// Sets how long the check may take. `PINTLE_TRIALS_BUDGET` overrides it. Default: 30 s.
    pub fn budget(mut self, budget: Duration) -> Self {
        if !self.options.budget_from_env {
            self.options.budget = budget;
        }
        self
    }

    /// Runs the check.
    ///
    /// # Panics
    ///
    /// Panics with the report if any scenario fails.
    #[track_caller]
    #[expect(clippy::panic, reason = "fails the test that calls it")]
    #[expect(clippy::print_stderr, reason = "a test prints its report")]
    pub fn run(self) -> Report {
        let report = self.try_run();
        if report.is_ok() {
            eprintln!("{report}");
            return report;
        }
        panic!("{report}");
    }

    /// Runs the check and returns the report.
    pub fn try_run(self) -> Report {
        runner::run(self)
    }

    pub(crate) fn may_write_to(&self, resource: &ResourceName) -> bool {
        self.options.may_write.contains(resource)
    }
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.options.name)
            .field("steps", &self.story.len())
            .finish_non_exhaustive()
    }
}
