//! Mark and sweep in periodic passes, without watches. Reproduces K8SPSMDB-430 of
//! percona/percona-server-mongodb-operator: the sweep trusts a list that may be stale, and deletes
//! by name what the list does not ask for.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::interval;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Site",
    namespaced
)]
pub(crate) struct SiteSpec {
    hosts: Vec<String>,
}

async fn round(client: &Client, broken: bool) -> Result<(), kube::Error> {
    let sites = Api::<Site>::all(client.clone());
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let marked = ListParams::default().labels("managed-by=sites");
    let (sites, known) = if broken {
        (
            sites.list(&ListParams::default().match_any()).await?,
            maps.list(&marked).await?,
        )
    } else {
        let known = maps.list(&marked).await?;
        (sites.list(&ListParams::default()).await?, known)
    };
    let mut wanted = BTreeSet::new();
    for site in &sites {
        for host in &site.spec.hosts {
            let name = format!("{}-{host}", site.name_any());
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {"managed-by": "sites"},
                    "ownerReferences": [site.controller_owner_ref(&())]},
                "data": {"host": host},
            });
            wanted.insert(name.clone());
            let params = PatchParams::apply("sites").force();
            maps.patch(&name, &params, &Patch::Apply(map)).await?;
        }
    }
    for map in known {
        if wanted.contains(&map.name_any()) {
            continue;
        }
        let mut params = DeleteParams::default();
        if !broken {
            let same = Preconditions {
                uid: map.uid(),
                resource_version: map.resource_version(),
            };
            params = params.preconditions(same);
        }
        match maps.delete(&map.name_any(), &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            other => drop(other?),
        }
    }
    Ok(())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let mut tick = interval(Duration::from_secs(30));
    loop {
        tick.tick().await;
        let _ = round(&client, broken).await;
    }
}

fn site() -> Site {
    let hosts = vec!["a".to_owned(), "b".to_owned()];
    Site::new("shop", SiteSpec { hosts })
}

super::twins!(controller, site(), NoExtraDelete);
