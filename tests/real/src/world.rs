//! The real control plane as a world for the shared scenarios.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use pintle::clock::Clock;
use sample_scenarios::{Pace, World};
use serde_json::json;

use crate::{ControlPlane, NoDebug, TestNamespace};

/// A namespace of the real control plane. It has no nodes, so the world marks Pods as ready.
#[derive(Debug)]
pub struct Real {
    namespace: TestNamespace,
    controllers: NoDebug<Client>,
    control_plane: Option<ControlPlane>,
}

impl Real {
    /// Creates a namespace in which controllers act as an administrator.
    pub async fn new() -> Self {
        let namespace = TestNamespace::create().await;
        let controllers = NoDebug(crate::client().await);
        Self {
            namespace,
            controllers,
            control_plane: None,
        }
    }

    /// Like [`Real::new`], with exclusive access, so that the API server can be restarted.
    pub async fn alone() -> Self {
        let (namespace, control_plane) = TestNamespace::alone().await;
        let controllers = NoDebug(crate::client().await);
        Self {
            namespace,
            controllers,
            control_plane: Some(control_plane),
        }
    }

    /// Creates a namespace in which controllers act as a user of the same name, without any
    /// permissions.
    pub async fn without_permissions() -> Self {
        let namespace = TestNamespace::create().await;
        let controllers = NoDebug(crate::client_as(&namespace.name()).await);
        Self {
            namespace,
            controllers,
            control_plane: None,
        }
    }

    async fn make_ready(&self, pod: &Pod) {
        let conditions = pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        if pod.metadata.deletion_timestamp.is_some()
            || conditions.into_iter().any(|c| c.type_ == "Ready")
        {
            return;
        }
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "status": { "phase": "Running", "conditions": [ready] } });
        let pods = self.namespace.api::<Pod>();
        // The Pod may have been deleted.
        let _ = pods
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Merge(status),
            )
            .await;
    }
}

impl World for Real {
    fn client(&self) -> Client {
        self.namespace.client()
    }

    fn controller_client(&self) -> Client {
        self.controllers.0.clone()
    }

    fn namespace(&self) -> String {
        self.namespace.name()
    }

    fn pace(&self) -> Pace {
        Pace {
            tick: Duration::from_millis(100),
            // The garbage collector discovers new kinds every half minute.
            timeout: Duration::from_secs(100),
            resync: Duration::from_secs(1),
            idle: Duration::from_secs(3),
        }
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    async fn run_pods(&self) {
        let pods = self.namespace.api::<Pod>();
        let pods = pods.list(&ListParams::default()).await;
        for pod in pods.expect("a list of Pods") {
            self.make_ready(&pod).await;
        }
    }

    async fn restart_api_server(&self) {
        let control_plane = self.control_plane.expect("exclusive access");
        control_plane.restart_api_server().await;
    }
}
