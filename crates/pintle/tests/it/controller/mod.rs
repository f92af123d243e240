//! The contract of the `Controller`, on the embedded API server under virtual time.

mod apply;
mod failures;
mod finalizers;
mod from_kube_rs;
mod lifecycle;
mod objects;
mod observed;
mod own_write_kinds;
mod own_writes;
mod reporting;
mod results;
mod settings;
mod terms;
mod triggers;
mod user_queue;

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::{
    api::core::v1::{ConfigMap, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, Controller, ControllerError, ReconcileError, Stopped},
    informer::InformerFactory,
};
use pintle_apiserver::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

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
        self.accounts()
            .create(&PostParams::default(), &account)
            .await
            .unwrap()
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
        self.maps()
            .create(&PostParams::default(), &map)
            .await
            .unwrap()
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

/// Sends a merge patch for the object called `name`.
async fn patch<K: Stored>(api: &Api<K>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn delete<K: Stored>(api: &Api<K>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// A kind the server can return.
trait Stored: Clone + Debug + DeserializeOwned {}

impl<K: Clone + Debug + DeserializeOwned> Stored for K {}

async fn done(_: ObjectKey, _: Context) -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

/// A client whose reads of `resource` take `delay`.
fn slow_reads(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_read = request.method() == http::Method::GET;
        let late = is_read && request.uri().path().ends_with(resource);
        let answer = service.clone().oneshot(request);
        async move {
            if late {
                sleep(delay).await;
            }
            answer.await
        }
    });
    Client::new(slow, "default")
}

/// A client whose watches of `resource` deliver each event `delay` late.
fn slow_watches(server: &ApiServer, resource: &'static str, delay: Duration) -> Client {
    let service = server.service();
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri();
        let late = uri.path().ends_with(resource)
            && uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
        let answer = service.clone().oneshot(request);
        async move {
            let answer = answer.await?;
            Ok::<_, tower::BoxError>(answer.map(|body| {
                let frames = BodyStream::new(body);
                if late {
                    let frames = frames.then(move |frame| async move {
                        sleep(delay).await;
                        frame
                    });
                    StreamBody::new(frames.boxed()).boxed_unsync()
                } else {
                    StreamBody::new(StreamExt::boxed(frames)).boxed_unsync()
                }
            }))
        }
    });
    Client::new(slow, "default")
}
