//! `crontab crd` prints the definition; `crontab` runs the controller.

#![allow(clippy::print_stdout, reason = "a program that talks to people")]

use anyhow::Context;
use crontab::CronTab;
use kube::CustomResourceExt;
use pintle::client::Target;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        print!("{}", serde_saphyr::to_string(&CronTab::crd())?);
        return Ok(());
    }
    let target = Target::named(None, None).await?;
    let target = target.context("no cluster was named: set KUBECONFIG")?;
    println!("working on {target}");

    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    crontab::run(target.client("crontab/0.1")?, &shutdown).await
}
