//! A Kubernetes cluster in one process: an API server and the control loops that make Deployments
//! into Pods, for tests and for trying things out.
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
//! No container runs: Pods are bound to simulated nodes and become Running and Ready after a set
//! delay. Everything else is as on a real cluster, and the loops are ordinary controllers written
//! with `pintle`: whatever they can do, a user's controller can.
//!
//! | loop | what it does |
//! |---|---|
//! | [`Loops::DEPLOYMENT`] | rolls Deployments out, over `ReplicaSet`s |
//! | [`Loops::REPLICA_SET`] | keeps as many Pods as a `ReplicaSet` wants |
//! | [`Loops::PODS`] | binds Pods to nodes, starts and stops them |
//! | [`Loops::GARBAGE_COLLECTOR`] | deletes what no owner is left for |
//! | [`Loops::NAMESPACE`] | empties namespaces that are deleted |
//! | [`Loops::SERVICE_ACCOUNT`] | gives namespaces their account and certificates |
//! | [`Loops::NODES`] | registers simulated nodes and renews their leases |
//! | [`Loops::VOLUME_PROTECTION`] | lets deleted claims and volumes go once nothing uses them |
//! | [`Loops::DISRUPTION`] | counts how many Pods a `PodDisruptionBudget` lets be evicted |

//!
//! # A test of your own controller
//!
//! A controller runs against the cluster as it would against any other. Under a paused clock minutes
//! pass in no time. Here one that labels every node:
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

mod api;
mod cluster;
mod deployment;
mod discovery;
mod disruption;
mod garbage_collector;
mod manager;
mod meta;
mod namespace;
mod nodes;
mod pods;
mod replica_set;
mod service_account;
mod volume_protection;

pub use self::cluster::{Builder, Cluster, Loops};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
