//! `crontab crd` prints the CRD; `crontab` runs the controller.

#![allow(clippy::print_stdout, reason = "prints to the terminal")]

use anyhow::Context;
use crontab::CronTab;
use kube::CustomResourceExt;
use pintle::{client::Target, signals};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        print!("{}", serde_saphyr::to_string(&CronTab::crd())?);
        return Ok(());
    }
    // Logs failures and retries to stderr, at INFO and above.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let target = Target::named(None, None).await?;
    let target = target.context("no cluster configured: set KUBECONFIG")?;
    println!("working on {target}");

    let shutdown = signals::shutdown_on_signal()?; // Ctrl-C or SIGTERM.
    crontab::run(target.client("crontab/0.1")?, &shutdown).await
}
