//! Two custom resources in one program, each with a kube-runtime controller: a Database creates its
//! Backup, and the Backup creates a Job once the Database is ready. Reproduces
//! noobaa/noobaa-operator#2078: the Backup does not watch the Database it reads, so it waits for an
//! event that never comes.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join};
use k8s_openapi::api::{apps::v1::StatefulSet, batch::v1::Job};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{Controller, controller::Action, reflector::ObjectRef, watcher};
use pintle_trials::{Check, Cx, Oracle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Database",
    namespaced
)]
#[kube(status = "DatabaseStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatabaseSpec {
    replicas: i32,
    #[serde(default)]
    backup: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct DatabaseStatus {
    #[serde(default)]
    ready: bool,
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Backup",
    namespaced
)]
pub(crate) struct BackupSpec {
    database: String,
}

const APPLY: &str = "databases";

fn error_policy<K>(_: Arc<K>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(10))
}

async fn databases(database: Arc<Database>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let name = database.name_any();
    let client = (*client).clone();
    let params = PatchParams::apply(APPLY).force();
    let owners = json!([database.controller_owner_ref(&())]);
    let sets = Api::<StatefulSet>::default_namespaced(client.clone());
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {
            "replicas": database.spec.replicas, "serviceName": name,
            "selector": {"matchLabels": {"db": name}},
            "template": {
                "metadata": {"labels": {"db": name}},
                "spec": {"containers": [{"name": "db", "image": "db:1"}]},
            },
        },
    });
    let set = sets.patch(&name, &params, &Patch::Apply(set)).await?;
    let backups = Api::<Backup>::default_namespaced(client.clone());
    if database.spec.backup {
        let backup = json!({
            "apiVersion": "stranger.example.com/v1", "kind": "Backup",
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"database": name},
        });
        backups.patch(&name, &params, &Patch::Apply(backup)).await?;
    } else if let Some(old) = backups.get_opt(&name).await? {
        let same = kube::api::Preconditions {
            uid: old.uid(),
            resource_version: None,
        };
        let params = kube::api::DeleteParams::background().preconditions(same);
        match backups.delete(&name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let ready = set.status.and_then(|it| it.ready_replicas).unwrap_or(0);
    let status = json!({"status": {"ready": ready >= database.spec.replicas}});
    Api::<Database>::default_namespaced(client)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(Action::await_change())
}

async fn backups(backup: Arc<Backup>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let client = (*client).clone();
    let databases = Api::<Database>::default_namespaced(client.clone());
    let database = databases.get_opt(&backup.spec.database).await?;
    let ready = database.and_then(|it| it.status).is_some_and(|it| it.ready);
    if !ready {
        return Ok(Action::await_change());
    }
    let name = format!("{}-backup", backup.name_any());
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "ownerReferences": [backup.controller_owner_ref(&())]},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "dump", "image": "dump:1"}],
        }}},
    });
    Api::<Job>::default_namespaced(client)
        .patch(
            &name,
            &PatchParams::apply(APPLY).force(),
            &Patch::Apply(job),
        )
        .await?;
    Ok(Action::await_change())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let all = watcher::Config::default;
    let first = Controller::new(Api::<Database>::all(client.clone()), all())
        .owns(Api::<StatefulSet>::all(client.clone()), all())
        .owns(Api::<Backup>::all(client.clone()), all())
        .run(databases, error_policy, Arc::new(client.clone()));
    let mut second = Controller::new(Api::<Backup>::all(client.clone()), all())
        .owns(Api::<Job>::all(client.clone()), all());
    if !broken {
        second = second.watches(Api::<Database>::all(client.clone()), all(), |database| {
            let namespace = database.namespace().unwrap_or_default();
            Some(ObjectRef::new(&database.name_any()).within(&namespace))
        });
    }
    let second = second.run(backups, error_policy, Arc::new(client));
    join(first.for_each(async |_| ()), second.for_each(async |_| ())).await;
}

fn trial(folder: &tempfile::TempDir, broken: bool) -> Check {
    let spec = DatabaseSpec {
        replicas: 1,
        backup: true,
    };
    let database = Database::new("main", spec);
    super::trial(folder, move |cx| controller(cx, broken), &database).kind::<Backup>()
}

/// Proves trials/strangers.
#[test]
fn bug_is_found() {
    let folder = tempfile::tempdir().unwrap();
    super::assert_found(&trial(&folder, true).try_run(), Oracle::Idempotent);
}

/// Proves trials/no-false-alarm.
#[test]
fn without_the_bug_it_converges() {
    let folder = tempfile::tempdir().unwrap();
    super::assert_clean(&trial(&folder, false).sample(30).try_run());
}
