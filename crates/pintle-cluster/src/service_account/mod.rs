//! Creates the default service account and the root CA ConfigMap of each namespace.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use pintle::{
    cache::ObjectKey,
    controller::{Action, Context, ReconcileError},
};
use tokio_util::sync::CancellationToken;

use self::plan::{DEFAULT_ACCOUNT, ROOT_CA, Step};
use crate::{
    api::is_namespace_terminating,
    loops::{Environment, LoopError},
};

/// Runs the loop until `stop` is cancelled.
pub(crate) async fn run(
    environment: Arc<Environment>,
    stop: CancellationToken,
) -> Result<(), LoopError> {
    let shared = environment.clone();
    environment
        .controller::<Namespace>("service-accounts")
        .watches::<ServiceAccount>(move |account, _| namespace_of(account.key(), DEFAULT_ACCOUNT))
        .watches::<ConfigMap>(move |map, _| namespace_of(map.key(), ROOT_CA))
        .run_by_key(move |key, cx| reconcile(key, cx, shared.clone()), &stop)
        .await?;
    Ok(())
}

/// Maps an object called `name` to its namespace, and any other object to nothing.
fn namespace_of(key: &ObjectKey, name: &str) -> Vec<ObjectKey> {
    let namespace = key.namespace().filter(|_| key.name() == name);
    namespace.map(ObjectKey::cluster).into_iter().collect()
}

async fn reconcile(
    key: ObjectKey,
    cx: Context,
    environment: Arc<Environment>,
) -> Result<Action, ReconcileError> {
    let Some(namespace) = cx.lister::<Namespace>()?.get(&key) else {
        return Ok(Action::await_change());
    };
    let account = ObjectKey::namespaced(key.name(), DEFAULT_ACCOUNT);
    let has_account = cx.lister::<ServiceAccount>()?.get(&account).is_some();
    let map = cx
        .lister::<ConfigMap>()?
        .get(&ObjectKey::namespaced(key.name(), ROOT_CA));
    let map = map.map(|map| map.get()).transpose()?;
    let namespace = namespace.get()?;
    for step in plan::plan(
        &namespace,
        has_account,
        map.as_deref(),
        &environment.root_ca,
    ) {
        let written = match step {
            Step::CreateAccount(account) => cx.create(&account).await.map(drop),
            Step::CreateMap(map) => cx.create(&map).await.map(drop),
            Step::UpdateMap(map) => cx.replace(&map).await.map(drop),
        };
        match written {
            Ok(()) => {}
            Err(error) if is_namespace_terminating(&error) => break,
            // Another client was faster; its write enqueues this key again.
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Action::await_change())
}
