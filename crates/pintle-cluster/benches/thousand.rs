//! Measures how long the loops take to turn a thousand Deployments of three replicas into Pods, and
//! at what cost. Server, loops and client run in this process.
//!
//! ```text
//! cargo bench -p pintle-cluster --bench thousand
//! cargo bench -p pintle-cluster --bench thousand -- --pods
//! ```
//!
//! Without `--pods` there is no kubelet, as with a bare kube-controller-manager: a Deployment is
//! done when its status counts all Pods. With it, Pods are bound to nodes and become ready, and a
//! Deployment is done when all Pods are available. `--deployments N` and `--replicas N` change the
//! size.

#![allow(
    clippy::unwrap_used,
    reason = "a failed request invalidates the measurement"
)]
#![allow(clippy::print_stdout, reason = "prints the results")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::DeleteParams, api::PostParams};
use parking_lot::Mutex;
use pintle::informer::{Event, InformerFactory};
use pintle_cluster::{Cluster, Loops};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The number of concurrent requests.
const CONCURRENCY: usize = 32;

struct Size {
    deployments: usize,
    replicas: i32,
    pods: bool,
}

impl Size {
    fn from_arguments() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let after = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1)?.parse().ok()
        };
        Self {
            deployments: after("--deployments").unwrap_or(1000),
            replicas: after("--replicas")
                .and_then(|n| i32::try_from(n).ok())
                .unwrap_or(3),
            pods: arguments.iter().any(|argument| argument == "--pods"),
        }
    }

    fn is_done(&self, deployment: &Deployment) -> bool {
        let Some(status) = &deployment.status else {
            return false;
        };
        let counted = if self.pods {
            status.available_replicas
        } else {
            status.replicas
        };
        counted == Some(self.replicas)
    }
}

fn deployment(index: usize, replicas: i32) -> Deployment {
    let labels = json!({ "app": format!("web-{index}") });
    let object: Value = json!({
        "metadata": { "name": format!("web-{index}"), "labels": labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{
                    "name": "main", "image": "nginx:1",
                    "ports": [{ "containerPort": 80 }],
                    "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                }]},
            },
        },
    });
    serde_json::from_value(object).unwrap()
}

/// Returns the CPU seconds and the peak memory in megabytes used by this process.
fn used() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |at: usize| -> f64 { fields.get(at).and_then(|n| n.parse().ok()).unwrap_or(0.0) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    // Linux reports hundredths of a second, independent of its tick rate.
    (
        (ticks(12) + ticks(13)) / 100.0,
        peak.unwrap_or(0.0) / 1024.0,
    )
}

struct Report {
    begin: Instant,
    before: f64,
}

impl Report {
    fn begin() -> Self {
        Self {
            begin: Instant::now(),
            before: used().0,
        }
    }

    fn end(self, what: &str) {
        let (took, (cpu, peak)) = (self.begin.elapsed().as_secs_f64(), used());
        println!(
            "{what}: {took:.2} s, {:.2} s CPU, {peak:.0} MB peak",
            cpu - self.before
        );
    }
}

#[tokio::main]
async fn main() {
    let size = Arc::new(Size::from_arguments());
    let loops = if size.pods {
        Loops::ALL
    } else {
        Loops::ALL.without(Loops::PODS | Loops::NODES)
    };
    let start = Report::begin();
    let cluster = Cluster::builder()
        .loops(loops)
        .nodes(20)
        .pod_ready_after(Duration::ZERO)
        .start()
        .await;
    start.end("start");

    // Count completed Deployments.
    let informers = InformerFactory::new(cluster.client());
    let stop = CancellationToken::new();
    let (counts, mut counted) = watch::channel(0);
    let done = Mutex::new(BTreeSet::new());
    let sizes = size.clone();
    let deployments = informers.informer::<Deployment>();
    let _counting = deployments.on_event(move |event| {
        let mut done = done.lock();
        if let Event::Added { object, .. } | Event::Updated { new: object, .. } = event
            && !done.contains(object.key())
            && sizes.is_done(&object.get().unwrap())
        {
            done.insert(object.key().clone());
            counts.send_replace(done.len());
        }
    });
    informers.start(&stop);
    deployments.synced().await;

    let api = Api::<Deployment>::default_namespaced(cluster.client());
    let run = Report::begin();
    stream::iter(0..size.deployments)
        .for_each_concurrent(CONCURRENCY, |index| {
            let (api, size) = (&api, &size);
            async move {
                let deployment = deployment(index, size.replicas);
                api.create(&PostParams::default(), &deployment)
                    .await
                    .unwrap();
            }
        })
        .await;
    let limit = Duration::from_mins(10);
    let all = counted.wait_for(|done| *done == size.deployments);
    timeout(limit, all).await.unwrap().unwrap();
    run.end(&format!("{} x {}", size.deployments, size.replicas));

    let idle = Report::begin();
    sleep(Duration::from_secs(3)).await;
    idle.end("idle");

    let end = Report::begin();
    stream::iter(0..size.deployments)
        .for_each_concurrent(CONCURRENCY, |index| {
            let api = &api;
            async move {
                let name = format!("web-{index}");
                api.delete(&name, &DeleteParams::background())
                    .await
                    .unwrap();
            }
        })
        .await;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(cluster.client());
    while !pods
        .list_metadata(&kube::api::ListParams::default().limit(1))
        .await
        .unwrap()
        .items
        .is_empty()
    {
        sleep(Duration::from_millis(50)).await;
    }
    end.end("deleted");
    stop.cancel();
    cluster.stop().await;
}
