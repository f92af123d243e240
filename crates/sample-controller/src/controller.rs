//! The controller, in the order in which it is usually explained: what it holds, the handlers that
//! enqueue, `run`, `process_next_item`, `sync`.

use std::{collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PostParams, Preconditions, PropagationPolicy},
    core::Status,
};
use parking_lot::Mutex;
use pintle::{
    cache::{Lister, Object, ObjectKey, OwnerRef},
    client::describe,
    clock::Clock,
    events::{EventRecorder, EventType},
    informer::{Event, InformerFactory, Registration},
    queue::{Item, WorkQueue},
    repeats::Repeats,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::{
    deployment,
    foo::Foo,
    refusals::{Basis, Refusals},
    status::Report,
    status_writer::{StatusWriter, as_ourselves},
};

/// Who we are in `managedFields` and as the source of events.
pub const NAME: &str = "sample-controller";

/// The reason in the status and in the event when the server refuses the Deployment.
const REFUSED: &str = "DeploymentRefused";

/// The index of Deployments by the UID of the Foo that controls them.
const BY_CONTROLLER: &str = "controller";

/// Why a sync failed. Each error is retried with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The API server refused or did not answer.
    #[error("{action} failed: {source}")]
    Api {
        /// What was tried.
        action: &'static str,
        /// The answer.
        #[source]
        source: kube::Error,
    },
    /// The Deployment that the Foo names belongs to somebody else.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    NotOurs(String),
    /// The cached object cannot be read as its kind.
    #[error(transparent)]
    Decode(#[from] pintle::cache::DecodeError),
    /// The Foo went while it was being synced; the cache will show that soon.
    #[error("the Foo is gone")]
    Gone,
    /// Never: the index is made with the controller.
    #[error(transparent)]
    Index(#[from] pintle::cache::UnknownIndex),
    /// Never: a cached Foo was stored by a server.
    #[error(transparent)]
    Owner(#[from] pintle::owner::OwnerError),
}

/// Keeps one Deployment per Foo.
pub struct Controller {
    client: Client,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    queue: WorkQueue<ObjectKey>,
    recorder: EventRecorder,
    informers: InformerFactory,
    /// The handlers below, for as long as the controller lives.
    handlers: Vec<Registration>,
    status: StatusWriter,
    refusals: Refusals,
    /// The trouble each Foo was last warned of, so that retries do not repeat the warning.
    warned: Mutex<BTreeMap<ObjectKey, Warned>>,
    /// Which failures of a Foo are logged.
    failures: Repeats<ObjectKey>,
    observer: Option<Box<Observer>>,
}

/// Hears what the controller did, in a few words: `created Deployment/web`.
type Observer = dyn Fn(&str) + Send + Sync;

#[derive(PartialEq)]
struct Warned {
    uid: Option<String>,
    message: String,
}

impl Controller {
    /// A controller on the shared informers of the process; `run` makes it work.
    ///
    /// The handlers only enqueue keys. What a key needs is decided by `sync`, from the caches, when
    /// its turn comes.
    pub fn new(
        client: Client,
        informers: &InformerFactory,
        recorder: EventRecorder,
        queue: WorkQueue<ObjectKey>,
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

        let enqueue = queue.clone();
        let on_foo = foos.on_event(move |event| match event {
            Event::Added { object, .. } => enqueue.add(object.key().clone()),
            Event::Updated { new, .. } => enqueue.add(new.key().clone()),
            // The garbage collector takes its Deployment away; we only forget what we know of it.
            Event::Deleted(deleted) => enqueue.add(deleted.key),
        });

        let enqueue = queue.clone();
        let on_deployment = deployments.on_event(move |event| match event {
            Event::Added { object, .. } => enqueue_owner(&enqueue, &object),
            // A resync tells what we know already.
            Event::Updated { old, new } if old.resource_version() == new.resource_version() => {}
            Event::Updated { old, new } => {
                enqueue_owner(&enqueue, &old);
                enqueue_owner(&enqueue, &new);
            }
            Event::Deleted(deleted) => enqueue_owner(&enqueue, &deleted.last),
        });

        Ok(Self {
            status: StatusWriter::new(client.clone(), clock),
            client,
            foos: foos.lister(),
            deployments: deployments.lister(),
            queue,
            recorder,
            informers: informers.clone(),
            handlers: vec![on_foo, on_deployment],
            refusals: Refusals::default(),
            warned: Mutex::default(),
            failures: Repeats::new(),
            observer: None,
        })
    }

    /// Calls `observer` with everything that the controller changes in the cluster.
    pub fn observe(mut self, observer: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Waits for the caches, then works with `workers` workers until `shutdown`; what is being
    /// synced then is finished.
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
            biased; // Who is told to stop does not start.
            () = shutdown.cancelled() => return Ok(()),
            synced = synced => synced?,
        }

        info!(workers, "Starting workers");
        let controller = Arc::new(self);
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let controller = Arc::clone(&controller);
            tasks.spawn(async move { while controller.process_next_item().await {} });
        }
        shutdown.cancelled().await;
        info!("Shutting down workers");
        controller.queue.shut_down();
        tasks.join_all().await;
        Ok(())
    }

    /// Takes one key from the queue and syncs it; false when the queue has shut down.
    async fn process_next_item(&self) -> bool {
        let Some(item) = self.queue.get().await else {
            return false;
        };
        self.sync_item(item).await;
        true
    }

    async fn sync_item(&self, item: Item<ObjectKey>) {
        // What is logged on the way says which Foo it was about.
        let span = info_span!("sync", foo = %item.key());
        // A panic is this key's trouble, not the worker's.
        let synced = AssertUnwindSafe(self.sync(item.key())).catch_unwind();
        match synced.instrument(span).await {
            Ok(Ok(Next::Rest)) => {
                self.failures.forget(item.key());
                item.forget();
            }
            Ok(Ok(Next::After(wait))) => item.requeue_after(wait),
            Ok(Err(SyncError::Gone)) => {
                debug!(foo = %item.key(), "Foo is gone; waiting for the cache to show it");
                item.retry();
            }
            Ok(Err(error)) => self.retry(item, &describe(&error)),
            Err(_) => {
                error!(foo = %item.key(), "sync panicked; retrying");
                item.retry();
            }
        }
    }

    /// Retries a sync that failed. The log says so at once, and of the same failure again at a
    /// falling rate: the first retries are only milliseconds apart.
    fn retry(&self, item: Item<ObjectKey>, error: &str) {
        let foo = item.key().clone();
        let retry_in = item.retry();
        if let Some(unlogged) = self.failures.admit(&foo, error) {
            warn!(%foo, error, ?retry_in, unlogged, "sync failed; retrying");
        } else {
            debug!(%foo, error, ?retry_in, "sync failed; retrying");
        }
    }
}

/// What becomes of a key whose sync did not fail.
enum Next {
    /// Nothing until something changes.
    Rest,
    /// Another look after this time.
    After(Duration),
}

/// Whether a sync changed anything in the cluster; if not, there is nothing to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Changed {
    No,
    Yes,
}

impl Controller {
    /// Brings the world in line with the Foo called `key`.
    ///
    /// Level-triggered: it looks at what is, not at what happened, and writes only where the two
    /// differ, so running it again is free.
    async fn sync(&self, key: &ObjectKey) -> Result<Next, SyncError> {
        // One that is being deleted must not get its Deployment back: it goes after what it owns.
        let Some(cached) = self.foos.get(key).filter(|foo| !foo.is_being_deleted()) else {
            info!(foo = %key, "Foo no longer exists");
            self.forget(key);
            self.failures.forget(key);
            self.status.forget(key);
            return Ok(Next::Rest);
        };
        let foo = cached.get()?;
        if foo.spec.deployment_name.is_empty() {
            return self.report_missing_name(key, &foo).await;
        }

        let name = ObjectKey::new(key.namespace(), &foo.spec.deployment_name);
        let deployment = self.deployments.get(&name);
        let basis = Basis {
            uid: foo.uid(),
            generation: foo.metadata.generation,
            deployment: deployment.as_ref().map(|d| d.resource_version().to_owned()),
        };
        if let Some(refusal) = self.refusals.standing(key, &basis) {
            // The sync that was refused may have failed to write the status.
            self.report_trouble(key, &foo, REFUSED, &refusal.message)
                .await?;
            return Ok(Next::After(refusal.wait));
        }
        let mut changed = Changed::No;
        let synced = self.sync_deployment(key, &foo, deployment.as_ref(), &mut changed);
        let deployment = match synced.await {
            Ok(deployment) => deployment,
            Err(error) => return self.report_failure(key, &foo, basis, error).await,
        };
        self.remove_former_deployments(&foo, &mut changed).await?;
        if self
            .sync_status(key, &foo, &Report::of(&deployment))
            .await?
            == Changed::Yes
        {
            changed = Changed::Yes;
        }
        self.forget(key);
        if changed == Changed::Yes {
            self.recorder.event(
                &*foo,
                EventType::Normal,
                "Synced",
                "Foo synced successfully",
            );
        }
        Ok(Next::Rest)
    }

    /// Forgets what went wrong with a Foo: it is fine, or gone.
    fn forget(&self, key: &ObjectKey) {
        self.warned.lock().remove(key);
        self.refusals.forget(key);
    }

    /// Tells the observer, if there is one, what was done.
    fn did(&self, what: impl FnOnce() -> String) {
        if let Some(observer) = &self.observer {
            observer(&what());
        }
    }

    /// Makes sure the Deployment exists, is ours, and has the replicas that the Foo asks for.
    async fn sync_deployment(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        cached: Option<&Object<Deployment>>,
        changed: &mut Changed,
    ) -> Result<Arc<Deployment>, SyncError> {
        let name = foo.spec.deployment_name.as_str();
        let api = self.deployments_of(key);
        let Some(cached) = cached else {
            let wanted = deployment::for_foo(foo)?;
            let params = PostParams {
                field_manager: Some(NAME.to_owned()),
                ..PostParams::default()
            };
            let created = api.create(&params, &wanted).await;
            let created = created.map_err(SyncError::api("creating the Deployment"))?;
            info!(foo = %key, deployment = name, "Created Deployment");
            self.did(|| format!("created Deployment/{name}"));
            *changed = Changed::Yes;
            return Ok(Arc::new(created));
        };

        if cached.controller_owner().map(OwnerRef::uid) != foo.uid().as_deref() {
            return Err(SyncError::NotOurs(name.to_owned()));
        }
        let deployment = cached.get()?;
        let has = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let Some(wants) = foo.spec.replicas.filter(|wants| has != Some(*wants)) else {
            return Ok(deployment);
        };
        // Only the field we own, and only on the very object we looked at: a patch of `replicas`
        // leaves the labels and annotations of others alone.
        let patch = json!({
            "metadata": { "uid": cached.uid(), "resourceVersion": cached.resource_version() },
            "spec": { "replicas": wants },
        });
        let patched = api
            .patch(name, &as_ourselves(), &Patch::Merge(&patch))
            .await;
        let patched = patched.map_err(SyncError::api("scaling the Deployment"))?;
        info!(foo = %key, deployment = name, from = has, to = wants, "Scaled Deployment");
        self.did(|| format!("scaled Deployment/{name} to {wants}"));
        *changed = Changed::Yes;
        Ok(Arc::new(patched))
    }

    /// A Foo keeps exactly the Deployment it names: one it made under a former name goes.
    async fn remove_former_deployments(
        &self,
        foo: &Foo,
        changed: &mut Changed,
    ) -> Result<(), SyncError> {
        let Some(uid) = foo.uid() else { return Ok(()) };
        for former in self.deployments.by_index(BY_CONTROLLER, &uid)? {
            let name = former.key().name();
            if name == foo.spec.deployment_name || former.is_being_deleted() {
                continue;
            }
            let exactly_this = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                preconditions: Some(Preconditions {
                    uid: Some(former.uid().to_owned()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let deleted = self.deployments_of(former.key());
            match deleted.delete(name, &exactly_this).await {
                Ok(_) => *changed = Changed::Yes,
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    return Err(SyncError::api("deleting the former Deployment")(error));
                }
            }
            info!(foo = %foo.name_any(), deployment = name, "Deleted the former Deployment");
            self.did(|| format!("deleted the former Deployment/{name}"));
        }
        Ok(())
    }

    /// Nothing can be done until the user names a Deployment: reported once, not retried.
    async fn report_missing_name(&self, key: &ObjectKey, foo: &Foo) -> Result<Next, SyncError> {
        let message = "spec.deploymentName must name the Deployment to keep";
        self.report_trouble(key, foo, "MissingDeploymentName", message)
            .await?;
        Ok(Next::Rest)
    }

    /// Reports why a Foo cannot have its Deployment, where that concerns the Foo's owner.
    ///
    /// Another controller's Deployment is never touched; it may go, so that is an error to retry.
    /// What the server refuses as invalid stays so until the Foo changes: asked again, but slowly.
    async fn report_failure(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        basis: Basis,
        error: SyncError,
    ) -> Result<Next, SyncError> {
        match &error {
            SyncError::NotOurs(_) => {
                self.report_trouble(key, foo, "ErrResourceExists", &error.to_string())
                    .await?;
            }
            SyncError::Api {
                source: kube::Error::Api(status),
                ..
            } if is_refusal(status) => {
                // Noted first: if the status write fails, the retry repeats only that write.
                let note = || self.refusals.note(key, basis, &status.message);
                let wait = is_permanent(status).then(note);
                self.report_trouble(key, foo, REFUSED, &status.message)
                    .await?;
                if let Some(wait) = wait {
                    warn!(foo = %key, error = describe(&error), retry_in = ?wait, "Deployment refused");
                    return Ok(Next::After(wait));
                }
            }
            _ => {}
        }
        Err(error)
    }

    /// Says in the status, and once in an event, what keeps a Foo from being ready.
    async fn report_trouble(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        reason: &'static str,
        message: &str,
    ) -> Result<(), SyncError> {
        self.warn_once(key, foo, reason, message);
        let report = Report::not_ready(reason, message);
        self.sync_status(key, foo, &report).await.map(drop)
    }

    async fn sync_status(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        report: &Report,
    ) -> Result<Changed, SyncError> {
        let changed = self.status.write(key, foo, report).await?;
        if changed == Changed::Yes {
            self.did(|| format!("updated the status of Foo/{}", key.name()));
        }
        Ok(changed)
    }

    fn warn_once(&self, key: &ObjectKey, foo: &Foo, reason: &str, message: &str) {
        let now = Warned {
            uid: foo.uid(),
            message: message.to_owned(),
        };
        let mut warned = self.warned.lock();
        if warned.get(key) != Some(&now) {
            warned.insert(key.clone(), now);
            self.recorder
                .event(foo, EventType::Warning, reason, message);
        }
    }

    fn deployments_of(&self, key: &ObjectKey) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default())
    }
}

impl SyncError {
    pub(crate) fn api(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { action, source }
    }
}

/// The server understood the request and will not do it.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 422)
}

/// The same request will be refused again; a right, by contrast, may be granted at any time.
fn is_permanent(status: &Status) -> bool {
    matches!(status.code, 400 | 422)
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Enqueues the Foo that controls `object`, if one does.
fn enqueue_owner(queue: &WorkQueue<ObjectKey>, object: &Object<Deployment>) {
    let Some(owner) = object.controller_owner() else {
        return;
    };
    if owner.kind() == Foo::kind(&()) && owner.group() == Foo::group(&()) {
        queue.add(ObjectKey::new(object.key().namespace(), owner.name()));
    }
}
