//! A server of our own, for when nobody named a cluster.

use anyhow::Context;
use kube::Client;
use pintle_apiserver::ApiServer;

use crate::install;

/// The example that every introduction applies first.
pub const EXAMPLE: &str = include_str!("../artifacts/example-foo.yaml");

/// An API server in this process with the Foo CRD.
pub async fn start() -> anyhow::Result<Client> {
    let client = ApiServer::builder().build().client();
    install::crd(&client).await.context("installing the Foo CRD on the embedded server")?;
    Ok(client)
}
