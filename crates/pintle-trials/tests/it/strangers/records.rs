//! An operator for records of an external DNS provider, with a channel and a task per object.
//! Reproduces aws-controllers-k8s/community#2062: the id that the provider chose is stored only
//! after the record was created, and a crash in between leaks the record.

use std::{collections::BTreeMap, sync::Arc};

use futures::TryStreamExt;
use kube::{
    Api, CustomResource, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{WatchStreamExt, watcher};
use pintle_clock::Rng;
use pintle_trials::{Cx, External};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Duration, sleep},
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1alpha1",
    kind = "Record",
    namespaced
)]
#[kube(status = "RecordStatus")]
pub(crate) struct RecordSpec {
    host: String,
    ttl: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct RecordStatus {
    id: Option<String>,
}

const FINALIZER: &str = "stranger.example.com/record";

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Operator {
    records: Api<Record>,
    dns: External,
    rng: Rng,
    broken: bool,
}

impl Operator {
    async fn sync(&self, name: &str) -> Result<(), Failure> {
        let Some(record) = self.records.get_opt(name).await? else {
            return Ok(());
        };
        let version = record.resource_version();
        let id = record.status.as_ref().and_then(|it| it.id.clone());
        let params = PatchParams::default();
        if record.metadata.deletion_timestamp.is_some() {
            if record.finalizers().iter().any(|it| it == FINALIZER) {
                if let Some(id) = id {
                    self.dns.remove(&id).await?;
                }
                let rest: Vec<_> = record
                    .finalizers()
                    .iter()
                    .filter(|it| *it != FINALIZER)
                    .collect();
                let patch = json!({"metadata": {"finalizers": rest, "resourceVersion": version}});
                self.records
                    .patch(name, &params, &Patch::Merge(patch))
                    .await?;
            }
            return Ok(());
        }
        if !record.finalizers().iter().any(|it| it == FINALIZER) {
            let mut all = record.finalizers().to_vec();
            all.push(FINALIZER.to_owned());
            let patch = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
            self.records
                .patch(name, &params, &Patch::Merge(patch))
                .await?;
            // The watch event for this patch triggers the next pass.
            return Ok(());
        }
        let id = match id {
            Some(id) => id,
            None if self.broken => format!("record-{:08x}", self.rng.below(1 << 32)),
            None => {
                let id = format!("record-{}", record.uid().unwrap_or_default());
                let status =
                    json!({"status": {"id": id}, "metadata": {"resourceVersion": version}});
                self.records
                    .patch_status(name, &params, &Patch::Merge(status))
                    .await?;
                id
            }
        };
        let entry = json!({"host": record.spec.host, "ttl": record.spec.ttl});
        self.dns.put(&id, entry).await?;
        if self.broken && record.status.is_none() {
            let status = json!({"status": {"id": id}});
            self.records
                .patch_status(name, &params, &Patch::Merge(status))
                .await?;
        }
        Ok(())
    }
}

/// Handles one object, one change at a time; retries until it succeeds.
async fn work(operator: Arc<Operator>, name: String, mut changes: mpsc::Receiver<()>) {
    while changes.recv().await.is_some() {
        while changes.try_recv().is_ok() {}
        let mut wait = Duration::from_millis(200);
        while operator.sync(&name).await.is_err() {
            sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(30));
        }
    }
}

async fn controller(cx: Cx, broken: bool) {
    let records = Api::<Record>::namespaced(cx.client(), "default");
    let operator = Arc::new(Operator {
        records: records.clone(),
        dns: cx.external("dns"),
        rng: cx.rng(),
        broken,
    });
    let mut workers: BTreeMap<String, mpsc::Sender<()>> = BTreeMap::new();
    let changes = watcher(records, watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes.applied_objects());
    loop {
        let Ok(Some(record)) = changes.try_next().await else {
            continue;
        };
        let name = record.name_any();
        let worker = workers.entry(name.clone()).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(8);
            tokio::spawn(work(Arc::clone(&operator), name, receiver));
            sender
        });
        let _ = worker.try_send(());
    }
}

fn record() -> Record {
    let spec = RecordSpec {
        host: "www".to_owned(),
        ttl: 60,
    };
    Record::new("www", spec)
}

super::twins!(controller, record(), NoDuplicate);
