//! Benchmark: an API server under load.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, bail};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use pintle_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use super::{Server, get, let_go, many, post, send};
use crate::measure;

#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    /// Where to write the kubeconfig
    #[arg(long)]
    kubeconfig: PathBuf,
}

/// Serves until stdin closes. Prints `ready` once the listener is bound.
pub(crate) async fn serve(args: &ServeArgs) -> Result<()> {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await?;
    bound.write_kubeconfig(&args.kubeconfig)?;
    println!("ready");
    let_go().await?;
    bound.shutdown().await;
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use an in-process server instead
    #[arg(long)]
    in_process: bool,
    /// The server's kubeconfig
    #[arg(long, required_unless_present = "in_process")]
    kubeconfig: Option<PathBuf>,
    /// Process ids of the server, for its CPU time
    #[arg(long)]
    server_pid: Vec<u32>,
    /// Number of creates, lists or changes
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Concurrent requests
    #[arg(long, default_value_t = 8)]
    at_once: usize,
    /// Number of watchers
    #[arg(long, default_value_t = 100)]
    watchers: usize,
}

impl Args {
    /// Returns `None` for an in-process server.
    fn server(&self) -> Option<Server> {
        Some(Server {
            kubeconfig: self.kubeconfig.clone().filter(|_| !self.in_process)?,
            server_pid: self.server_pid.clone(),
        })
    }

    async fn client(&self) -> Result<Client> {
        match self.server() {
            Some(server) => server.client().await,
            None => Ok(ApiServer::builder().build().client()),
        }
    }

    fn server_cpu(&self) -> Result<f64> {
        match self.server() {
            Some(server) => Ok(server.server_cpu()),
            None => Ok(measure::Phase::begin()?.total()),
        }
    }
}

/// A `ConfigMap` of about a kilobyte.
fn config_map(name: &str, turn: usize) -> String {
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(20);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"turn": turn.to_string(), "text": text},
    })
    .to_string()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn writes(args: &Args) -> Result<Value> {
    let client = args.client().await?;
    get(&client, "/api/v1/namespaces/default").await?;
    // Warm up connections and server before measuring.
    let create = |prefix: &'static str, i: usize| {
        let client = client.clone();
        async move {
            post(
                &client,
                CONFIG_MAPS,
                config_map(&format!("{prefix}-{i}"), i),
            )
            .await
        }
    };
    many(args.at_once * 4, args.at_once, |i| create("warm", i)).await?;
    let (begin, before) = (Instant::now(), args.server_cpu()?);
    many(args.count, args.at_once, |i| create("write", i)).await?;
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), args.server_cpu()? - before);
    let count = args.count as f64;
    Ok(json!({"creates_per_s": count / wall, "create_cpu_us": cpu * 1e6 / count}))
}

#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn lists(args: &Args) -> Result<Value> {
    let client = args.client().await?;
    let list = || send(&client, Method::GET, "/api/v1/pods", None);
    list().await?;
    let (begin, before) = (Instant::now(), args.server_cpu()?);
    let mut bytes = 0;
    for _ in 0..args.count {
        bytes += list().await?.len();
    }
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), args.server_cpu()? - before);
    let mib = bytes as f64 / f64::from(1 << 20);
    Ok(json!({
        "list_mib_per_s": mib / wall,
        "list_cpu_ms_per_mib": cpu * 1e3 / mib,
        "list_mib": mib / args.count as f64,
    }))
}

/// Every watcher has its own connection and reads until it has seen every change.
#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn watchers(args: &Args) -> Result<Value> {
    let server = args
        .server()
        .context("the watch benchmark needs a server")?;
    let client = args.client().await?;
    post(&client, CONFIG_MAPS, config_map("watched", 0)).await?;
    let first = get(&client, &format!("{CONFIG_MAPS}/watched")).await?;
    let version = first["metadata"]["resourceVersion"].as_str();
    let version = version.context("the object has no resourceVersion")?;
    let path = format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3Dwatched"
    );
    let changes = args.count;
    let mut open = Vec::new();
    for _ in 0..args.watchers {
        let client = client.clone();
        let request = Request::get(&path).body(Body::empty())?;
        let response = client.send(request).await?;
        if !response.status().is_success() {
            bail!("a watch failed: {}", response.status());
        }
        open.push(response.into_body());
    }
    let ready = Arc::new(Semaphore::new(0));
    let mut watching = JoinSet::new();
    for mut body in open {
        let ready = Arc::clone(&ready);
        watching.spawn(async move {
            ready.add_permits(1);
            let mut seen = 0;
            while seen < changes {
                let frame = body.frame().await.context("a watch ended early")??;
                let lines = frame.data_ref().into_iter().flatten();
                seen += lines.filter(|byte| **byte == b'\n').count();
            }
            anyhow::Ok(())
        });
    }
    let all = u32::try_from(args.watchers)?;
    drop(ready.acquire_many(all).await?);
    let (begin, before) = (Instant::now(), server.server_cpu());
    for turn in 1..=changes {
        let path = format!("{CONFIG_MAPS}/watched");
        send(
            &client,
            Method::PUT,
            &path,
            Some(config_map("watched", turn)),
        )
        .await?;
    }
    while let Some(done) = watching.join_next().await {
        done??;
    }
    let (wall, cpu) = (begin.elapsed().as_secs_f64(), server.server_cpu() - before);
    let delivered = (args.watchers * changes) as f64;
    let resident: f64 = server
        .server_pid
        .iter()
        .map(|pid| measure::resident_of(*pid))
        .sum();
    Ok(json!({
        "fanout_cpu_us": cpu * 1e6 / delivered,
        "fanout_per_s": delivered / wall,
        "fanout_kib": resident,
        "watchers": args.watchers,
    }))
}
