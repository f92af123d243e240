//! Binds claims to volumes.
//!
//! A claim gets an existing volume, or names the provisioner that should create one, such as the
//! loop [`provisioner`](crate::provisioner). A binding consists of four writes, in this order: the
//! volume, its status, the claim, its status. Writes that have been made are skipped, so that an
//! interrupted binding is completed later.

pub(crate) mod behavior;
pub(crate) mod claim;
pub(crate) mod matching;
pub(crate) mod volume;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::Api;
use parking_lot::Mutex;
use pintle::{
    cache::{Lister, Object, ObjectKey},
    controller::{Action, Context, ReconcileError},
    events::{EventRecorder, EventType},
};
use tokio_util::sync::CancellationToken;

use self::{
    behavior::Hold,
    claim::{Consumer, Note, World},
};
use crate::{
    api::{self, unless_stale},
    loops::{Environment, LoopError},
    meta,
    pods::state::{is_finished, node_name},
    rules::changes,
    volume_protection::plan::claims,
};

/// How long a claim waits after another client has changed its volume.
const RETRY: Duration = Duration::from_secs(1);

/// The last event about each claim, so that events are not repeated while nothing changes.
type Said = Arc<Mutex<BTreeMap<ObjectKey, Note>>>;

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let all = environment
        .informers
        .informer::<PersistentVolumeClaim>()
        .lister();
    let recorder = environment.events.recorder("persistentvolume-controller");
    let (pending, said, warnings) = (all.clone(), Said::default(), recorder.clone());
    let (shared, scripted) = (environment.clone(), all.clone());
    let rescripted = changes(environment.claims.subscribe());
    let claims = environment
        .controller::<PersistentVolumeClaim>("persistentvolume-binder")
        .wakes(rescripted.flat_map(move |()| stream::iter(unbound(&scripted))))
        .watches::<PersistentVolume>(move |volume, _| claims_of(volume, &all))
        .watches::<StorageClass>(move |_, _| unbound(&pending))
        .watches::<Pod>(|pod, _| {
            let namespace = pod.key().namespace().unwrap_or_default();
            let claims = pod.get().map(|pod| claims(&pod)).unwrap_or_default();
            let keys = claims.iter();
            keys.map(|claim| ObjectKey::namespaced(namespace, claim))
                .collect()
        })
        .watches::<Node>(|_, _| Vec::new())
        .run_by_key(
            move |key, cx| {
                let (environment, recorder) = (shared.clone(), warnings.clone());
                reconcile_claim(key, cx, environment, said.clone(), recorder)
            },
            &stop,
        );
    let volumes = environment
        .controller::<PersistentVolume>("persistentvolume-releaser")
        .watches::<PersistentVolumeClaim>(|claim, listers| {
            let mut keys: Vec<ObjectKey> = Vec::new();
            if let Ok(claim) = claim.get() {
                let name = claim::spec(&claim).volume_name.as_deref();
                keys.extend(name.map(ObjectKey::cluster));
            }
            if let Ok(volumes) = listers.get::<PersistentVolume>()
                && let Ok(named) = volumes.index_keys(api::VOLUMES_BY_CLAIM, claim.key().name())
            {
                keys.extend(named);
            }
            keys
        })
        .run_by_key(
            move |key, cx| reconcile_volume(key, cx, recorder.clone()),
            &stop,
        );
    futures::try_join!(claims, volumes)?;
    Ok(())
}

/// Maps a volume to the claim it refers to. A volume that is free may fit any claim.
fn claims_of(
    volume: &Object<PersistentVolume>,
    all: &Lister<PersistentVolumeClaim>,
) -> Vec<ObjectKey> {
    let Ok(volume) = volume.get() else {
        return Vec::new();
    };
    claim_key(&volume).map_or_else(|| unbound(all), |claim| vec![claim])
}

/// Returns the key of the claim that a volume refers to.
pub(crate) fn claim_key(volume: &PersistentVolume) -> Option<ObjectKey> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let name = reference.name.as_deref().unwrap_or_default();
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::namespaced(namespace, name))
}

/// Returns the claims that are not bound.
pub(crate) fn unbound(all: &Lister<PersistentVolumeClaim>) -> Vec<ObjectKey> {
    let mut claims = all.list();
    claims.retain(|claim| {
        let claim = claim.get();
        claim.is_ok_and(|claim| claim::awaits_binding(&claim))
    });
    let mut keys: Vec<_> = claims.iter().map(|claim| claim.key().clone()).collect();
    keys.sort_unstable();
    keys
}

fn record<K: kube::Resource<DynamicType = ()>>(recorder: &EventRecorder, object: &K, note: &Note) {
    let kind = if note.warning {
        EventType::Warning
    } else {
        EventType::Normal
    };
    recorder.event(object, kind, note.reason, note.message.clone());
}

async fn reconcile_claim(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
    said: Said,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolumeClaim>()?.get(&key) else {
        said.lock().remove(&key);
        return Ok(Action::await_change());
    };
    let claim = cached.get()?;
    let held = environment.claims.hold(&claim, environment.clock.now());
    let action = match &held {
        Ok(Hold::For(left)) => Action::requeue_after(*left),
        _ => Action::await_change(),
    };
    let mut world = world(&claim, &key, &cx)?;
    if claim::awaits_binding(&claim) && held != Ok(Hold::Free) {
        // Act as if no volume were available.
        world.volumes.clear();
    }
    let planned = match held {
        Err(error) if claim::awaits_binding(&claim) => {
            let note = Note::warning("InvalidBehavior", error.to_string());
            claim::Step::Wait(Some(note))
        }
        _ => claim::plan(&claim, &world),
    };
    let (phase, note) = match planned {
        claim::Step::Wait(note) => ("Pending", note),
        claim::Step::Lose(note) => ("Lost", Some(note)),
        claim::Step::Bind(volume) => {
            said.lock().remove(&key);
            if bind(&claim, &volume, &cx).await? {
                return Ok(Action::await_change());
            }
            // The volume may have been bound to another claim.
            return Ok(Action::requeue_after(RETRY));
        }
        claim::Step::Update(claim, note) => {
            if unless_stale(cx.replace(&*claim).await)?.is_some()
                && let Some(note) = note
            {
                record(&recorder, &*claim, &note);
                said.lock().insert(key, note);
            }
            return Ok(action);
        }
    };
    let status = claim::status(&claim, phase, None);
    let is_new = note.as_ref() != said.lock().get(&key);
    if let Some(note) =
        note.filter(|note| is_new && (status.is_some() || note.reason != "ClaimLost"))
    {
        record(&recorder, &*claim, &note);
        said.lock().insert(key, note);
    }
    if status.is_some() {
        let claim = PersistentVolumeClaim {
            status,
            ..(*claim).clone()
        };
        api::replace_status(&cx, &claim).await?;
    }
    Ok(action)
}

/// Reads the inputs of the decision for a claim, which are few if the claim names its volume.
fn world(
    claim: &PersistentVolumeClaim,
    key: &ObjectKey,
    cx: &Context,
) -> Result<World, ReconcileError> {
    let mut world = World::default();
    let volumes = cx.lister::<PersistentVolume>()?;
    let wanted = claim::spec(claim).volume_name.as_deref();
    if let Some(wanted) = wanted.filter(|name| !name.is_empty()) {
        let volume = volumes.get(&ObjectKey::cluster(wanted));
        world
            .volumes
            .extend(volume.map(|volume| volume.get()).transpose()?);
        return Ok(world);
    }
    for volume in volumes.list() {
        world.volumes.push(volume.get()?);
    }
    world
        .volumes
        .sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for class in cx.lister::<StorageClass>()?.list() {
        world
            .classes
            .insert(class.key().name().to_owned(), class.get()?);
    }
    if !claim::waits_for_consumer(claim, &world.classes) {
        return Ok(world);
    }
    let nodes = cx.lister::<Node>()?;
    let pods = cx.lister::<Pod>()?;
    for pod in pods.namespace(key.namespace().unwrap_or_default()).list() {
        let pod = pod.get()?;
        if is_finished(&pod) || !claims(&pod).iter().any(|claim| claim == key.name()) {
            continue;
        }
        let node = nodes.get(&ObjectKey::cluster(node_name(&pod)));
        world.consumers.push(Consumer {
            name: meta::name(&pod.metadata).to_owned(),
            node: node.map(|node| node.get()).transpose()?,
        });
    }
    world.consumers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(world)
}

/// Binds a claim to a volume. Returns false if one of them has changed.
async fn bind(
    claim: &PersistentVolumeClaim,
    volume: &Arc<PersistentVolume>,
    cx: &Context,
) -> Result<bool, kube::Error> {
    let mut volume = (**volume).clone();
    if let Some(bound) = volume::bound(&volume, claim) {
        let Some(written) = unless_stale(cx.replace(&bound).await)? else {
            return Ok(false);
        };
        volume = written;
    }
    if volume::current_phase(&volume) != "Bound" {
        volume.status = Some(volume::status(&volume, "Bound", ""));
        let Some(written) = unless_stale(cx.replace_status(&volume).await)? else {
            return Ok(false);
        };
        volume = written;
    }
    let mut claim = claim.clone();
    if let Some(bound) = claim::bound(&claim, &volume) {
        let Some(written) = unless_stale(cx.replace(&bound).await)? else {
            return Ok(false);
        };
        claim = written;
    }
    let status = claim::status(&claim, "Bound", Some(&volume));
    if status.is_some() {
        let claim = PersistentVolumeClaim { status, ..claim };
        return Ok(unless_stale(cx.replace_status(&claim).await)?.is_some());
    }
    Ok(true)
}

async fn reconcile_volume(
    key: ObjectKey,
    cx: Context,
    recorder: EventRecorder,
) -> Result<Action, ReconcileError> {
    let Some(cached) = cx.lister::<PersistentVolume>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let volume = cached.get()?;
    let mut claim = claim_of(&volume, &cx)?;
    // Releasing a volume cannot be undone, and the cache may be stale.
    if volume::needs_confirmation(&volume, claim.as_deref())
        && let Some(key) = claim_key(&volume)
    {
        let namespace = key.namespace().unwrap_or_default();
        let claims = Api::<PersistentVolumeClaim>::namespaced(cx.client().clone(), namespace);
        claim = claims.get_opt(key.name()).await?.map(Arc::new);
    }
    let (mut volume, phase, note) = match volume::plan(&volume, claim.as_deref()) {
        volume::Step::None => return Ok(Action::await_change()),
        volume::Step::Phase(phase, note) => ((*volume).clone(), phase, note),
        volume::Step::Unbind(unbound, note) => {
            let Some(written) = unless_stale(cx.replace(&*unbound).await)? else {
                return Ok(Action::await_change());
            };
            (written, "Available", note)
        }
        volume::Step::Mismatch => {
            let message = format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to \
                 incompatible volumeMode.",
                claim
                    .as_deref()
                    .map_or("", |claim| meta::name(&claim.metadata))
            );
            let note = Note::warning("VolumeMismatch", message);
            record(&recorder, &*volume, &note);
            return Ok(Action::await_change());
        }
    };
    let message = note.as_ref().filter(|note| note.warning);
    let message = message.map_or("", |note| note.message.as_str());
    volume.status = Some(volume::status(&volume, phase, message));
    if api::replace_status(&cx, &volume).await?
        && let Some(note) = note
    {
        record(&recorder, &volume, &note);
    }
    Ok(Action::await_change())
}

/// Returns the claim with the name that a volume refers to.
fn claim_of(
    volume: &PersistentVolume,
    cx: &Context,
) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
    let Some(key) = claim_key(volume) else {
        return Ok(None);
    };
    let claim = cx.lister::<PersistentVolumeClaim>()?.get(&key);
    Ok(claim.map(|claim| claim.get()).transpose()?)
}
