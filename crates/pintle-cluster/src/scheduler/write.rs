//! Writes the decisions of the scheduler.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};
use pintle::{
    cache::ObjectKey,
    clock::Clock,
    events::{EventRecorder, EventType},
};
use serde_json::json;

use super::{
    pod::PodInfo,
    preempt::{self, Nomination, Preemption},
    queue::Outcome,
    state::Work,
};
use crate::{
    api::unless_stale,
    meta,
    pods::{
        state::{self, SCHEDULER},
        with_condition,
    },
};

/// The maximum length of an event's message, in characters.
const MESSAGE_LIMIT: usize = 1024;

/// Writes bindings, conditions and deletions.
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: EventRecorder,
}

impl Writer {
    /// Carries out a decision. A failure is logged and the Pod is retried.
    pub(super) async fn write(&self, work: Work) -> Outcome {
        let key = ObjectKey::of(&*work.pod().pod);
        let written = match &work {
            Work::Bind { pod, node } => self.bind(pod, node).await,
            Work::Refuse {
                pod,
                message,
                nomination,
                displaced,
            } => self.refuse(pod, message, nomination, displaced).await,
        };
        match (written, work) {
            (Ok(true), Work::Bind { .. }) => Outcome::Bound,
            (Ok(true), Work::Refuse { .. }) => Outcome::Refused,
            (Ok(false), _) => Outcome::Failed,
            (Err(error), _) => {
                tracing::warn!(%key, %error, "failed to schedule Pod; retrying");
                Outcome::Failed
            }
        }
    }

    fn pods(&self, pod: &PodInfo) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.namespace())
    }

    /// Binds a Pod. Returns false if it was changed or deleted concurrently.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<bool, kube::Error> {
        let key = ObjectKey::of(&*pod.pod);
        let (name, namespace) = (key.name(), pod.namespace());
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": name, "namespace": namespace, "uid": pod.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let body = serde_json::to_vec(&binding).map_err(kube::Error::SerdeError)?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        let bound = self.client.request::<serde_json::Value>(request).await;
        if unless_stale(bound)?.is_none() {
            return Ok(false);
        }
        let message = format!("Successfully assigned {key} to {node}");
        self.recorder
            .event(&*pod.pod, EventType::Normal, "Scheduled", message);
        Ok(true)
    }

    /// Reports why a Pod cannot be scheduled, then evicts Pods for it if that was decided.
    async fn refuse(
        &self,
        pod: &PodInfo,
        message: &str,
        nomination: &Nomination,
        displaced: &[std::sync::Arc<PodInfo>],
    ) -> Result<bool, kube::Error> {
        let mut status = pod.pod.status.clone().unwrap_or_default();
        let condition = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("Unschedulable".into()),
            message: Some(message.into()),
            observed_generation: pod.pod.metadata.generation,
            ..PodCondition::default()
        };
        with_condition(&mut status, condition, self.clock.now());
        match nomination {
            Nomination::Keep => {}
            Nomination::Clear => status.nominated_node_name = None,
            Nomination::Set(preemption) => {
                status.nominated_node_name = Some(preemption.node.clone());
            }
        }
        // Write this first, so that a restarted scheduler knows which Pod the others were evicted
        // for.
        if !self.replace_status(pod, status).await? {
            return Ok(false);
        }
        let text: String = message.chars().take(MESSAGE_LIMIT).collect();
        self.recorder
            .event(&*pod.pod, EventType::Warning, "FailedScheduling", text);
        for loser in displaced {
            let mut status = loser.pod.status.clone().unwrap_or_default();
            status.nominated_node_name = None;
            self.replace_status(loser, status).await?;
        }
        match nomination {
            Nomination::Set(preemption) => self.preempt(pod, preemption).await,
            Nomination::Keep | Nomination::Clear => Ok(true),
        }
    }

    /// Deletes the preempted Pods. Returns false if one was changed concurrently and the decision
    /// must be repeated.
    async fn preempt(&self, pod: &PodInfo, preemption: &Preemption) -> Result<bool, kube::Error> {
        let mut is_current = true;
        for victim in &preemption.victims {
            if victim.is_terminating() {
                continue;
            }
            let mut status = victim.pod.status.clone().unwrap_or_default();
            let condition = PodCondition {
                type_: "DisruptionTarget".into(),
                status: "True".into(),
                reason: Some(preempt::REASON.into()),
                message: Some(format!(
                    "{SCHEDULER}: preempting to accommodate a higher priority pod"
                )),
                observed_generation: victim.pod.metadata.generation,
                ..PodCondition::default()
            };
            let is_marked = state::condition(&victim.pod, "DisruptionTarget")
                .is_some_and(|it| it.status == "True" && it.message == condition.message);
            with_condition(&mut status, condition, self.clock.now());
            if !is_marked && !self.replace_status(victim, status).await? {
                is_current = false;
                continue;
            }
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(victim.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let name = meta::name(&victim.pod.metadata);
            if unless_stale(self.pods(victim).delete(name, &params).await)?.is_some() {
                let (uid, node) = (&pod.uid, &preemption.node);
                let message = format!("Preempted by pod {uid} on node {node}");
                self.recorder
                    .event(&*victim.pod, EventType::Normal, "Preempted", message);
            }
        }
        Ok(is_current)
    }

    /// Replaces the status of a Pod. Returns false if it was changed or deleted concurrently.
    async fn replace_status(&self, pod: &PodInfo, status: PodStatus) -> Result<bool, kube::Error> {
        let name = meta::name(&pod.pod.metadata);
        let changed = Pod {
            status: Some(status),
            ..(*pod.pod).clone()
        };
        let params = PostParams::default();
        let written = self.pods(pod).replace_status(name, &params, &changed).await;
        Ok(unless_stale(written)?.is_some())
    }
}
