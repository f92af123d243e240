//! Fills a real server with Pods.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use super::{Server, many, namespace, post, send, service_account};
use crate::pods::{self, Form};

/// Concurrent requests.
const AT_ONCE: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
    /// Number of Pods
    #[arg(long, default_value_t = 1000)]
    objects: usize,
}

/// Creates the Pods with their status. No controller may run that would treat them as orphans.
pub(crate) async fn load(args: &Args) -> Result<Value> {
    let client = args.server.client().await?;
    let mut namespaces: Vec<_> = (0..args.objects).map(pods::namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    for name in &namespaces {
        namespace(&client, name).await?;
        service_account(&client, name).await?;
    }
    let client = &client;
    many(args.objects, AT_ONCE, |i| async move {
        let namespace = pods::namespace(i);
        let pod = pods::pod(i, None, 0, Form::New);
        let mut value: Value = serde_json::from_str(&pod)?;
        let name = value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let status = value["status"].take();
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        post(client, &path, pod).await?;
        let path = format!("{path}/{name}/status");
        let patch = json!({"status": status}).to_string();
        send(client, Method::PATCH, &path, Some(patch))
            .await
            .map(drop)
    })
    .await?;
    Ok(json!({"objects": args.objects}))
}
