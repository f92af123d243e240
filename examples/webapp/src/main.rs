//! Runs the operator on the cluster that `KUBECONFIG` names.

use anyhow::Context;
use pintle::{client::Target, signals};
use webapp::Dns;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let target = Target::named(None, None).await?;
    let target = target.context("set KUBECONFIG to name a cluster")?;
    let client = target.client("webapp-operator/0.1")?;
    let shutdown = signals::shutdown_on_signal()?;
    webapp::run(client, Dns::default(), &shutdown).await
}
