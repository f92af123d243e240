//! A cluster-scoped resource that owns a Namespace and what is in it. Several operators had this
//! bug: the Secret is created only if the Namespace did not exist, so a crash in between leaves the
//! tenant without a Secret.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use kube_runtime::{Controller, controller::Action, watcher};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "stranger.example.com", version = "v1", kind = "Tenant")]
pub(crate) struct TenantSpec {
    admins: Vec<String>,
}

async fn reconcile(tenant: Arc<Tenant>, cx: Arc<(Client, bool)>) -> Result<Action, kube::Error> {
    let (client, broken) = (cx.0.clone(), cx.1);
    let name = tenant.name_any();
    let owners = json!([tenant.controller_owner_ref(&())]);
    let params = PatchParams::apply("tenants").force();
    let namespaces = Api::<Namespace>::all(client.clone());
    let existed = namespaces.get_opt(&name).await?;
    if existed
        .as_ref()
        .is_some_and(|it| it.metadata.deletion_timestamp.is_some())
    {
        return Ok(Action::requeue(Duration::from_secs(5)));
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "ownerReferences": owners}});
    namespaces
        .patch(&name, &params, &Patch::Apply(namespace))
        .await?;
    if existed.is_none() || !broken {
        let secrets = Api::<Secret>::namespaced(client.clone(), &name);
        let secret = serde_json::from_value(json!({
            "metadata": {"name": "token", "ownerReferences": owners},
            "stringData": {"token": "s3cr3t"},
        }));
        match secrets
            .create(&PostParams::default(), &secret.unwrap())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
    }
    let subjects: Vec<_> = tenant
        .spec
        .admins
        .iter()
        .map(|user| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}))
        .collect();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "admins", "ownerReferences": owners},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": subjects,
    });
    Api::<RoleBinding>::namespaced(client, &name)
        .patch("admins", &params, &Patch::Apply(binding))
        .await?;
    Ok(Action::await_change())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let all = watcher::Config::default;
    Controller::new(Api::<Tenant>::all(client.clone()), all())
        .owns(Api::<Namespace>::all(client.clone()), all())
        .owns(Api::<Secret>::all(client.clone()), all())
        .owns(Api::<RoleBinding>::all(client.clone()), all())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new((client, broken)),
        )
        .for_each(async |_| ())
        .await;
}

fn tenant() -> Tenant {
    let admins = vec!["ada".to_owned(), "bob".to_owned()];
    Tenant::new("acme", TenantSpec { admins })
}

super::twins!(controller, tenant(), PathFree);
