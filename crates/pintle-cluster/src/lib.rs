//! A Kubernetes cluster in one process, for tests and experiments: an API server and the control
//! loops that turn Deployments, `StatefulSet`s, `DaemonSet`s and Jobs into Pods.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use pintle_cluster::Cluster;
//!
//! let cluster = Cluster::start().await;
//! let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
//! maps.create(&Default::default(), &serde_json::from_value(serde_json::json!({
//!     "metadata": { "name": "hello" },
//! }))?).await?;
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! No containers run: Pods are scheduled to simulated nodes and become Running and Ready after a
//! configurable delay. A [`Behavior`] lets them crash, exit or never become ready, a
//! [`NodeBehavior`] lets nodes fail, and a [`Script`] sets both in YAML. Everything else behaves as
//! on a real cluster. The loops are ordinary controllers written with `pintle`:
//!
//! | loop | what it does |
//! |---|---|
//! | [`Loops::DEPLOYMENT`] | rolls out Deployments by creating and scaling `ReplicaSet`s |
//! | [`Loops::REPLICA_SET`] | creates and deletes Pods to match the size of a `ReplicaSet` |
//! | [`Loops::REPLICATION_CONTROLLER`] | does the same for a `ReplicationController` |
//! | [`Loops::PODS`] | acts as scheduler and kubelet: schedules, starts and stops Pods |
//! | [`Loops::GARBAGE_COLLECTOR`] | deletes objects whose owners are gone |
//! | [`Loops::NAMESPACE`] | deletes the contents of terminating namespaces |
//! | [`Loops::SERVICE_ACCOUNT`] | creates the default service account and `kube-root-ca.crt`, and fills Secrets for tokens |
//! | [`Loops::NODES`] | registers simulated nodes, renews their leases, taints nodes that fail and evicts their Pods |
//! | [`Loops::VOLUME_PROTECTION`] | protects claims and volumes in use from deletion |
//! | [`Loops::DISRUPTION`] | updates the status of `PodDisruptionBudget`s |
//! | [`Loops::QUOTA`] | counts the usage of `ResourceQuota`s |
//! | [`Loops::ROLE_AGGREGATION`] | collects the rules of aggregated `ClusterRole`s |
//! | [`Loops::POLICY_STATUS`] | type-checks `ValidatingAdmissionPolicy` objects |
//! | [`Loops::STATEFUL_SET`] | creates, updates and deletes the Pods and claims of `StatefulSet`s |
//! | [`Loops::DAEMON_SET`] | runs a Pod of each `DaemonSet` on every node it selects |
//! | [`Loops::JOB`] | runs the Pods of Jobs to completion |
//! | [`Loops::TTL_AFTER_FINISHED`] | deletes finished Jobs when their TTL has passed |
//! | [`Loops::CRON_JOB`] | starts the Jobs of `CronJob`s |
//! | [`Loops::AUTOSCALER`] | scales the targets of `HorizontalPodAutoscaler`s to the load that a test sets |
//! | [`Loops::VOLUMES`] | binds `PersistentVolumeClaim`s to volumes, and creates those of ephemeral volumes |
//! | [`Loops::PROVISIONER`] | creates and deletes the volumes of storage classes, `standard` by default |
//! | [`Loops::ENDPOINTS`] | writes the `EndpointSlice`s and Endpoints of Services |
//! | [`Loops::SERVICE_CIDR`] | keeps `ServiceCIDR`s ready, and an `IPAddress` for each address of a Service |
//! | [`Loops::CERTIFICATES`] | approves, signs and cleans up `CertificateSigningRequest`s |
//!
//! # Testing your own controller
//!
//! A controller needs no changes to run against the cluster. Under a paused tokio clock, minutes of
//! cluster time pass in milliseconds. This one labels every node:
//!
//! ```
//! # use k8s_openapi::api::core::v1::Node;
//! # use kube::{Api, ResourceExt, api::{ListParams, Patch}};
//! # use pintle::{controller::{Action, Context, Controller}, informer::InformerFactory};
//! # use pintle_cluster::Cluster;
//! # use serde_json::json;
//! # use std::time::Duration;
//! # use tokio_util::sync::CancellationToken;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder().nodes(3).start().await;
//! let informers = InformerFactory::new(cluster.client());
//! let stop = CancellationToken::new();
//! let stopping = stop.clone();
//! let controller = tokio::spawn(async move {
//!     let reconcile = |key, cx: Context| async move {
//!         let label = json!({ "metadata": { "labels": { "seen": "yes" } } });
//!         cx.patch::<Node, _>(&key, &Patch::Merge(label)).await?;
//!         Ok(Action::await_change())
//!     };
//!     let controller = Controller::<Node>::new("labels", &informers);
//!     controller.run_by_key(reconcile, &stopping).await
//! });
//! tokio::time::sleep(Duration::from_secs(10)).await;
//!
//! let nodes = Api::<Node>::all(cluster.client());
//! let nodes = nodes.list(&ListParams::default()).await?;
//! assert_eq!(nodes.items.len(), 3);
//! assert!(nodes.iter().all(|node| node.labels()["seen"] == "yes"));
//! stop.cancel();
//! controller.await??;
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod autoscaler;
mod certificates;
mod cluster;
mod components;
mod cron_job;
mod daemon_set;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
mod ephemeral_volumes;
mod garbage_collector;
mod job;
mod loop_set;
mod loops;
mod meta;
mod namespace;
mod nodes;
mod pods;
mod policy_status;
mod provisioner;
mod quota;
mod replica_set;
mod revisions;
mod role_aggregation;
mod rules;
mod scheduler;
mod script;
mod service_account;
mod service_account_tokens;
mod service_cidrs;
mod stateful_set;
mod ttl_after_finished;
mod volume_protection;
mod volumes;

pub use self::{
    autoscaler::{InvalidLoad, Load},
    cluster::{Builder, Cluster},
    loop_set::Loops,
    nodes::{
        InvalidNodeBehavior, NodeBehavior, NodeHandle, NodeTemplate, TaintEffect, UnknownNode,
    },
    pods::{Behavior, InvalidBehavior, LogLine, Pods},
    script::{InvalidScript, Script},
    volumes::behavior::{ClaimBehavior, Claims, InvalidClaimBehavior},
};

/// Compiles the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
