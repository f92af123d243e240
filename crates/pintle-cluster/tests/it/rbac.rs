//! RBAC in a cluster: default roles, aggregation, and clients of service accounts.

use crate::support::{start, virtual_cluster, wait_for};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Pod, Secret},
    rbac::v1::{ClusterRole, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

const ROBOT: &str = "system:serviceaccount:default:robot";

fn bind(role: &str) -> Value {
    json!({ "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "robot", "namespace": "default" }] })
}

async fn rules(roles: &Api<ClusterRole>, name: &str) -> usize {
    roles
        .get(name)
        .await
        .unwrap()
        .rules
        .map_or(0, |rules| rules.len())
}

/// Proves rbac/aggregation.
#[tokio::test(start_paused = true)]
async fn default_roles_are_aggregated_and_usable() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let roles = Api::<ClusterRole>::all(cluster.client());
    wait_for("the default roles", async || {
        let (view, edit) = (rules(&roles, "view").await, rules(&roles, "edit").await);
        let admin = rules(&roles, "admin").await;
        (0 < view && view < edit && edit < admin).then_some(())
    })
    .await;
    kubectl.create::<RoleBinding>(bind("view")).await;
    let robot = cluster.client_as(ROBOT);
    let pods = Api::<Pod>::namespaced(robot.clone(), "default");
    assert!(pods.list(&ListParams::default()).await.is_ok());
    let secrets = Api::<Secret>::namespaced(robot.clone(), "default");
    assert!(
        secrets.list(&ListParams::default()).await.is_err(),
        "view excludes secrets"
    );
    let maps = Api::<ConfigMap>::namespaced(robot, "default");
    let map = serde_json::from_value(json!({ "metadata": { "name": "m" } })).unwrap();
    assert!(maps.create(&PostParams::default(), &map).await.is_err());
    kubectl.create::<RoleBinding>(bind("edit")).await;
    maps.create(&PostParams::default(), &map).await.unwrap();
    cluster.stop().await;
}

/// Proves rbac/aggregation.
#[tokio::test(start_paused = true)]
async fn roles_of_a_crd_extend_the_default_roles() {
    let (cluster, _) = start(virtual_cluster()).await;
    let roles = Api::<ClusterRole>::all(cluster.client());
    let foos = json!({ "metadata": { "name": "foo-viewer", "labels":
            { "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
        "rules": [{ "apiGroups": ["example.com"], "resources": ["foos"], "verbs": ["get"] }] });
    let foos = serde_json::from_value(foos).unwrap();
    roles.create(&PostParams::default(), &foos).await.unwrap();
    let has_foos = async |role: &str| {
        let role = roles.get(role).await.unwrap();
        let mut rules = role.rules.into_iter().flatten();
        rules.any(|rule| rule.resources == Some(vec!["foos".to_owned()]))
    };
    // `edit` includes `view`, and `admin` includes `edit`.
    for role in ["view", "edit", "admin"] {
        wait_for(role, async || has_foos(role).await.then_some(())).await;
    }
    roles
        .delete("foo-viewer", &DeleteParams::default())
        .await
        .unwrap();
    wait_for("the rule to be gone", async || {
        (!has_foos("admin").await && !has_foos("view").await).then_some(())
    })
    .await;
    cluster.stop().await;
}
