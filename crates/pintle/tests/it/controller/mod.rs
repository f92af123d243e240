//! The contract of the `Controller`, on the embedded API server under virtual time.

mod apply;
mod apply_set;
mod failures;
mod finalizers;
mod from_kube_rs;
mod inputs;
mod lifecycle;
mod objects;
mod observed;
mod own_write_kinds;
mod own_writes;
mod readiness;
mod reporting;
mod results;
mod settings;
mod terms;
mod triggers;
mod user_queue;
mod wakes;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Client, ResourceExt};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller, ControllerError, ReconcileError, Stopped},
    informer::InformerFactory,
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::support::{create, delete, patch, slow_reads, slow_watches};

type Accounts = Api<ServiceAccount>;
type Maps = Api<ConfigMap>;

/// A controller of ServiceAccounts, and the keys it reconciled.
struct World {
    client: Client,
    informers: InformerFactory,
    shutdown: CancellationToken,
    seen: Seen,
}

/// The reconciled keys in order, with their times.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, Duration)>>>);

impl Seen {
    fn push(&self, key: &ObjectKey, start: Instant) {
        self.0
            .lock()
            .unwrap()
            .push((key.name().to_owned(), start.elapsed()));
    }

    /// Returns the names reconciled since the last call.
    fn take(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .drain(..)
            .map(|(name, _)| name)
            .collect()
    }

    fn take_times(&self) -> Vec<u64> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        self.0
            .lock()
            .unwrap()
            .drain(..)
            .map(|(_, time)| millis(time))
            .collect()
    }
}

impl World {
    fn new() -> Self {
        Self::on(ApiServer::builder().build().client())
    }

    fn on(client: Client) -> Self {
        Self {
            informers: InformerFactory::new(client.clone()),
            client,
            shutdown: CancellationToken::new(),
            seen: Seen::default(),
        }
    }

    fn controller(&self) -> Controller<ServiceAccount> {
        Controller::new("accounts", &self.informers)
    }

    /// Runs `controller`, recording each key before `reconcile` gets it.
    fn run<R>(
        &self,
        controller: Controller<ServiceAccount>,
        reconcile: impl Fn(ObjectKey, Context) -> R + Send + Sync + 'static,
    ) -> JoinHandle<Result<Stopped, ControllerError>>
    where
        R: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let (seen, shutdown, start) = (self.seen.clone(), self.shutdown.clone(), Instant::now());
        tokio::spawn(async move {
            let note = move |key: ObjectKey, cx| {
                seen.push(&key, start);
                reconcile(key, cx)
            };
            controller.run_by_key(note, &shutdown).await
        })
    }

    fn accounts(&self) -> Accounts {
        Api::namespaced(self.client.clone(), "default")
    }

    fn maps(&self) -> Maps {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn account(&self, name: &str) -> ServiceAccount {
        let account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        create(&self.accounts(), &account).await
    }

    async fn map(&self, name: &str, owners: impl IntoIterator<Item = OwnerReference>) -> ConfigMap {
        let metadata = ObjectMeta {
            owner_references: Some(owners.into_iter().collect()),
            ..named(name)
        };
        let map = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        create(&self.maps(), &map).await
    }

    /// Changes a label of an account.
    async fn relabel(&self, name: &str, round: u32) {
        let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
        patch(&self.accounts(), name, labels).await;
    }

    async fn settle(&self) {
        sleep(Duration::from_secs(1)).await;
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn controlled_by(api_version: &str, account: &ServiceAccount) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: account.name_any(),
        uid: account.uid().unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

async fn done(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}
