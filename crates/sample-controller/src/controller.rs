//! The Foo controller, in the shape of [kubernetes/sample-controller]'s `controller.go`.
//!
//! Event handlers put the key of each changed Foo on a work queue. Workers take keys off the queue
//! and call `sync_handler`, which compares the Foo with its Deployment, as the listers show them,
//! and writes only what differs. Functions carry the names of their Go counterparts.
//!
//! Where this controller deliberately differs from the Go original:
//!
//! - It patches `spec.replicas` instead of replacing the whole Deployment, so labels and
//!   annotations set by others survive.
//! - It writes a status and emits `Synced` only when something changed, not at every resync.
//! - It reports failures in the `Ready` condition, with one warning event per cause.
//! - It deletes the old Deployment after the Foo names another one.
//!
//! [kubernetes/sample-controller]: https://github.com/kubernetes/sample-controller

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use pintle::{
    cache::{Kind, Lister, Object, ObjectKey, OwnerRef},
    client::describe,
    clock::Clock,
    events::{EventRecorder, EventType},
    informer::{Event, InformerFactory, Registration},
    inspect::{Delay, Inspector, Record},
    queue::{Item, WorkQueue},
    rbac::{Rules, Verb},
    repeats::Repeats,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::{
    deployment::new_deployment,
    foo::{Foo, FooStatus},
    status,
};

/// The field manager of every write, and the source of every event.
pub const NAME: &str = "sample-controller";

/// The index of Deployments by the UID of their controller.
const BY_CONTROLLER: &str = "controller";

/// Why a sync failed. Every failed sync is retried with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A request failed.
    #[error("{action} failed: {source}")]
    Api {
        /// The operation, such as "creating the Deployment".
        action: &'static str,
        /// The error returned by the client.
        #[source]
        source: kube::Error,
    },
    /// The Deployment the Foo names has another controller, or none.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    ResourceExists(String),
    /// A cached object does not decode into its type.
    #[error(transparent)]
    Decode(#[from] pintle::cache::DecodeError),
    /// The index is missing, which cannot happen: `Controller::new` creates it.
    #[error(transparent)]
    Index(#[from] pintle::cache::UnknownIndex),
    /// The Foo has no UID, which cannot happen: it was read from the API server.
    #[error(transparent)]
    Owner(#[from] pintle::owner::OwnerError),
    /// `sync_handler` panicked.
    #[error("sync panicked")]
    Panicked,
}

/// Returns the permissions that the controller needs.
pub fn rules() -> Rules {
    Rules::new()
        .reads::<Foo>()
        .reports::<Foo>()
        .owns_through::<Foo>()
        .reads::<Deployment>()
        .writes::<Deployment>([Verb::Create, Verb::Patch, Verb::Delete])
        .records_events()
}

/// Maintains one Deployment per Foo.
pub struct Controller {
    client: Client,
    clock: Clock,
    informers: InformerFactory,
    foos_lister: Lister<Foo>,
    deployments_lister: Lister<Deployment>,
    /// Registrations of the event handlers; dropping them would remove the handlers.
    handlers: Vec<Registration>,
    workqueue: WorkQueue<ObjectKey>,
    /// What happens to each Foo, if there is an inspector.
    record: Arc<OnceLock<Record>>,
    recorder: EventRecorder,
    /// Limits how often the same failure of a Foo is logged.
    failures: Repeats<ObjectKey>,
    /// UID and message of each Foo's last warning event, so that retries do not repeat it.
    warned: Mutex<BTreeMap<ObjectKey, (Option<String>, String)>>,
    /// The last status written for each Foo, until the cache shows it.
    written: Mutex<BTreeMap<ObjectKey, Written>>,
    /// Whether the installed CRD drops the status fields that upstream's Foo does not have.
    prunes_conditions: AtomicBool,
    observer: Option<Box<Observer>>,
}

/// A status as the API server stored it.
struct Written {
    uid: Option<String>,
    version: Option<u64>,
    status: Option<FooStatus>,
}

/// Receives a short description of each change, such as `created Deployment/web`.
type Observer = dyn Fn(&str) + Send + Sync;

impl Controller {
    /// Creates a controller and registers its event handlers on the shared informers.
    ///
    /// # Errors
    ///
    /// Fails if the Deployment informer already has a different index of the same name.
    pub fn new(
        client: Client,
        informers: &InformerFactory,
        recorder: EventRecorder,
        workqueue: WorkQueue<ObjectKey>,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let foos = informers.informer::<Foo>();
        let deployments = informers.informer::<Deployment>();
        deployments.index_header(BY_CONTROLLER, |deployment: &Object<Deployment>| {
            let owner = deployment.controller_owner();
            owner
                .map(|owner| owner.uid().to_owned())
                .into_iter()
                .collect()
        })?;

        let record = Arc::new(OnceLock::new());
        let enqueue = Enqueue {
            queue: workqueue.clone(),
            record: Arc::clone(&record),
        };
        // Deleted Foos are enqueued too: the garbage collector deletes the Deployment, and the sync
        // drops the state we keep per Foo.
        let enqueue_foo = enqueue.clone();
        let on_foo = foos.on_event(move |event| enqueue_foo.add(event.key().clone(), &event));

        let on_deployment = deployments.on_event(move |event| match &event {
            Event::Added { object, .. } => handle_object(&enqueue, object, &event),
            // A resync delivers an update without a change. Foos are resynced separately.
            Event::Updated { old, new } if old.resource_version() == new.resource_version() => {}
            Event::Updated { old, new } => {
                handle_object(&enqueue, old, &event);
                handle_object(&enqueue, new, &event);
            }
            Event::Deleted(deleted) => handle_object(&enqueue, &deleted.last, &event),
        });

        Ok(Self {
            client,
            clock,
            informers: informers.clone(),
            foos_lister: foos.lister(),
            deployments_lister: deployments.lister(),
            handlers: vec![on_foo, on_deployment],
            workqueue,
            record,
            recorder,
            failures: Repeats::new(),
            warned: Mutex::default(),
            written: Mutex::default(),
            prunes_conditions: AtomicBool::new(false),
            observer: None,
        })
    }

    /// Calls `observer` after each change the controller makes in the cluster.
    pub fn observe(mut self, observer: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Records what happens to each Foo.
    pub fn inspect(mut self, inspector: &Inspector) -> Self {
        inspector.caches(&self.informers);
        let record = inspector.record::<Foo>(NAME, &self.workqueue);
        record.watches(["Foo", "Deployment"]);
        self.client = inspector.client(&self.client);
        self.record.get_or_init(|| record);
        self
    }

    /// Waits for the caches to sync, then runs `workers` workers until `shutdown` is cancelled.
    /// Syncs in progress at that point run to completion.
    ///
    /// # Errors
    ///
    /// Fails if an informer stops before its cache has synced.
    pub async fn run(self, workers: usize, shutdown: &CancellationToken) -> anyhow::Result<()> {
        info!("Waiting for informer caches to sync");
        let synced = async {
            self.informers.wait_for_sync().await?;
            for handler in &self.handlers {
                anyhow::ensure!(handler.synced().await, "failed to wait for caches to sync");
            }
            anyhow::Ok(())
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            synced = synced => synced?,
        }

        info!(workers, "Starting workers");
        if let Some(record) = self.record.get() {
            record.workers(workers);
        }
        let controller = Arc::new(self);
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Arc::clone(&controller).run_worker());
        }
        shutdown.cancelled().await;
        info!("Shutting down workers");
        controller.workqueue.shut_down();
        tasks.join_all().await;
        Ok(())
    }

    /// Processes work items until the queue is shut down.
    async fn run_worker(self: Arc<Self>) {
        while self.process_next_work_item().await {}
    }

    /// Takes one key off the queue and syncs it. Returns false once the queue is shut down.
    async fn process_next_work_item(&self) -> bool {
        let Some(item) = self.workqueue.get().await else {
            return false;
        };
        let span = info_span!("sync", foo = %item.key());
        // A panic fails this key and leaves the worker running.
        let sync = AssertUnwindSafe(self.sync_recorded(item.key())).catch_unwind();
        match sync
            .instrument(span)
            .await
            .unwrap_or(Err(SyncError::Panicked))
        {
            Ok(()) => {
                self.failures.forget(item.key());
                item.forget();
            }
            Err(error) => self.retry(item, &error),
        }
        true
    }

    /// Requeues a failed item with back-off.
    ///
    /// The first retries are milliseconds apart, so repeats of the same failure are logged at
    /// `warn` at a falling rate and otherwise at `debug`.
    fn retry(&self, item: Item<ObjectKey>, error: &SyncError) {
        let (foo, error) = (item.key().clone(), describe(error));
        let retry_in = item.retry();
        if let Some(record) = self.record.get() {
            record.delayed(&foo, Delay::BackOff, retry_in);
        }
        if let Some(unlogged) = self.failures.admit(&foo, &error) {
            warn!(%foo, error, ?retry_in, unlogged, "sync failed; retrying");
        } else {
            debug!(%foo, error, ?retry_in, "sync failed; retrying");
        }
    }

    /// Syncs a Foo and reports the outcome to the inspector.
    async fn sync_recorded(&self, key: &ObjectKey) -> Result<(), SyncError> {
        // Boxed, because every future that wraps it would contain another copy of its state.
        let sync = Box::pin(self.sync_handler(key));
        match self.record.get() {
            Some(record) => record.reconcile(key, sync, |error| describe(error)).await,
            None => sync.await,
        }
    }

    /// Compares the actual state with the desired one, converges the two, and updates the status
    /// of the Foo.
    async fn sync_handler(&self, key: &ObjectKey) -> Result<(), SyncError> {
        // Do not recreate the Deployment of a Foo that is being deleted: foreground deletion waits
        // for the Deployment to be gone.
        let cached = self.foos_lister.get(key);
        let Some(cached) = cached.filter(|foo| !foo.is_being_deleted()) else {
            info!("Foo no longer exists");
            self.warned.lock().remove(key);
            self.written.lock().remove(key);
            return Ok(());
        };
        let foo = self.with_written_status(key, cached.get()?);
        if foo.spec.deployment_name.is_empty() {
            // Not an error: a retry cannot help, and the next update enqueues the Foo again.
            let message = "spec.deploymentName must name the Deployment to manage";
            return self.report(&foo, "MissingDeploymentName", message).await;
        }

        let mut changed = false;
        let deployment = match self.sync_deployment(&foo, &mut changed).await {
            Ok(deployment) => deployment,
            Err(error) => {
                if let Some((reason, message)) = error.as_condition() {
                    self.report(&foo, reason, &message).await?;
                }
                return Err(error);
            }
        };
        changed |= self.delete_former_deployments(&foo).await?;
        let status = status::of_deployment(&foo, &deployment, &self.clock);
        changed |= self.update_foo_status(&foo, status).await?;

        self.warned.lock().remove(key);
        if changed {
            let message = "Foo synced successfully";
            self.recorder
                .event(&*foo, EventType::Normal, "Synced", message);
        }
        Ok(())
    }

    /// Creates the Deployment if it is missing, and scales it if its replicas differ from the
    /// Foo's.
    async fn sync_deployment(
        &self,
        foo: &Foo,
        changed: &mut bool,
    ) -> Result<Arc<Deployment>, SyncError> {
        let name = foo.spec.deployment_name.as_str();
        let namespace = foo.namespace();
        let deployments = self.deployments_in(namespace.as_deref());
        let key = ObjectKey::new(namespace.as_deref(), name);
        let Some(cached) = self.deployments_lister.get(&key) else {
            let params = PostParams {
                field_manager: Some(NAME.to_owned()),
                ..PostParams::default()
            };
            let created = deployments.create(&params, &new_deployment(foo)?).await;
            let created = created.map_err(SyncError::api("creating the Deployment"))?;
            self.did(&format!("created Deployment/{name}"));
            *changed = true;
            return Ok(Arc::new(created));
        };

        if cached.controller_owner().map(OwnerRef::uid) != foo.uid().as_deref() {
            return Err(SyncError::ResourceExists(name.to_owned()));
        }
        let deployment = cached.get()?;
        let current = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let Some(desired) = foo
            .spec
            .replicas
            .filter(|desired| current != Some(*desired))
        else {
            return Ok(deployment);
        };
        // The preconditions ensure that the patch applies to the object we compared.
        let patch = Patch::Merge(json!({
            "metadata": { "uid": cached.uid(), "resourceVersion": cached.resource_version() },
            "spec": { "replicas": desired },
        }));
        let patched = deployments.patch(name, &patch_params(), &patch).await;
        let patched = patched.map_err(SyncError::api("scaling the Deployment"))?;
        self.did(&format!("scaled Deployment/{name} to {desired}"));
        *changed = true;
        Ok(Arc::new(patched))
    }

    /// Deletes Deployments that the Foo controls under another name than the one in its spec.
    /// Returns whether there were any.
    async fn delete_former_deployments(&self, foo: &Foo) -> Result<bool, SyncError> {
        let mut changed = false;
        let uid = foo.uid().unwrap_or_default();
        for former in self.deployments_lister.by_index(BY_CONTROLLER, &uid)? {
            let name = former.key().name();
            if name == foo.spec.deployment_name || former.is_being_deleted() {
                continue;
            }
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: Some(former.uid().to_owned()),
                resource_version: None,
            });
            let deployments = self.deployments_in(former.key().namespace());
            match deployments.delete(name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => continue,
                Err(error) => return Err(SyncError::api("deleting an old Deployment")(error)),
            }
            self.did(&format!("deleted the old Deployment/{name}"));
            changed = true;
        }
        Ok(changed)
    }

    /// Sets the `Ready` condition to false and emits one warning event, however often the sync is
    /// retried.
    async fn report(&self, foo: &Foo, reason: &str, message: &str) -> Result<(), SyncError> {
        let warning = (foo.uid(), message.to_owned());
        let last = self
            .warned
            .lock()
            .insert(ObjectKey::of(foo), warning.clone());
        if last != Some(warning) {
            self.recorder
                .event(foo, EventType::Warning, reason, message);
        }
        let status = status::not_ready(foo, reason, message, &self.clock);
        self.update_foo_status(foo, status).await.map(drop)
    }

    /// Returns the cached Foo with the status that was written last.
    ///
    /// The Deployment's event often arrives before the event of the status write. Compared with the
    /// older status, the sync would write the same status again and emit a second `Synced`.
    fn with_written_status(&self, key: &ObjectKey, foo: Arc<Foo>) -> Arc<Foo> {
        let mut written = self.written.lock();
        let Some(last) = written.get(key) else {
            return foo;
        };
        if last.uid != foo.uid() || version(&foo) >= last.version {
            written.remove(key);
            return foo;
        }
        let mut foo = Arc::unwrap_or_clone(foo);
        foo.status.clone_from(&last.status);
        Arc::new(foo)
    }

    /// Patches the status subresource if the status differs from the last known one. Returns
    /// whether that changed the Foo.
    async fn update_foo_status(&self, foo: &Foo, status: FooStatus) -> Result<bool, SyncError> {
        // A CRD that prunes conditions never shows them, and must not be written to forever.
        let pruned = self.prunes_conditions.load(Ordering::Relaxed);
        let is_current = |current: &FooStatus| {
            *current == status || pruned && current.available_replicas == status.available_replicas
        };
        if foo.status.as_ref().is_some_and(is_current) {
            return Ok(false);
        }
        let name = foo.name_any();
        let namespace = foo.namespace().unwrap_or_default();
        let foos = Api::<Foo>::namespaced(self.client.clone(), &namespace);
        let patch = Patch::Merge(json!({ "metadata": { "uid": foo.uid() }, "status": status }));
        let stored = foos.patch_status(&name, &patch_params(), &patch).await;
        let stored = stored.map_err(SyncError::api("updating the status"))?;
        let pruned = stored
            .status
            .as_ref()
            .is_none_or(|stored| stored.conditions.is_empty());
        self.prunes_conditions.store(pruned, Ordering::Relaxed);
        let changed = stored.resource_version() != foo.resource_version();
        let written = Written {
            uid: stored.uid(),
            version: version(&stored),
            status: stored.status,
        };
        self.written.lock().insert(ObjectKey::of(foo), written);
        if changed {
            self.did(&format!("updated the status of Foo/{name}"));
        }
        Ok(changed)
    }

    /// Logs a change made in the cluster and passes it to the observer.
    fn did(&self, change: &str) {
        info!("{change}");
        if let Some(observer) = &self.observer {
            observer(change);
        }
    }

    fn deployments_in(&self, namespace: Option<&str>) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), namespace.unwrap_or_default())
    }
}

/// Adds keys to the work queue, and records why.
#[derive(Clone)]
struct Enqueue {
    queue: WorkQueue<ObjectKey>,
    record: Arc<OnceLock<Record>>,
}

impl Enqueue {
    fn add<K: Kind<DynamicType = ()>>(&self, key: ObjectKey, event: &Event<K>) {
        if let Some(record) = self.record.get() {
            record.woke(&key, event);
        }
        self.queue.add(key);
    }
}

/// Enqueues the Foo that controls `object`, if its controller is a Foo.
fn handle_object(enqueue: &Enqueue, object: &Object<Deployment>, event: &Event<Deployment>) {
    let Some(owner) = object.controller_owner() else {
        return;
    };
    if owner.kind() == Foo::kind(&()) && owner.group() == Foo::group(&()) {
        let foo = ObjectKey::new(object.key().namespace(), owner.name());
        enqueue.add(foo, event);
    }
}

/// Returns the `resourceVersion` of a Foo; a larger one is newer.
fn version(foo: &Foo) -> Option<u64> {
    foo.metadata.resource_version.as_ref()?.parse().ok()
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(NAME.to_owned()),
        ..PatchParams::default()
    }
}

impl SyncError {
    fn api(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { action, source }
    }

    /// Returns reason and message of the `Ready` condition if the user of the Foo can do something
    /// about the failure.
    fn as_condition(&self) -> Option<(&'static str, String)> {
        match self {
            Self::ResourceExists(_) => Some(("ErrResourceExists", self.to_string())),
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } if matches!(status.code, 400 | 403 | 422) => {
                Some(("DeploymentRefused", status.message.clone()))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("workqueue", &self.workqueue)
            .finish_non_exhaustive()
    }
}
