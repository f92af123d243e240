//! Benchmark: a Foo controller, measured from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use parking_lot::Mutex;
use pintle::{
    informer::{Event, SharedInformer},
    source::{KubeSource, Scope},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Server, many, namespace, post, send};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
    /// Number of Foos
    #[arg(long, default_value_t = 100)]
    objects: usize,
    /// Namespace of the Foos
    #[arg(long, default_value = "foos")]
    namespace: String,
}

impl Args {
    fn foos(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/samplecontroller.k8s.io/v1alpha1/namespaces/{namespace}/foos")
    }
}

/// When each Foo was created.
#[derive(Default)]
struct Times(Mutex<BTreeMap<String, Instant>>);

impl Times {
    fn note(&self, name: String, at: Instant) {
        self.0.lock().insert(name, at);
    }

    fn of(&self, name: &str) -> Option<Instant> {
        self.0.lock().get(name).copied()
    }
}

/// An observation of a Foo: when its Deployment appeared, or that it has a status.
enum Seen {
    Deployment(String, Instant),
    Status(String),
}

/// Creates the Foos and waits until each has its Deployment and status and all writes have stopped.
#[allow(clippy::cast_precision_loss, reason = "rounded for display")]
pub(crate) async fn drive(args: &Args) -> Result<Value> {
    let client = args.server.client().await?;
    namespace(&client, &args.namespace).await?;
    let (sender, mut seen) = mpsc::unbounded_channel();
    let shutdown = CancellationToken::new();
    watch(&client, args, &sender, &shutdown).await?;

    let writes_before = writes(&client).await?;
    let (begin, before) = (Instant::now(), args.server.server_cpu());
    let created = Arc::new(Times::default());
    let creating = {
        let (client, path, created) = (client.clone(), args.foos(), Arc::clone(&created));
        let objects = args.objects;
        tokio::spawn(async move {
            many(objects, 4, |i| {
                let (client, path, created) = (&client, &path, &created);
                async move {
                    let name = format!("foo-{i}");
                    let foo = json!({
                        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
                        "metadata": {"name": name},
                        "spec": {"deploymentName": name, "replicas": 1},
                    });
                    created.note(name, Instant::now());
                    post(client, path, foo.to_string()).await
                }
            })
            .await
        })
    };
    let (mut deployments, mut statuses) = (BTreeMap::new(), BTreeSet::new());
    while deployments.len() < args.objects || statuses.len() < args.objects {
        let next = timeout(Duration::from_secs(60), seen.recv()).await;
        let Ok(Some(next)) = next else {
            bail!(
                "of {} Foos, {} have a Deployment and {} a status after a minute without progress",
                args.objects,
                deployments.len(),
                statuses.len()
            );
        };
        match next {
            Seen::Deployment(name, at) => {
                deployments.entry(name).or_insert(at);
            }
            Seen::Status(name) => {
                statuses.insert(name);
            }
        }
    }
    let wall = begin.elapsed().as_secs_f64();
    creating.await??;
    let written = quiet(&client).await? - writes_before;
    let cpu = args.server.server_cpu() - before;
    shutdown.cancel();

    let mut waits: Vec<f64> = deployments
        .iter()
        .filter_map(|(name, at)| {
            let created = created.of(name)?;
            Some(at.saturating_duration_since(created).as_secs_f64() * 1e3)
        })
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |share: usize| {
        waits
            .get((waits.len() * share / 100).min(waits.len() - 1))
            .copied()
    };
    let count = args.objects as f64;
    Ok(json!({
        "count": args.objects, "objects": args.objects, "wall_s": wall, "server_cpu_s": cpu,
        "p50_ms": at(50), "p99_ms": at(99),
        // Subtract our own writes of the Foos.
        "writes_per_foo": (written - count) / count,
    }))
}

/// Reports every Deployment when it is added, and every Foo that has a status.
async fn watch(
    client: &Client,
    args: &Args,
    sender: &mpsc::UnboundedSender<Seen>,
    shutdown: &CancellationToken,
) -> Result<()> {
    let scope = || Scope::namespace(&args.namespace);
    let source = KubeSource::<Deployment>::new(client.clone(), scope());
    let deployments = SharedInformer::<Deployment>::new(source);
    let seen = sender.clone();
    let on_deployment = deployments.on_event(move |event| {
        if let Event::Added { object, .. } = event
            && let Some(owner) = object.controller_owner()
        {
            let _ = seen.send(Seen::Deployment(owner.name().to_owned(), Instant::now()));
        }
    });
    let kind = GroupVersionKind::gvk("samplecontroller.k8s.io", "v1alpha1", "Foo");
    let kind = ApiResource::from_gvk(&kind);
    let source = KubeSource::<DynamicObject>::dynamic(client.clone(), &kind, scope());
    let foos = SharedInformer::<DynamicObject>::new(source);
    let seen = sender.clone();
    let on_foo = foos.on_event(move |event| {
        let object = event.object();
        let foo: Option<Value> = serde_json::from_slice(object.bytes()).ok();
        if foo.is_some_and(|foo| foo["status"]["availableReplicas"].is_number()) {
            let _ = seen.send(Seen::Status(object.key().name().to_owned()));
        }
    });
    let (running, stop) = (deployments.clone(), shutdown.clone());
    tokio::spawn(async move {
        running.run(&stop).await;
        drop(on_deployment);
    });
    let (running, stop) = (foos.clone(), shutdown.clone());
    tokio::spawn(async move {
        running.run(&stop).await;
        drop(on_foo);
    });
    if !(deployments.synced().await && foos.synced().await) {
        bail!("cannot list the existing objects");
    }
    Ok(())
}

/// Returns the number of creates and updates the server has counted, except those of leases.
async fn writes(client: &Client) -> Result<f64> {
    let metrics = send(client, Method::GET, "/metrics", None).await?;
    let metrics = String::from_utf8(metrics).context("the metrics are not text")?;
    let writes = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && !line.contains("resource=\"leases\"")
            && ["POST", "PUT", "PATCH", "APPLY"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    });
    Ok(writes
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum())
}

/// Returns the number of writes once it is stable, or after ten seconds.
async fn quiet(client: &Client) -> Result<f64> {
    let mut last = writes(client).await?;
    for _ in 0..20 {
        sleep(Duration::from_millis(500)).await;
        let now = writes(client).await?;
        if now <= last {
            break;
        }
        last = now;
    }
    Ok(last)
}

/// Deletes the Foos, Deployments and events of a run.
pub(crate) async fn clean(args: &Args) -> Result<Value> {
    let client = args.server.client().await?;
    let namespace = &args.namespace;
    for path in [
        args.foos(),
        format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        format!("/api/v1/namespaces/{namespace}/events"),
    ] {
        send(&client, Method::DELETE, &path, None).await?;
    }
    Ok(json!({}))
}
