//! Drives a whole server or controller and measures it from outside.
//!
//! The programs under test run in their own processes. These commands generate the load, wait until
//! it is processed, and print one result line.

mod cluster;
mod foo;
mod load;
mod server;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use pintle::client::Target;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

#[derive(Subcommand)]
pub(crate) enum Live {
    /// Fill a server with Pods
    Load(load::Args),
    /// Create Foos and wait until a controller has created their Deployments
    DriveFoo(foo::Args),
    /// Delete what drive-foo created
    CleanFoo(foo::Args),
    /// Create Deployments and wait until all their Pods exist
    DriveCluster(cluster::Args),
    /// Run Pintle's Deployment, `ReplicaSet` and housekeeping loops, until standard input is closed
    Loops(cluster::LoopArgs),
    /// Serve with pintle-apiserver, until standard input is closed
    Serve(server::ServeArgs),
    /// Create objects as fast as the server accepts them
    DriveWrites(server::Args),
    /// List Pods repeatedly
    DriveLists(server::Args),
    /// Change an object that many clients watch
    DriveWatchers(server::Args),
}

pub(crate) async fn run(live: Live) -> Result<Option<String>> {
    let line = match live {
        Live::Load(args) => load::load(&args).await?,
        Live::DriveFoo(args) => foo::drive(&args).await?,
        Live::CleanFoo(args) => foo::clean(&args).await?,
        Live::DriveCluster(args) => cluster::drive(&args).await?,
        Live::Loops(args) => return cluster::loops(&args).await.map(|()| None),
        Live::Serve(args) => return server::serve(&args).await.map(|()| None),
        Live::DriveWrites(args) => server::writes(&args).await?,
        Live::DriveLists(args) => server::lists(&args).await?,
        Live::DriveWatchers(args) => server::watchers(&args).await?,
    };
    Ok(Some(line.to_string()))
}

/// The server under test.
#[derive(clap::Args, Clone)]
pub(crate) struct Server {
    /// The server's kubeconfig
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Process ids of the server, for its CPU time
    #[arg(long)]
    server_pid: Vec<u32>,
}

impl Server {
    /// Returns a new client with its own connection pool.
    async fn client(&self) -> Result<Client> {
        let target = Target::named(Some(&self.kubeconfig), None).await?;
        let target = target.context("no server given")?;
        Ok(target.client(concat!("pintle-bench/", env!("CARGO_PKG_VERSION")))?)
    }

    /// Returns the CPU time of the server so far, in seconds.
    fn server_cpu(&self) -> f64 {
        self.server_pid.iter().map(|pid| cpu_of(*pid)).sum()
    }
}

/// Returns the CPU time a process has used so far, in seconds.
fn cpu_of(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let nanos = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// Sends a request and reads the whole response.
async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<String>,
) -> Result<Vec<u8>> {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(&method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(Body::from(body.unwrap_or_default().into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    if !code.is_success() {
        bail!(
            "{method} {path}: {code} {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    Ok(bytes.to_vec())
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    let bytes = send(client, Method::GET, path, None).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

async fn post(client: &Client, path: &str, body: String) -> Result<()> {
    send(client, Method::POST, path, Some(body)).await.map(drop)
}

/// Creates a namespace, without its default service account.
async fn namespace(client: &Client, name: &str) -> Result<()> {
    let body =
        format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    post(client, "/api/v1/namespaces", body).await
}

/// Creates the default service account, which a controller normally creates.
async fn service_account(client: &Client, namespace: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let body = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    post(client, &path, body.to_owned()).await
}

/// Runs something `count` times, `at_once` concurrently.
async fn many<F, R>(count: usize, at_once: usize, each: F) -> Result<()>
where
    F: FnMut(usize) -> R,
    R: Future<Output = Result<()>>,
{
    stream::iter((0..count).map(each))
        .map(Ok)
        .try_for_each_concurrent(at_once, |done| done)
        .await
}

/// Resolves when the parent closes our standard input.
async fn let_go() -> Result<()> {
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    while input.read(&mut ignored).await? > 0 {}
    Ok(())
}
