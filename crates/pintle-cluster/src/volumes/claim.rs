//! Decides whether a claim needs a volume, needs a provisioner, or has to wait.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{
        Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
        PersistentVolumeClaimStatus,
    },
    storage::v1::StorageClass,
};

use super::matching::{self, Choice};
use crate::meta;

/// Marks a claim whose binding is complete.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks a volume or a claim that the loop has bound, not the user.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Names the node of the first consumer of a claim.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Names the provisioner that should create the volume of a claim.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const LEGACY_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Note {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }
}

/// The next step for a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It stays unbound until something changes.
    Wait(Option<Note>),
    /// It has lost its volume permanently.
    Lose(Note),
    /// Bind it to this volume, or complete a binding in progress.
    Bind(Arc<PersistentVolume>),
    /// Write this claim, and emit an event.
    Update(Box<PersistentVolumeClaim>, Option<Note>),
}

/// A Pod that uses a claim and has not finished.
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub(super) name: String,
    /// Its node, once it is scheduled.
    pub(super) node: Option<Arc<Node>>,
}

/// The inputs of a decision about a claim.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    /// In a stable order.
    pub(super) volumes: Vec<Arc<PersistentVolume>>,
    pub(super) classes: BTreeMap<String, Arc<StorageClass>>,
    /// In a stable order.
    pub(super) consumers: Vec<Consumer>,
}

/// Returns whether the binding of a claim is incomplete.
pub(crate) fn awaits_binding(claim: &PersistentVolumeClaim) -> bool {
    meta::annotation(&claim.metadata, BIND_COMPLETED).is_none()
}

/// Decides the next step for a claim.
pub(super) fn plan(claim: &PersistentVolumeClaim, world: &World) -> Step {
    let named = |name: &str| {
        let mut volumes = world.volumes.iter();
        volumes.find(|volume| meta::name(&volume.metadata) == name)
    };
    let wanted = spec(claim).volume_name.as_deref().unwrap_or_default();
    if !awaits_binding(claim) {
        return plan_bound(claim, wanted, named(wanted));
    }
    if wanted.is_empty() {
        return plan_unbound(claim, world);
    }
    let Some(volume) = named(wanted) else {
        return Step::Wait(None);
    };
    let is_free = volume
        .spec
        .as_ref()
        .is_none_or(|spec| spec.claim_ref.is_none());
    if matching::is_bound_to(volume, claim) {
        return Step::Bind(volume.clone());
    }
    let note = if is_free {
        match matching::mismatch(volume, claim) {
            None => return Step::Bind(volume.clone()),
            Some(problem) => Note::warning(
                "VolumeMismatch",
                format!("Cannot bind to requested volume {wanted:?}: {problem}"),
            ),
        }
    } else {
        Note::warning(
            "FailedBinding",
            format!("volume {wanted:?} already bound to a different claim."),
        )
    };
    Step::Wait(Some(note))
}

fn plan_bound(
    claim: &PersistentVolumeClaim,
    wanted: &str,
    volume: Option<&Arc<PersistentVolume>>,
) -> Step {
    if wanted.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is \
                       lost!";
        return Step::Lose(Note::warning("ClaimLost", message));
    }
    let Some(volume) = volume else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return Step::Lose(Note::warning("ClaimLost", message));
    };
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    match reference {
        Some(reference) if reference.uid != claim.metadata.uid => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            Step::Lose(Note::warning("ClaimMisbound", message))
        }
        _ => Step::Bind(volume.clone()),
    }
}

/// Returns whether a claim is bound only when a Pod uses it.
pub(crate) fn waits_for_consumer(
    claim: &PersistentVolumeClaim,
    classes: &BTreeMap<String, Arc<StorageClass>>,
) -> bool {
    let class = matching::claim_class(claim).and_then(|name| classes.get(name));
    let mode = class.and_then(|class| class.volume_binding_mode.as_deref());
    mode == Some("WaitForFirstConsumer")
}

fn plan_unbound(claim: &PersistentVolumeClaim, world: &World) -> Step {
    let class_name = matching::claim_class(claim);
    let class = class_name.and_then(|name| world.classes.get(name));
    let waits = waits_for_consumer(claim, &world.classes);
    let choice = if waits { Choice::Reserved } else { Choice::All };
    if let Some(volume) = matching::best(claim, &world.volumes, choice) {
        return Step::Bind(volume);
    }
    let Some(class_name) = class_name else {
        return match default_class(&world.classes) {
            Some(class) => {
                let mut claim = claim.clone();
                claim.spec.get_or_insert_default().storage_class_name = Some(class.to_owned());
                Step::Update(Box::new(claim), None)
            }
            None => no_volumes(),
        };
    };
    if class_name.is_empty() {
        return no_volumes();
    }
    if waits && meta::annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return await_consumer(claim, world);
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
        return Step::Wait(Some(Note::warning("ProvisioningFailed", message)));
    };
    if class.provisioner == NO_PROVISIONER {
        let message = format!("no volume plugin matched name: {NO_PROVISIONER}");
        return Step::Wait(Some(Note::warning("ProvisioningFailed", message)));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{}' or manually \
         by the system administrator. If volume creation is delayed, please verify that the \
         provisioner is running and correctly registered.",
        class.provisioner
    );
    let note = Some(Note::normal("ExternalProvisioning", message));
    if meta::annotation(&claim.metadata, PROVISIONER) == Some(&class.provisioner) {
        return Step::Wait(note);
    }
    let mut claim = claim.clone();
    for annotation in [PROVISIONER, LEGACY_PROVISIONER] {
        annotate(&mut claim, annotation, &class.provisioner);
    }
    Step::Update(Box::new(claim), note)
}

fn no_volumes() -> Step {
    let message = "no persistent volumes available for this claim and no storage class is set";
    Step::Wait(Some(Note::normal("FailedBinding", message)))
}

/// Waits until a Pod that uses the claim has a node. Then an available volume that the node can
/// reach is bound, or the node is recorded for the provisioner. On a real cluster the scheduler
/// does this just before it binds the Pod.
fn await_consumer(claim: &PersistentVolumeClaim, world: &World) -> Step {
    let mut scheduled = world.consumers.iter().filter_map(|it| it.node.as_deref());
    if let Some(node) = scheduled.next() {
        if let Some(volume) = matching::best(claim, &world.volumes, Choice::On(node)) {
            return Step::Bind(volume);
        }
        let mut claim = claim.clone();
        annotate(&mut claim, SELECTED_NODE, meta::name(&node.metadata));
        return Step::Update(Box::new(claim), None);
    }
    let names: Vec<&str> = world.consumers.iter().map(|it| it.name.as_str()).collect();
    let note = match &*names {
        [] => Note::normal(
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        [name] => Note::normal(
            "WaitForPodScheduled",
            format!("waiting for pod {name} to be scheduled"),
        ),
        names => Note::normal(
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", names.join(",")),
        ),
    };
    Step::Wait(Some(note))
}

/// Returns the default class: the newest that is marked as such, the first by name among equals.
fn default_class(classes: &BTreeMap<String, Arc<StorageClass>>) -> Option<&str> {
    const MARKS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let mut defaults: Vec<_> = classes
        .iter()
        .filter(|(_, class)| {
            let is_marked = |mark| meta::annotation(&class.metadata, mark) == Some("true");
            MARKS.into_iter().any(is_marked)
        })
        .collect();
    defaults.sort_by_key(|(name, class)| {
        let created = class
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (std::cmp::Reverse(created), *name)
    });
    defaults.first().map(|(name, _)| name.as_str())
}

pub(crate) fn spec(claim: &PersistentVolumeClaim) -> &PersistentVolumeClaimSpec {
    static NONE: std::sync::LazyLock<PersistentVolumeClaimSpec> =
        std::sync::LazyLock::new(PersistentVolumeClaimSpec::default);
    claim.spec.as_ref().unwrap_or(&NONE)
}

fn annotate(claim: &mut PersistentVolumeClaim, key: &str, value: &str) {
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

/// Returns the claim bound to a volume, or `None` if it already is.
pub(super) fn bound(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Option<PersistentVolumeClaim> {
    let mut bound = claim.clone();
    let spec = bound.spec.get_or_insert_default();
    if spec.volume_name != volume.metadata.name {
        spec.volume_name.clone_from(&volume.metadata.name);
        annotate_if_absent(&mut bound, BOUND_BY_CONTROLLER);
    }
    annotate_if_absent(&mut bound, BIND_COMPLETED);
    (bound != *claim).then_some(bound)
}

fn annotate_if_absent(claim: &mut PersistentVolumeClaim, key: &str) {
    if meta::annotation(&claim.metadata, key).is_none() {
        annotate(claim, key, "yes");
    }
}

/// Returns the status of a claim in a phase, with the properties of its volume, or `None` if it
/// already has that status.
pub(super) fn status(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<PersistentVolumeClaimStatus> {
    let before = claim.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let enters = before.phase.as_deref() != Some(phase);
    status.phase = Some(phase.to_owned());
    if let Some(volume) = volume.and_then(|volume| volume.spec.as_ref()) {
        status.access_modes.clone_from(&volume.access_modes);
        // Set the capacity only when the claim becomes bound: later, a smaller one means that the
        // file system has not grown with its volume yet.
        if enters {
            status.capacity.clone_from(&volume.capacity);
            let attributes = &volume.volume_attributes_class_name;
            status
                .current_volume_attributes_class_name
                .clone_from(attributes);
        }
    } else {
        status.access_modes = None;
        status.capacity = None;
        status.current_volume_attributes_class_name = None;
    }
    (status != before).then_some(status)
}

#[cfg(test)]
mod tests;
