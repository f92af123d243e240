//! The controller, in the order in which it is usually explained: what it holds, the handlers that
//! enqueue, `run`, `process_next_item`, `sync`.

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use parking_lot::Mutex;
use pintle::{
    cache::{Lister, Object, ObjectKey, OwnerRef},
    clock::Clock,
    events::{EventRecorder, EventType},
    informer::{Backlog, Event, InformerFactory, Registration},
    queue::{Item, WorkQueue},
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use crate::{
    deployment,
    foo::{Foo, FooStatus},
    status::{self, Report},
};

/// Who we are in `managedFields` and as the source of events.
pub const NAME: &str = "sample-controller";

/// The index of Deployments by the UID of the Foo that controls them.
const BY_CONTROLLER: &str = "controller";

/// What stopped a sync. Each is retried with back-off.
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
    clock: Clock,
    informers: InformerFactory,
    /// The handlers below, for as long as the controller lives.
    handlers: Vec<Registration>,
    /// The server drops the status fields that the original `Foo` does not have.
    status_is_pruned: AtomicBool,
    /// The definition has no status subresource: there the status is a plain field.
    status_is_plain: AtomicBool,
    /// The trouble each Foo was last warned of, so that retries do not repeat the warning.
    warned: Mutex<BTreeMap<ObjectKey, Warned>>,
}

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
        // Every event counts: `sync` reads the cache, which is ahead of the events, and may have
        // acted on a Deployment whose coming and going would otherwise cancel each other.
        let every_event = deployments.handler().backlog(Backlog::Lossless);
        let on_deployment = every_event.on_event(move |event| match event {
            Event::Added { object, .. } => enqueue_owner(&enqueue, &object),
            // A resync tells what we know already.
            Event::Updated { old, new } if old.resource_version() == new.resource_version() => {}
            Event::Updated { old, new } => {
                enqueue_owner(&enqueue, &old);
                enqueue_owner(&enqueue, &new);
            }
            Event::Deleted(deleted) => {
                if let Some(last) = &deleted.last {
                    enqueue_owner(&enqueue, last);
                }
            }
        });

        Ok(Self {
            client,
            foos: foos.lister(),
            deployments: deployments.lister(),
            queue,
            recorder,
            clock,
            informers: informers.clone(),
            handlers: vec![on_foo, on_deployment],
            status_is_pruned: AtomicBool::new(false),
            status_is_plain: AtomicBool::new(false),
            warned: Mutex::default(),
        })
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
            Ok(Ok(())) => item.forget(),
            Ok(Err(error)) => {
                warn!(key = %item.key(), %error, "Error syncing; requeuing for later retry");
                item.retry();
            }
            Err(_) => {
                error!(key = %item.key(), "Panic while syncing; requeuing for later retry");
                item.retry();
            }
        }
    }
}

/// Whether a sync changed anything in the cluster; if not, there is nothing to tell.
#[derive(Clone, Copy, PartialEq)]
enum Changed {
    No,
    Yes,
}

impl Controller {
    /// Brings the world in line with the Foo called `key`.
    ///
    /// Level-triggered: it looks at what is, not at what happened, and writes only where the two
    /// differ, so running it again is free.
    async fn sync(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(cached) = self.foos.get(key).filter(|foo| !foo.is_being_deleted()) else {
            info!(foo = %key, "Foo no longer exists");
            self.warned.lock().remove(key);
            return Ok(());
        };
        let foo = cached.get()?;
        if foo.spec.deployment_name.is_empty() {
            return self.report_missing_name(key, &foo).await;
        }

        let mut changed = Changed::No;
        let deployment = self.sync_deployment(key, &foo, &mut changed).await?;
        self.remove_former_deployments(&foo, &mut changed).await?;
        self.sync_status(key, &foo, &Report::of(&deployment), &mut changed)
            .await?;
        self.warned.lock().remove(key);
        if changed == Changed::Yes {
            self.recorder.event(
                &*foo,
                EventType::Normal,
                "Synced",
                "Foo synced successfully",
            );
        }
        Ok(())
    }

    /// Makes sure the Deployment exists, is ours, and has the replicas that the Foo asks for.
    async fn sync_deployment(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        changed: &mut Changed,
    ) -> Result<Arc<Deployment>, SyncError> {
        let name = foo.spec.deployment_name.as_str();
        let api = self.deployments_of(key);
        let Some(cached) = self.deployments.get(&ObjectKey::new(key.namespace(), name)) else {
            let wanted = deployment::for_foo(foo)?;
            let params = PostParams {
                field_manager: Some(NAME.to_owned()),
                ..PostParams::default()
            };
            let created = api.create(&params, &wanted).await;
            let created = created.map_err(SyncError::api("creating the Deployment"))?;
            info!(foo = %key, deployment = name, "Created Deployment");
            *changed = Changed::Yes;
            return Ok(Arc::new(created));
        };

        if cached.controller_owner().map(OwnerRef::uid) != foo.uid().as_deref() {
            return Err(self.report_foreign(key, foo, name).await);
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
            match self
                .deployments_of(former.key())
                .delete(name, &exactly_this)
                .await
            {
                Ok(_) => *changed = Changed::Yes,
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(source) => {
                    return Err(SyncError::Api {
                        action: "deleting the former Deployment",
                        source,
                    });
                }
            }
            info!(foo = %foo.name_any(), deployment = name, "Deleted the former Deployment");
        }
        Ok(())
    }

    /// Nothing can be done until the user names a Deployment: told once, not retried.
    async fn report_missing_name(&self, key: &ObjectKey, foo: &Foo) -> Result<(), SyncError> {
        let message = "spec.deploymentName must name the Deployment to keep";
        self.warn_once(key, foo, "MissingDeploymentName", message);
        let report = Report::not_ready("MissingDeploymentName", message);
        self.sync_status(key, foo, &report, &mut Changed::No).await
    }

    /// Somebody else's Deployment is never touched. It may go away, so this is an error to retry.
    async fn report_foreign(&self, key: &ObjectKey, foo: &Foo, name: &str) -> SyncError {
        let error = SyncError::NotOurs(name.to_owned());
        let message = error.to_string();
        self.warn_once(key, foo, "ErrResourceExists", &message);
        let report = Report::not_ready("ErrResourceExists", &message);
        match self.sync_status(key, foo, &report, &mut Changed::No).await {
            Ok(()) => error,
            Err(error) => error,
        }
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

    /// Writes the status where it differs from what the Foo has.
    async fn sync_status(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        report: &Report,
        changed: &mut Changed,
    ) -> Result<(), SyncError> {
        let wanted = self.status(foo, report);
        if self.has_status(foo, &wanted) {
            return Ok(());
        }
        let plain = self.status_is_plain.load(Ordering::Relaxed);
        let stored = match self.write_status(key, foo, &wanted, plain).await {
            Err(kube::Error::Api(status)) if status.is_not_found() && !plain => {
                // Gone, or a definition without the subresource: the second try tells.
                self.status_is_plain.store(true, Ordering::Relaxed);
                let wanted = self.status(foo, report);
                if self.has_status(foo, &wanted) {
                    return Ok(());
                }
                self.write_status(key, foo, &wanted, true).await
            }
            stored => stored,
        };
        let stored = stored.map_err(SyncError::api("writing the status"))?;
        let pruned = status::is_pruned(&wanted, stored.status.as_ref());
        self.status_is_pruned.store(pruned, Ordering::Relaxed);
        if stored.metadata.resource_version != foo.metadata.resource_version {
            *changed = Changed::Yes;
        }
        Ok(())
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        foo: &Foo,
        status: &FooStatus,
        plain: bool,
    ) -> Result<Foo, kube::Error> {
        let api = self.foos_of(key);
        let patch = Patch::Merge(json!({ "metadata": { "uid": foo.uid() }, "status": status }));
        if plain {
            api.patch(key.name(), &as_ourselves(), &patch).await
        } else {
            api.patch_status(key.name(), &as_ourselves(), &patch).await
        }
    }

    /// The status to report. As a plain field it is part of what the generation counts, so to name
    /// the generation in it would be to chase our own writes.
    fn status(&self, foo: &Foo, report: &Report) -> FooStatus {
        let plain = self.status_is_plain.load(Ordering::Relaxed);
        let observed = foo.metadata.generation.filter(|_| !plain);
        report.to_status(foo, observed, &self.clock)
    }

    /// Whether `foo` says `wanted` already, as far as its server can say it.
    fn has_status(&self, foo: &Foo, wanted: &FooStatus) -> bool {
        match &foo.status {
            Some(has) if self.status_is_pruned.load(Ordering::Relaxed) => {
                has.available_replicas == wanted.available_replicas
            }
            has => has.as_ref() == Some(wanted),
        }
    }

    fn foos_of(&self, key: &ObjectKey) -> Api<Foo> {
        Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default())
    }

    fn deployments_of(&self, key: &ObjectKey) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default())
    }
}

impl SyncError {
    fn api(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { action, source }
    }
}

fn as_ourselves() -> PatchParams {
    PatchParams {
        field_manager: Some(NAME.to_owned()),
        ..PatchParams::default()
    }
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
