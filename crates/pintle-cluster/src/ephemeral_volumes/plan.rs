//! The claims of a Pod's generic ephemeral volumes.

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{meta, volume_protection::plan::ephemeral_claim};

/// Returns the claims that a Pod needs.
pub(super) fn claims(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let spec = pod.spec.iter();
    let volumes = spec.flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
            let metadata = template.metadata.clone().unwrap_or_default();
            Some(PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(ephemeral_claim(pod, &volume.name)),
                    namespace: pod.metadata.namespace.clone(),
                    labels: metadata.labels,
                    annotations: metadata.annotations,
                    owner_references: meta::controller_reference(pod).map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                },
                spec: Some(template.spec.clone()),
                status: None,
            })
        })
        .collect()
}
