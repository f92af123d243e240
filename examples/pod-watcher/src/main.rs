//! A minimal informer: prints every Pod that is added, updated or deleted, and marks some of them.
//!
//! ```sh
//! cargo run -p pod-watcher -- --app web --kubeconfig ~/.kube/config
//! ```

use std::{fmt::Write, path::PathBuf};

use anyhow::Context;
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use pintle::{
    cache::Object,
    client::Target,
    informer::{Event, InformerFactory},
    signals,
};
use pintle_apiserver::ApiServer;

/// Prints every Pod that is added, updated or deleted.
///
/// Without a cluster configured by --kubeconfig, KUBECONFIG or in-cluster environment, it watches
/// an embedded API server with two example Pods.
#[derive(Debug, Parser)]
struct Cli {
    /// Path to a kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Mark the Pods whose annotation `app` has this value
    #[arg(long, default_value = "web", value_name = "VALUE")]
    app: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    // Failed lists and watches are logged to stderr with the time of the next attempt.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let client = match Target::named(cli.kubeconfig.as_deref(), None).await? {
        Some(target) => {
            say(&format!("Watching Pods on {target}"));
            target.client("pod-watcher/0.1")?
        }
        None => embedded().await?,
    };

    let informers = InformerFactory::new(client);
    let pods = informers.informer::<Pod>();
    let handler = pods.on_event(move |event| match event {
        Event::Added { object, .. } => say(&describe("added", &object, &cli.app)),
        Event::Updated { new, .. } => say(&describe("updated", &new, &cli.app)),
        Event::Deleted(deleted) => say(&format!("deleted {}", deleted.key)),
    });
    let shutdown = signals::shutdown_on_signal()?;
    informers.start(&shutdown);
    informers
        .wait_for_sync()
        .await
        .context("listing Pods failed")?;
    handler.synced().await;
    say(&format!(
        "{} Pods in the cache. Press Ctrl-C to stop.",
        pods.lister().len()
    ));

    shutdown.cancelled().await;
    informers.shutdown().await;
    Ok(())
}

/// Formats a line about a Pod. Labels are in the header of the cached object; annotations require
/// decoding its metadata.
fn describe(what: &str, pod: &Object<Pod>, app: &str) -> String {
    let mut line = format!("{what} {}", pod.key());
    let metadata = pod.metadata().unwrap_or_default();
    if metadata
        .annotations
        .is_some_and(|all| all.get("app").is_some_and(|value| value == app))
    {
        let _ = write!(line, "  [app={app}]");
    }
    if pod.labels().contains_key("test") {
        line += "  [test]";
    }
    line
}

/// Starts an embedded API server with two example Pods.
async fn embedded() -> anyhow::Result<Client> {
    say("No cluster configured: watching an embedded API server with two example Pods");
    let client = ApiServer::builder().build().client();
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    for (name, annotations, labels) in [
        ("web-0", r#"{"app":"web"}"#, "{}"),
        ("probe", "{}", r#"{"test":"yes"}"#),
    ] {
        let pod = format!(
            r#"{{"metadata":{{"name":"{name}","annotations":{annotations},"labels":{labels}}},
                "spec":{{"containers":[{{"name":"main","image":"nginx"}}]}}}}"#
        );
        pods.create(&PostParams::default(), &serde_json::from_str(&pod)?)
            .await?;
    }
    Ok(client)
}

#[allow(clippy::print_stdout, reason = "prints its results")]
fn say(line: &str) {
    println!("{line}");
}
