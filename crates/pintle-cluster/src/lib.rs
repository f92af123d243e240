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

#![deny(missing_docs)]

mod api;
mod cluster;
mod deployment;
mod discovery;
mod garbage_collector;
mod manager;
mod meta;
mod namespace;
mod nodes;
mod pods;
mod replica_set;
mod service_account;

pub use self::cluster::{Builder, Cluster, Loops};
