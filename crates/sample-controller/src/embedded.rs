//! A cluster of our own, for when nobody named one.

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;
use pintle::limits::RateLimit;
use pintle_apiserver::{ApiServer, Bound, PodDeletion};
use pintle_cluster::Cluster;
use tower::Layer;

/// The cluster in this process: an API server on loopback, and the loops that make Deployments into
/// Pods.
#[derive(Debug)]
pub struct Embedded {
    cluster: Cluster,
    bound: Bound,
    /// Holds the kubeconfig, and goes with it.
    directory: tempfile::TempDir,
}

impl Embedded {
    /// Brings the cluster up and writes its kubeconfig where only this user can read it.
    pub async fn start() -> anyhow::Result<Self> {
        let server = ApiServer::builder()
            .pod_deletion(PodDeletion::Leave)
            .build();
        let bound = server
            .serve("127.0.0.1:0")
            .await
            .context("the API server cannot listen")?;
        let directory = tempfile::Builder::new().prefix("pintle-").tempdir()?;
        bound.write_kubeconfig(directory.path().join("kubeconfig"))?;
        let authority = bound.authority_pem().to_owned();
        let cluster = Cluster::builder()
            .server(server)
            .root_ca(authority)
            .start()
            .await;
        Ok(Self {
            cluster,
            bound,
            directory,
        })
    }

    /// A client of the cluster, in process.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// A client of the cluster, in process, that keeps to `limit`.
    pub fn limited_client(&self, limit: &RateLimit) -> Client {
        Client::new(limit.layer(self.cluster.server().service()), "default")
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        self.bound.url()
    }

    /// Where kubectl finds it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Stops the loops and the server, and removes the kubeconfig.
    pub async fn stop(self) {
        self.cluster.stop().await;
        self.bound.shutdown().await;
    }
}
