//! Benchmark: Deployments to Pods.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use pintle::{
    informer::SharedInformer,
    source::{KubeSource, Scope},
};
use pintle_cluster::{Cluster, Loops};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{Server, let_go, many, namespace, post, service_account};

#[derive(clap::Args)]
pub(crate) struct LoopArgs {
    #[command(flatten)]
    server: Server,
}

/// Runs Pintle's loops on any server: the same ones that kube-controller-manager runs in comparison.
pub(crate) async fn loops(args: &LoopArgs) -> Result<()> {
    let loops = Loops::DEPLOYMENT
        | Loops::REPLICA_SET
        | Loops::GARBAGE_COLLECTOR
        | Loops::NAMESPACE
        | Loops::SERVICE_ACCOUNT;
    let client = args.server.client().await?;
    let cluster = Cluster::builder().client(client).loops(loops).start().await;
    println!("ready");
    let_go().await?;
    cluster.stop().await;
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
    /// Number of Deployments
    #[arg(long, default_value_t = 100)]
    objects: usize,
    /// Pods per Deployment
    #[arg(long, default_value_t = 3)]
    replicas: usize,
}

const NAMESPACE: &str = "bench";

fn deployment(i: usize, replicas: usize) -> String {
    let labels = json!({"app": format!("web-{i}")});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("web-{i}"), "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.0"}]},
            },
        },
    })
    .to_string()
}

#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn drive(args: &Args) -> Result<Value> {
    let client = args.server.client().await?;
    namespace(&client, NAMESPACE).await?;
    // The Pods may already exist.
    let _ = service_account(&client, NAMESPACE).await;
    let source = KubeSource::<Pod>::new(client.clone(), Scope::namespace(NAMESPACE));
    let pods = SharedInformer::<Pod>::new(source);
    let (lister, shutdown) = (pods.lister(), CancellationToken::new());
    let stop = shutdown.clone();
    let running = tokio::spawn({
        let pods = pods.clone();
        async move { pods.run(&stop).await }
    });
    pods.synced().await;

    let (begin, before) = (Instant::now(), args.server.server_cpu());
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    many(args.objects, 8, |i| {
        post(&client, &path, deployment(i, args.replicas))
    })
    .await?;
    let created = begin.elapsed().as_secs_f64();
    let wanted = args.objects * args.replicas;
    loop {
        let changed = lister.changed();
        if lister.len() >= wanted {
            break;
        }
        if timeout(Duration::from_secs(60), changed).await.is_err() {
            bail!(
                "only {} of {wanted} Pods exist after a minute without progress",
                lister.len()
            );
        }
    }
    let (wall, cpu) = (
        begin.elapsed().as_secs_f64(),
        args.server.server_cpu() - before,
    );
    let found = lister.len();
    shutdown.cancel();
    running.await?;
    if found != wanted {
        bail!("{found} Pods exist instead of {wanted}");
    }
    Ok(json!({
        "count": wanted, "objects": args.objects, "wall_s": wall, "created_s": created,
        "server_cpu_s": cpu,
    }))
}
