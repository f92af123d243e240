//! Benchmark: Deployments, `StatefulSet`s and Jobs to Pods.

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
    /// Also run the loops of `StatefulSet`s and Jobs
    #[arg(long)]
    mixed: bool,
}

/// Runs Pintle's loops on any server: the ones kube-controller-manager runs in the comparison.
pub(crate) async fn loops(args: &LoopArgs) -> Result<()> {
    let loops = Loops::DEPLOYMENT
        | Loops::REPLICA_SET
        | Loops::GARBAGE_COLLECTOR
        | Loops::NAMESPACE
        | Loops::SERVICE_ACCOUNT;
    let loops = if args.mixed {
        loops | Loops::STATEFUL_SET | Loops::JOB
    } else {
        loops
    };
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
    /// Also create as many `StatefulSet`s and Jobs
    #[arg(long)]
    mixed: bool,
    /// Pods per object
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

/// A StatefulSet that does not wait for its Pods: no kubelet makes them ready.
fn stateful_set(i: usize, replicas: usize) -> String {
    let labels = json!({"app": format!("db-{i}")});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": format!("db-{i}"), "labels": labels},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "db", "image": "registry.example/db:1.0"}]},
            },
        },
    })
    .to_string()
}

fn job(i: usize, pods: usize) -> String {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": format!("job-{i}")},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "job", "image": "registry.example/job:1.0"}],
            }},
        },
    })
    .to_string()
}

/// Builds the body of an object from its index and its number of Pods.
type Object = fn(usize, usize) -> String;

const KINDS: [(&str, Object); 3] = [
    ("apps/v1/deployments", deployment),
    ("apps/v1/statefulsets", stateful_set),
    ("batch/v1/jobs", job),
];

#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn drive(args: &Args) -> Result<Value> {
    let client = args.server.client().await?;
    namespace(&client, NAMESPACE).await?;
    // The service account may already exist.
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
    let kinds = if args.mixed { &KINDS[..] } else { &KINDS[..1] };
    for (resource, object) in kinds {
        let (version, plural) = resource.rsplit_once('/').unwrap_or_default();
        let path = format!("/apis/{version}/namespaces/{NAMESPACE}/{plural}");
        many(args.objects, 8, |i| {
            post(&client, &path, object(i, args.replicas))
        })
        .await?;
    }
    let created = begin.elapsed().as_secs_f64();
    let objects = args.objects * kinds.len();
    let wanted = objects * args.replicas;
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
        "count": wanted, "objects": objects, "wall_s": wall, "created_s": created,
        "server_cpu_s": cpu,
    }))
}
