//! The cluster the program starts when none is configured.

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;
use pintle::limits::RateLimit;
use pintle_apiserver::{ApiServer, Bound, PodDeletion};
use pintle_cluster::Cluster;
use tower::Layer;

/// A cluster in this process: an API server on loopback and the controllers that turn Deployments
/// into Pods.
#[derive(Debug)]
pub struct Embedded {
    cluster: Cluster,
    bound: Bound,
    /// Contains the kubeconfig; deleted on drop.
    directory: tempfile::TempDir,
}

impl Embedded {
    /// Starts the cluster and writes its kubeconfig to a file only this user can read.
    ///
    /// # Errors
    ///
    /// Fails if the port cannot be bound or the kubeconfig cannot be written.
    pub async fn start() -> anyhow::Result<Self> {
        let server = ApiServer::builder()
            .pod_deletion(PodDeletion::Leave)
            .build();
        let bound = server
            .serve("127.0.0.1:0")
            .await
            .context("starting the API server failed")?;
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

    /// Returns an in-process client.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Returns an in-process client whose requests count against `limit`.
    pub fn limited_client(&self, limit: &RateLimit) -> Client {
        Client::new(limit.layer(self.cluster.server().service()), "default")
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        self.bound.url()
    }

    /// Returns the path of the kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Stops the controllers and the API server, and deletes the kubeconfig.
    pub async fn stop(self) {
        self.cluster.stop().await;
        self.bound.shutdown().await;
    }
}
