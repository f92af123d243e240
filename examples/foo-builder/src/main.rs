//! Runs the controller on the cluster that `KUBECONFIG` names, or on an embedded one.
//!
//! ```sh
//! cargo run -p foo-builder
//! ```

#![allow(clippy::print_stdout, reason = "prints to the terminal")]

use pintle::{client::Target, informer::InformerFactory, signals};
use pintle_cluster::Cluster;
use sample_controller::install;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .init();
    let mut embedded = None;
    let client = if let Some(target) = Target::named(None, None).await? {
        println!("working on {target}");
        target.client("foo-builder/0.1")?
    } else {
        println!("KUBECONFIG is not set: working on an embedded cluster with example-foo");
        let client = embedded.insert(Cluster::start().await).client();
        install::crd(&client).await?;
        install::example(&client).await?;
        client
    };
    let shutdown = signals::shutdown_on_signal()?;
    foo_builder::controller(&InformerFactory::new(client))
        .run(foo_builder::reconcile, &shutdown)
        .await?;
    Ok(())
}
