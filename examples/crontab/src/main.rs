//! `crontab crd` prints the definition; `crontab` runs the controller.

#![allow(clippy::print_stdout, reason = "a program that talks to people")]

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
    // To stderr, INFO and above: what fails, and when it is tried again.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let target = Target::named(None, None).await?;
    let target = target.context("no cluster was named: set KUBECONFIG")?;
    println!("working on {target}");

    let shutdown = signals::shutdown_on_signal()?; // Ctrl-C, or SIGTERM from a kubelet.
    crontab::run(target.client("crontab/0.1")?, &shutdown).await
}
