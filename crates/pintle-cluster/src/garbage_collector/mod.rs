//! Garbage: what no owner is left for.
//!
//! The collector watches the metadata of every kind the server has and keeps a [`Graph`] of owners
//! and dependents. Its queue holds UIDs that deserve a look; [`Graph::look`] says what to do about
//! one, and this file does it. Kinds that other loops watch too are followed through the same
//! informers; of all others only the metadata is asked for.

mod graph;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{
            ConfigMap, Namespace, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim,
            Pod, ServiceAccount,
        },
        policy::v1::PodDisruptionBudget,
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

use self::graph::{Answer, Answers, FOREGROUND, Graph, Identity, Look, Propagation, Step};
use crate::{
    discovery::{self, Discovered},
    manager::{Environment, LoopError},
    meta,
};

/// How many UIDs are looked at at once.
const WORKERS: usize = 5;
/// How long the first look waits for all kinds to be read. Not reading them all is not a danger,
/// only slower: owners that were not observed are asked for one by one.
const SYNC: Duration = Duration::from_secs(30);

/// A group and a kind, whatever the version.
type GroupKind = (String, String);

/// A kind that is watched.
struct Monitor {
    kind: ApiResource,
    /// Dropping it ends the watching.
    told: Registration,
    /// There was a definition for it.
    defined: bool,
}

/// The collector at work.
struct Collector {
    environment: Arc<Environment>,
    recorder: EventRecorder,
    graph: Mutex<Graph>,
    queue: WorkQueue<String>,
    kinds: Mutex<BTreeMap<GroupKind, Discovered>>,
    /// The kinds may have changed.
    rediscover: Notify,
}

/// Runs the loop until `stop`.
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
    // Dropping them ends the watching, so they live as long as this run.
    let mut monitors = BTreeMap::new();
    collector.follow_kinds(&mut monitors).await?;
    let synced = async {
        for monitor in monitors.values() {
            monitor.told.synced().await;
        }
    };
    tokio::select! {
        biased; // Who is told to stop does not start.
        () = stop.cancelled() => return Ok(()),
        _ = timeout(SYNC, synced) => {}
    }

    let workers = TaskTracker::new();
    for _ in 0..WORKERS {
        let collector = collector.clone();
        workers.spawn(async move { collector.work().await });
    }
    workers.close();
    let _end = ShutDown(&collector.queue);
    loop {
        tokio::select! {
            biased; // Stopping comes before finding new work.
            () = stop.cancelled() => break,
            () = collector.rediscover.notified() => {
                collector.follow_kinds(&mut monitors).await?;
            }
        }
    }
    collector.queue.shut_down();
    workers.wait().await;
    Ok(())
}

/// Ends the workers however the run ends.
struct ShutDown<'a>(&'a WorkQueue<String>);

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Collector {
    /// Begins to watch kinds that are new, in the version they are best served in, and ends to
    /// watch those that are gone.
    ///
    /// A kind that is defined but served in no version keeps its objects, and so does the graph; so
    /// does one that another server serves, for instance while that server is being replaced.
    async fn follow_kinds(
        self: &Arc<Self>,
        monitors: &mut BTreeMap<GroupKind, Monitor>,
    ) -> Result<(), kube::Error> {
        let watchable = |kind: &Discovered| {
            // Events are many, own nothing, and go by themselves.
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
            // First nobody tells of such objects any more, then they are forgotten.
            if !monitors.remove(&key).is_some_and(|monitor| monitor.defined) {
                continue;
            }
            let work = self.graph.lock().forget_kind(&key.0, &key.1);
            self.look_at(work);
        }
        *self.kinds.lock() = kinds.clone();
        for (key, Discovered { resource, .. }) in kinds {
            if monitors
                .get(&key)
                .is_none_or(|monitor| monitor.kind != resource)
            {
                let told = self.monitor(&resource);
                monitors.insert(
                    key,
                    Monitor {
                        defined: self.is_defined(&resource),
                        kind: resource,
                        told,
                    },
                );
            }
        }
        Ok(())
    }

    /// Whether there is a definition for the kind, as far as the cache knows.
    fn is_defined(&self, kind: &ApiResource) -> bool {
        let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
        let definitions = self.environment.informers.metadata(&definitions).lister();
        let name = format!("{}.{}", kind.plural, kind.group);
        definitions.get(&ObjectKey::cluster(&name)).is_some()
    }

    /// Watches one kind, through the informer that other loops use if there is one.
    fn monitor(self: &Arc<Self>, kind: &ApiResource) -> Registration {
        macro_rules! shared {
            ($($shared:ty),*) => {
                $(if is::<$shared>(kind) {
                    return self.follow(&self.environment.informers.informer::<$shared>(), kind);
                })*
            };
        }
        shared!(
            Deployment,
            ReplicaSet,
            Pod,
            Node,
            Namespace,
            ServiceAccount,
            ConfigMap,
            PersistentVolume,
            PersistentVolumeClaim,
            PodDisruptionBudget
        );
        // The factory starts an informer with the token of the last start, which may be a loop's.
        self.environment
            .informers
            .start(&self.environment.informing);
        self.follow(&self.environment.informers.metadata(kind), kind)
    }

    fn follow<K: Kind>(
        self: &Arc<Self>,
        informer: &SharedInformer<K>,
        kind: &ApiResource,
    ) -> Registration {
        let (collector, resource) = (self.clone(), kind.clone());
        let defines_kinds = is::<CustomResourceDefinition>(kind);
        informer.on_event(move |event| {
            let work = match event {
                Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                    // Metadata that cannot be read says nothing about owners: leave it alone.
                    let Ok(meta) = object.metadata() else { return };
                    let identity = Identity::of(&resource.api_version, &resource.kind, &meta);
                    collector.graph.lock().observe(identity, &meta)
                }
                Event::Deleted(deleted) => collector.graph.lock().forget(deleted.last.uid()),
            };
            collector.look_at(work);
            if defines_kinds {
                collector.rediscover.notify_one();
            }
        })
    }

    fn look_at(&self, uids: BTreeSet<String>) {
        for uid in uids {
            self.queue.add(uid);
        }
    }

    async fn work(&self) {
        while let Some(item) = self.queue.get().await {
            match self.attend(item.key()).await {
                Ok(false) => item.forget(),
                Ok(true) => {
                    item.retry();
                }
                Err(error) => {
                    let error = describe(&error);
                    tracing::warn!(uid = item.key(), error, "garbage is looked at again later");
                    item.retry();
                }
            }
        }
    }

    /// Looks at one UID and does what is to be done. True to look again later.
    async fn attend(&self, uid: &str) -> Result<bool, kube::Error> {
        let mut answers = Answers::new();
        let look = self.graph.lock().look(uid, &answers);
        let look = match look {
            Look::Ask { from, owners } => {
                for owner in owners {
                    let answer = self.ask(&from, &owner).await?;
                    self.graph.lock().remember(&from, &owner, answer);
                    answers.insert(owner.uid, answer);
                }
                self.graph.lock().look(uid, &answers)
            }
            look => look,
        };
        match look {
            Look::Leave => Ok(false),
            // An owner came up while others were asked for.
            Look::Ask { .. } => Ok(true),
            Look::Take { steps, again } => {
                for step in steps {
                    match self.take(step).await {
                        Ok(()) => {}
                        // Gone: the informer tells. Changed: decide again on what it is now.
                        Err(kube::Error::Api(status)) if status.is_not_found() => {}
                        Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(true),
                        Err(error) => return Err(error),
                    }
                }
                Ok(again)
            }
        }
    }

    /// Asks the server about an owner.
    async fn ask(&self, from: &Identity, owner: &OwnerReference) -> Result<Answer, kube::Error> {
        let group = graph::group(&owner.api_version);
        let kind = self
            .kinds
            .lock()
            .get(&(group.to_owned(), owner.kind.clone()))
            .cloned();
        let Some(kind) = kind else {
            return Ok(Answer::UnknownKind);
        };
        if kind.namespaced && from.namespace.is_empty() {
            return Ok(Answer::OutOfReach);
        }
        let namespace = if kind.namespaced {
            from.namespace.as_str()
        } else {
            ""
        };
        let found = self
            .objects(&kind.resource, namespace)
            .get_metadata_opt(&owner.name)
            .await?;
        Ok(match found {
            Some(found) if found.metadata.uid.as_ref() == Some(&owner.uid) => Answer::Present {
                awaits_dependents: meta::is_being_deleted(&found.metadata)
                    && found
                        .metadata
                        .finalizers
                        .iter()
                        .flatten()
                        .any(|have| have == FOREGROUND),
            },
            _ => Answer::Absent,
        })
    }

    async fn take(&self, step: Step) -> Result<(), kube::Error> {
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
                let about = Reference::from(ObjectReference {
                    api_version: Some(object.api_version),
                    kind: Some(object.kind),
                    namespace: Some(object.namespace),
                    name: Some(object.name),
                    uid: Some(object.uid),
                    ..ObjectReference::default()
                });
                self.recorder.event(
                    &about,
                    EventType::Warning,
                    "OwnerRefInvalidNamespace",
                    message,
                );
            }
        }
        Ok(())
    }

    /// Replaces parts of the metadata of exactly the version that was looked at.
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
