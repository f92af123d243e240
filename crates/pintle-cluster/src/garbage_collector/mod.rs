//! Deletes objects whose owners are gone.
//!
//! The collector watches every kind that can be listed, watched and deleted, except Events, and
//! maintains a [`Graph`] of owners and dependents. Its queue holds UIDs of objects that may need an
//! action. [`Graph::decide`] returns the action for one object, and this file performs it. Kinds
//! that other loops watch share their informers; for all others, only metadata is watched.

mod decide;
mod graph;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingAdmissionPolicy,
        apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::{CronJob, Job},
        certificates::v1::CertificateSigningRequest,
        core::v1::{
            ConfigMap, Endpoints, Namespace, Node, ObjectReference, PersistentVolume,
            PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret, Service,
            ServiceAccount,
        },
        discovery::v1::EndpointSlice,
        networking::v1::{IPAddress, ServiceCIDR},
        policy::v1::PodDisruptionBudget,
        rbac::v1::ClusterRole,
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::ApiResource,
};
use parking_lot::Mutex;
use pintle::{
    cache::{Kind, ObjectKey},
    client::describe,
    events::{EventRecorder, EventType, Reference},
    informer::{Event, Registration, SharedInformer},
    queue::WorkQueue,
};
use serde_json::json;
use tokio::{sync::Notify, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    decide::{Decision, OwnerState, OwnerStates, Propagation, Step},
    graph::{FOREGROUND, Graph, Identity},
};
use crate::{
    discovery::{self, Discovered},
    loops::{Environment, LoopError},
    meta,
};

/// The number of objects processed concurrently.
const WORKERS: usize = 5;
/// How long to wait for all kinds to sync at the start. Starting earlier is safe but slower: owners
/// that were not observed are looked up one by one.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// A group and a kind, independent of the version.
type GroupKind = (String, String);

/// A watched kind.
struct Monitor {
    kind: ApiResource,
    /// Dropping it removes the handler.
    handler: Registration,
    /// Whether a CRD has ever defined the kind.
    defined: bool,
}

/// The state shared by handlers and workers.
struct Collector {
    environment: Arc<Environment>,
    recorder: EventRecorder,
    graph: Mutex<Graph>,
    queue: WorkQueue<String>,
    kinds: Mutex<BTreeMap<GroupKind, Discovered>>,
    /// Notified when the set of kinds may have changed.
    rediscover: Notify,
}

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let collector = Arc::new(Collector {
        recorder: environment.events.recorder("garbage-collector-controller"),
        graph: Mutex::default(),
        queue: WorkQueue::builder("garbage-collector")
            .metrics(&environment.metrics)
            .build(),
        kinds: Mutex::default(),
        rediscover: Notify::new(),
        environment,
    });
    // Dropping monitors removes their handlers, so they live until the loop ends.
    let mut monitors = BTreeMap::new();
    collector.sync_monitors(&mut monitors).await?;
    let synced = async {
        for monitor in monitors.values() {
            monitor.handler.synced().await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        _ = timeout(SYNC_TIMEOUT, synced) => {}
    }

    let workers = TaskTracker::new();
    for _ in 0..WORKERS {
        let collector = collector.clone();
        workers.spawn(async move { collector.run_worker().await });
    }
    workers.close();
    let _guard = ShutDownOnDrop(&collector.queue);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = collector.rediscover.notified() => {
                collector.sync_monitors(&mut monitors).await?;
            }
        }
    }
    collector.queue.shut_down();
    workers.wait().await;
    Ok(())
}

/// Stops the workers when the loop returns early.
struct ShutDownOnDrop<'a>(&'a WorkQueue<String>);

impl Drop for ShutDownOnDrop<'_> {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Collector {
    /// Starts monitors for new kinds and removes those of kinds that are gone.
    ///
    /// A kind whose CRD serves no version keeps its objects in the graph. So does a kind of an
    /// aggregated API server that is temporarily unavailable.
    async fn sync_monitors(
        self: &Arc<Self>,
        monitors: &mut BTreeMap<GroupKind, Monitor>,
    ) -> Result<(), kube::Error> {
        let watchable = |kind: &Discovered| {
            // Events are numerous, own nothing and expire.
            ["list", "watch", "delete"]
                .iter()
                .all(|verb| kind.can(verb))
                && kind.resource.kind != "Event"
        };
        let kinds: BTreeMap<GroupKind, Discovered> = discovery::kinds(&self.environment.client)
            .await?
            .into_iter()
            .filter(watchable)
            .map(|kind| {
                (
                    (kind.resource.group.clone(), kind.resource.kind.clone()),
                    kind,
                )
            })
            .collect();
        for monitor in monitors.values_mut() {
            monitor.defined |= self.is_defined(&monitor.kind);
        }
        let gone = |(key, monitor): &(&GroupKind, &Monitor)| {
            !kinds.contains_key(*key) && !self.is_defined(&monitor.kind)
        };
        let gone: Vec<_> = monitors
            .iter()
            .filter(gone)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            // Drop the handler first, so that it cannot add objects after they were removed.
            if !monitors.remove(&key).is_some_and(|monitor| monitor.defined) {
                continue;
            }
            let work = self.graph.lock().forget_kind(&key.0, &key.1);
            self.enqueue(work);
        }
        *self.kinds.lock() = kinds.clone();
        for (key, Discovered { resource, .. }) in kinds {
            if monitors
                .get(&key)
                .is_none_or(|monitor| monitor.kind != resource)
            {
                let handler = self.monitor(&resource);
                monitors.insert(
                    key,
                    Monitor {
                        defined: self.is_defined(&resource),
                        kind: resource,
                        handler,
                    },
                );
            }
        }
        Ok(())
    }

    /// Returns whether a CRD for the kind is in the cache.
    fn is_defined(&self, kind: &ApiResource) -> bool {
        let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
        let definitions = self.environment.informers.metadata(&definitions).lister();
        let name = format!("{}.{}", kind.plural, kind.group);
        definitions.get(&ObjectKey::cluster(&name)).is_some()
    }

    /// Monitors a kind, sharing the informer of other loops if there is one.
    fn monitor(self: &Arc<Self>, kind: &ApiResource) -> Registration {
        macro_rules! shared {
            ($($shared:ty),*) => {
                $(if is::<$shared>(kind) {
                    return self.add_handler(&self.environment.informers.informer::<$shared>(), kind);
                })*
            };
        }
        shared!(
            ControllerRevision,
            Deployment,
            ReplicaSet,
            StatefulSet,
            DaemonSet,
            CronJob,
            Job,
            Pod,
            Node,
            Namespace,
            ServiceAccount,
            ConfigMap,
            PersistentVolume,
            PersistentVolumeClaim,
            PodDisruptionBudget,
            ResourceQuota,
            ClusterRole,
            ValidatingAdmissionPolicy,
            Service,
            Endpoints,
            EndpointSlice,
            StorageClass,
            ReplicationController,
            HorizontalPodAutoscaler,
            Secret,
            ServiceCIDR,
            IPAddress,
            CertificateSigningRequest
        );
        self.add_handler(&self.environment.informers.metadata(kind), kind)
    }

    fn add_handler<K: Kind>(
        self: &Arc<Self>,
        informer: &SharedInformer<K>,
        kind: &ApiResource,
    ) -> Registration {
        let (collector, resource) = (self.clone(), kind.clone());
        let defines_kinds = is::<CustomResourceDefinition>(kind);
        informer.on_event(move |event| {
            let work = match event {
                Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                    // Without readable metadata the owners are unknown, so ignore the object.
                    let Ok(meta) = object.metadata() else { return };
                    let identity = Identity::of(&resource.api_version, &resource.kind, &meta);
                    collector.graph.lock().observe(identity, &meta)
                }
                Event::Deleted(deleted) => collector.graph.lock().forget(deleted.last.uid()),
            };
            collector.enqueue(work);
            if defines_kinds {
                collector.rediscover.notify_one();
            }
        })
    }

    fn enqueue(&self, uids: BTreeSet<String>) {
        for uid in uids {
            self.queue.add(uid);
        }
    }

    async fn run_worker(&self) {
        while let Some(item) = self.queue.get().await {
            match self.process(item.key()).await {
                Ok(false) => item.forget(),
                Ok(true) => {
                    item.retry();
                }
                Err(error) => {
                    let error = describe(&error);
                    tracing::warn!(
                        uid = item.key(),
                        error,
                        "garbage collection failed; retrying"
                    );
                    item.retry();
                }
            }
        }
    }

    /// Decides what to do with one object and does it. Returns whether to retry later.
    async fn process(&self, uid: &str) -> Result<bool, kube::Error> {
        let mut states = OwnerStates::new();
        let decision = self.graph.lock().decide(uid, &states);
        let decision = match decision {
            Decision::Lookup { dependent, owners } => {
                for owner in owners {
                    let state = self.look_up(&dependent, &owner).await?;
                    self.graph.lock().remember(&dependent, &owner, state);
                    states.insert(owner.uid, state);
                }
                self.graph.lock().decide(uid, &states)
            }
            decision => decision,
        };
        match decision {
            Decision::Ignore => Ok(false),
            // An owner was added during the lookups.
            Decision::Lookup { .. } => Ok(true),
            Decision::Apply { steps, retry } => {
                for step in steps {
                    match self.apply(step).await {
                        Ok(()) => {}
                        // Deleted: the informer reports it. Changed: decide again. A 404 without a
                        // reason means that the version is not served; the object may exist.
                        Err(kube::Error::Api(status)) if status.is_not_found() => {}
                        Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(true),
                        Err(error) => return Err(error),
                    }
                }
                Ok(retry)
            }
        }
    }

    /// Looks up an owner on the server.
    async fn look_up(
        &self,
        dependent: &Identity,
        owner: &OwnerReference,
    ) -> Result<OwnerState, kube::Error> {
        let group = graph::group(&owner.api_version);
        let kind = self
            .kinds
            .lock()
            .get(&(group.to_owned(), owner.kind.clone()))
            .cloned();
        let Some(kind) = kind else {
            return Ok(OwnerState::UnknownKind);
        };
        if kind.namespaced && dependent.namespace.is_empty() {
            return Ok(OwnerState::OutOfReach);
        }
        let namespace = if kind.namespaced {
            dependent.namespace.as_str()
        } else {
            ""
        };
        let found = self
            .objects(&kind.resource, namespace)
            .get_metadata_opt(&owner.name)
            .await?;
        Ok(match found {
            Some(found) if found.metadata.uid.as_ref() == Some(&owner.uid) => OwnerState::Present {
                awaits_dependents: meta::is_being_deleted(&found.metadata)
                    && found
                        .metadata
                        .finalizers
                        .iter()
                        .flatten()
                        .any(|it| it == FOREGROUND),
            },
            _ => OwnerState::Absent,
        })
    }

    async fn apply(&self, step: Step) -> Result<(), kube::Error> {
        match step {
            Step::Delete {
                object,
                resource_version,
                propagation,
            } => {
                let params = DeleteParams {
                    propagation_policy: Some(match propagation {
                        Propagation::Background => PropagationPolicy::Background,
                        Propagation::Foreground => PropagationPolicy::Foreground,
                        Propagation::Orphan => PropagationPolicy::Orphan,
                    }),
                    preconditions: Some(Preconditions {
                        uid: Some(object.uid.clone()),
                        resource_version: Some(resource_version),
                    }),
                    ..DeleteParams::default()
                };
                self.objects_of(&object)
                    .delete(&object.name, &params)
                    .await?;
            }
            Step::SetOwners {
                object,
                resource_version,
                owners,
            } => {
                self.patch(
                    &object,
                    &resource_version,
                    json!({ "ownerReferences": owners }),
                )
                .await?;
            }
            Step::SetFinalizers {
                object,
                resource_version,
                finalizers,
            } => {
                self.patch(
                    &object,
                    &resource_version,
                    json!({ "finalizers": finalizers }),
                )
                .await?;
            }
            Step::WarnNamespace { object, owner } => {
                let message = format!(
                    "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
                    owner.api_version,
                    owner.kind,
                    object.namespace,
                    owner.name,
                    owner.uid,
                    object.namespace,
                );
                let regarding = Reference::from(ObjectReference {
                    api_version: Some(object.api_version),
                    kind: Some(object.kind),
                    namespace: Some(object.namespace),
                    name: Some(object.name),
                    uid: Some(object.uid),
                    ..ObjectReference::default()
                });
                self.recorder.event(
                    &regarding,
                    EventType::Warning,
                    "OwnerRefInvalidNamespace",
                    message,
                );
            }
        }
        Ok(())
    }

    /// Patches metadata if UID and resourceVersion still match.
    async fn patch(
        &self,
        object: &Identity,
        resource_version: &str,
        mut metadata: serde_json::Value,
    ) -> Result<(), kube::Error> {
        metadata["uid"] = json!(object.uid);
        metadata["resourceVersion"] = json!(resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let objects = self.objects_of(object);
        objects
            .patch_metadata(&object.name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    fn objects_of(&self, object: &Identity) -> Api<DynamicObject> {
        let (group, version) = object
            .api_version
            .split_once('/')
            .unwrap_or(("", &object.api_version));
        let key = (group.to_owned(), object.kind.clone());
        let kind = self
            .kinds
            .lock()
            .get(&key)
            .map(|kind| kind.resource.clone());
        let plural = || format!("{}s", object.kind.to_lowercase());
        let kind =
            kind.unwrap_or_else(|| discovery::resource(group, version, &object.kind, &plural()));
        self.objects(&kind, &object.namespace)
    }

    fn objects(&self, kind: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        let client = self.environment.client.clone();
        if namespace.is_empty() {
            Api::all_with(client, kind)
        } else {
            Api::namespaced_with(client, namespace, kind)
        }
    }
}

fn is<K: Resource<DynamicType = ()>>(kind: &ApiResource) -> bool {
    K::group(&()) == kind.group && K::kind(&()) == kind.kind && K::version(&()) == kind.version
}
