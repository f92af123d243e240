//! Builds the Pods of a Job and reads their metadata.

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{policy, spec};
use crate::meta;

/// The finalizer that keeps a Pod until its Job has counted it.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The completion index of a Pod, as annotation and label.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the number of failures of earlier Pods of the index, without ignored ones.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the number of such failures that the failure policy ignored.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The environment variable with the completion index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The maximum length of the prefix of a generated name.
const PREFIX_CHARS: usize = 58;

pub(super) fn is_tracked(pod: &Pod) -> bool {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers
        .into_iter()
        .any(|finalizer| finalizer == TRACKING)
}

/// Returns the completion index of a Pod.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    let index = meta::annotation(&pod.metadata, INDEX)?.parse().ok();
    index.filter(|index| *index >= 0)
}

/// Returns how often earlier Pods of the index failed, not counting ignored failures.
pub(super) fn failures(pod: &Pod) -> u32 {
    count(pod, FAILURES)
}

/// Returns how often earlier Pods of the index failed.
pub(super) fn all_failures(pod: &Pod) -> u32 {
    count(pod, FAILURES).saturating_add(count(pod, IGNORED))
}

fn count(pod: &Pod, annotation: &str) -> u32 {
    let count = meta::annotation(&pod.metadata, annotation).and_then(|it| it.parse::<i32>().ok());
    u32::try_from(count.unwrap_or_default()).unwrap_or_default()
}

/// Builds a Pod of the Job. With a back-off limit per index, `replaced` is the last failed Pod of
/// the same index.
pub(super) fn pod(job: &Job, index: Option<i32>, replaced: Option<&Pod>) -> Pod {
    let template = spec(job).map(|spec| spec.template.clone());
    let template = template.unwrap_or_default();
    let from = template.metadata.unwrap_or_default();
    let name = meta::name(&job.metadata);
    let mut pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: job.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: meta::controller_reference(job).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    if !is_tracked(&pod) {
        let finalizers = pod.metadata.finalizers.get_or_insert_default();
        finalizers.push(TRACKING.into());
    }
    if let Some(index) = index {
        set_index(job, &mut pod, index);
        let per_index = spec(job).and_then(|spec| spec.backoff_limit_per_index);
        if per_index.is_some() {
            set_failures(job, &mut pod, replaced);
        }
    }
    pod
}

fn set_index(job: &Job, pod: &mut Pod, index: i32) {
    let name = meta::name(&job.metadata);
    let suffix = format!("-{index}-");
    let mut prefix = name.to_owned();
    prefix.truncate(PREFIX_CHARS - suffix.len());
    pod.metadata.generate_name = Some(prefix + &suffix);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.into(), index.to_string());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(INDEX.into(), index.to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{name}-{index}"));
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        add_variable(container);
    }
}

fn add_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|it| it.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector {
        field_path: format!("metadata.labels['{INDEX}']"),
        api_version: None,
    };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
}

fn set_failures(job: &Job, pod: &mut Pod, replaced: Option<&Pod>) {
    let (mut counted, mut ignored) = (0, 0);
    if let Some(replaced) = replaced {
        (counted, ignored) = (count(replaced, FAILURES), count(replaced, IGNORED));
        match policy::failure(job, replaced) {
            policy::Failure::Ignore => ignored += 1,
            _ => counted += 1,
        }
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(FAILURES.into(), counted.to_string());
    if ignored > 0 {
        annotations.insert(IGNORED.into(), ignored.to_string());
    }
}
