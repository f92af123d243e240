//! The embedded cluster's loops beside the controller manager of Kubernetes: the same is done to both,
//! and leads to the same objects.
//!
//! The end states are compared object by object, without names, times and hashes. How the two get
//! there may differ: nobody relies on the number of steps.

mod mask;
mod pair;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use real_tests::eventually;
use serde_json::{Value, from_value, json};

use self::mask::masked;
use self::pair::{Pair, Side};

fn template(labels: &Value, image: &str) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

/// The Deployment `web`, with `spec` laid over it.
fn web(replicas: i32, spec: &Value) -> Value {
    let labels = json!({ "app": "web" });
    let mut deployment = json!({
        "metadata": { "name": "web", "labels": labels, "annotations": { "team": "red" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": template(&labels, "nginx:1"),
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        deployment["spec"][key] = value.clone();
    }
    deployment
}

fn set(name: &str, replicas: i32) -> Value {
    let labels = json!({ "app": "web" });
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": template(&labels, "nginx:1"),
        },
    })
}

/// Both sides with the Deployment `web` rolled out.
async fn rolled_out(replicas: i32, spec: Value) -> Pair {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Deployment>(web(replicas, &spec)).await;
        side.roll_out().await;
    })
    .await;
    pair
}

fn reason(deployment: &Deployment, type_: &str) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == type_)?;
    condition.reason.clone()
}

/// Proves cluster/end-states.
#[tokio::test]
async fn created_and_scaled() {
    let pair = rolled_out(3, json!({})).await;
    pair.are_alike("created").await;
    for replicas in [5, 1, 0, 2] {
        pair.both(async |side| {
            side.set(json!({ "replicas": replicas })).await;
            side.roll_out().await;
        })
        .await;
        pair.are_alike(&format!("scaled to {replicas}")).await;
    }
    pair.agree("what people are told", async |side| side.told().await)
        .await;
    pair.stop().await;
}

/// `kubectl rollout undo --to-revision`: the template of that revision.
async fn undo(side: &Side, revision: &str) {
    let sets = side.list::<ReplicaSet>().await;
    let of = |set: &&ReplicaSet| {
        set.annotations()
            .get("deployment.kubernetes.io/revision")
            .map(String::as_str)
            == Some(revision)
    };
    let set = sets.iter().find(of).unwrap();
    let mut template = json!(set.spec.as_ref().unwrap().template);
    let labels = template["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove("pod-template-hash");
    side.set(json!({ "template": template })).await;
}

/// Proves deployment/revisions, cluster/end-states.
#[tokio::test]
async fn new_images_and_back_to_the_first() {
    let pair = rolled_out(3, json!({})).await;
    for image in ["nginx:2", "nginx:3"] {
        pair.both(async |side| {
            side.set_image(image).await;
            side.roll_out().await;
        })
        .await;
        pair.are_alike(image).await;
    }
    pair.both(async |side| {
        undo(side, "1").await;
        side.roll_out().await;
    })
    .await;
    pair.are_alike("undone").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn paused_and_resumed() {
    let pair = rolled_out(2, json!({})).await;
    pair.both(async |side| {
        side.set(json!({ "paused": true })).await;
        side.set_image("nginx:2").await;
        side.until("the pause", |web| {
            reason(web, "Progressing").as_deref() == Some("DeploymentPaused")
        })
        .await;
    })
    .await;
    pair.are_alike("paused").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 4 })).await;
        side.until("four Pods", |web| {
            web.status.as_ref().is_some_and(|s| s.replicas == Some(4))
        })
        .await;
        side.make_ready(|_| true).await;
    })
    .await;
    pair.are_alike("scaled while paused").await;
    pair.both(async |side| {
        side.set(json!({ "paused": null })).await;
        side.roll_out().await;
    })
    .await;
    pair.are_alike("resumed").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn recreated() {
    let strategy = json!({ "type": "Recreate", "rollingUpdate": null });
    let pair = rolled_out(3, json!({ "strategy": strategy })).await;
    pair.both(async |side| {
        side.set_image("nginx:2").await;
        side.roll_out().await;
    })
    .await;
    pair.are_alike("a new image").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 5 })).await;
        side.roll_out().await;
    })
    .await;
    pair.are_alike("scaled").await;
    pair.stop().await;
}

/// Proves deployment/rollout.
#[tokio::test]
async fn scaled_in_mid_rollout() {
    let strategy = json!({
        "type": "RollingUpdate",
        "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 },
    });
    let pair = rolled_out(10, json!({ "strategy": strategy })).await;
    let stands_at = async |side: &Side, total: i32| {
        side.until("all sets to have their size", |web| {
            web.status
                .as_ref()
                .is_some_and(|s| s.replicas == Some(total))
        })
        .await;
    };
    pair.both(async |side| {
        // No new Pod becomes ready: the rollout stands at its limits.
        side.set_image("nginx:2").await;
        stands_at(side, 13).await;
    })
    .await;
    pair.are_alike("the rollout stands").await;
    pair.both(async |side| {
        side.set(json!({ "replicas": 15 })).await;
        stands_at(side, 18).await;
    })
    .await;
    pair.are_alike("scaled up").await;
    pair.both(async |side| side.roll_out().await).await;
    pair.are_alike("the rollout goes on").await;
    pair.stop().await;
}

/// Proves deployment/revisions.
#[tokio::test]
async fn a_short_history() {
    let pair = rolled_out(1, json!({ "revisionHistoryLimit": 1 })).await;
    for image in ["nginx:2", "nginx:3", "nginx:4"] {
        pair.both(async |side| {
            side.set_image(image).await;
            side.roll_out().await;
        })
        .await;
    }
    pair.both(async |side| {
        eventually("the history to be cut", async || {
            (side.list::<ReplicaSet>().await.len() == 2).then_some(())
        })
        .await;
    })
    .await;
    pair.are_alike("cut").await;
    pair.stop().await;
}

/// Proves deployment/conditions.
#[tokio::test]
async fn a_rollout_without_progress() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Deployment>(web(1, &json!({ "progressDeadlineSeconds": 2 })))
            .await;
        side.until("the deadline", |web| {
            reason(web, "Progressing").as_deref() == Some("ProgressDeadlineExceeded")
        })
        .await;
    })
    .await;
    pair.are_alike("after the deadline").await;
    pair.both(async |side| side.roll_out().await).await;
    pair.are_alike("late, but complete").await;
    pair.stop().await;
}

/// Waits until a set says that it has this many Pods.
async fn until_set(side: &Side, name: &str, replicas: i32) {
    eventually("the set to have its Pods", async || {
        let set = side.api::<ReplicaSet>().get(name).await.unwrap();
        let status = set.status?;
        let observed = status.observed_generation == set.metadata.generation;
        (observed && status.replicas == replicas).then_some(())
    })
    .await;
}

fn pod(name: &str) -> Value {
    let mut pod = template(&json!({ "app": "web" }), "nginx:1");
    pod["metadata"]["name"] = json!(name);
    pod
}

/// Proves replicaset/adoption.
#[tokio::test]
async fn orphans_adopted_and_strangers_released() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<Pod>(pod("orphan")).await;
        side.create::<ReplicaSet>(set("web", 2)).await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.are_alike("adopted").await;
    pair.both(async |side| {
        let stranger = json!({ "metadata": { "labels": { "app": "debug" } } });
        side.patch::<Pod>("orphan", stranger).await;
        eventually("a Pod in its place", async || {
            (side.list::<Pod>().await.len() == 3).then_some(())
        })
        .await;
    })
    .await;
    pair.are_alike("released").await;
    pair.stop().await;
}

/// Proves replicaset/adoption.
#[tokio::test]
async fn one_pod_claimed_by_two() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        side.create::<ReplicaSet>(set("first", 1)).await;
        until_set(side, "first", 1).await;
        // The first has what it wants, and what it has is not the second's.
        side.create::<ReplicaSet>(set("second", 1)).await;
        until_set(side, "second", 1).await;
    })
    .await;
    pair.are_alike("one Pod each").await;
    pair.stop().await;
}

/// Proves replicaset/scale.
#[tokio::test]
async fn a_failed_pod_is_replaced_and_the_cheapest_goes_first() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        for (name, cost) in [("dear", "10"), ("cheap", "-10"), ("fair", "0")] {
            let mut pod = pod(name);
            let cost = json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
            pod["metadata"]["annotations"] = cost;
            side.create::<Pod>(pod).await;
        }
        side.make_ready(|_| true).await;
        side.create::<ReplicaSet>(set("web", 3)).await;
        until_set(side, "web", 3).await;
        side.patch::<ReplicaSet>("web", json!({ "spec": { "replicas": 2 } }))
            .await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.are_alike("the cheapest is gone").await;
    pair.both(async |side| {
        let dear = side.api::<Pod>().get("dear").await.unwrap();
        side.set_status(&dear, json!({ "phase": "Failed" })).await;
        eventually("a Pod in its place", async || {
            let pods = side.list::<Pod>().await;
            (pods.len() == 3).then_some(())
        })
        .await;
        until_set(side, "web", 2).await;
    })
    .await;
    pair.are_alike("the failed one is replaced").await;
    pair.stop().await;
}

/// Proves gc/collects, gc/foreground, gc/orphan.
#[tokio::test]
async fn deleted_with_each_kind_of_cascade() {
    for (policy, params) in [
        ("background", DeleteParams::background()),
        ("foreground", DeleteParams::foreground()),
    ] {
        let pair = rolled_out(2, json!({})).await;
        pair.both(async |side| {
            side.api::<Deployment>()
                .delete("web", &params)
                .await
                .unwrap();
            side.until_none_left::<Pod>().await;
            side.until_none_left::<ReplicaSet>().await;
            side.until_none_left::<Deployment>().await;
        })
        .await;
        pair.are_alike(policy).await;
        pair.stop().await;
    }
}

/// Proves gc/orphan, replicaset/adoption.
#[tokio::test]
async fn orphaned_and_adopted_by_the_next() {
    let pair = rolled_out(2, json!({})).await;
    pair.both(async |side| {
        let deployments = side.api::<Deployment>();
        deployments
            .delete("web", &DeleteParams::orphan())
            .await
            .unwrap();
        side.until_none_left::<Deployment>().await;
    })
    .await;
    pair.are_alike("orphaned").await;
    pair.both(async |side| {
        side.create::<Deployment>(web(2, &json!({}))).await;
        side.roll_out().await;
    })
    .await;
    pair.are_alike("adopted").await;
    pair.stop().await;
}

fn map(name: &str, owners: &[&ConfigMap]) -> Value {
    let owner = |owner: &&ConfigMap| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
            "blockOwnerDeletion": true,
        })
    };
    let owners: Vec<_> = owners.iter().map(owner).collect();
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

/// Proves gc/owners, gc/collects.
#[tokio::test]
async fn owners_that_are_not_there() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let owner = side.create::<ConfigMap>(map("owner", &[])).await;
        let mut nobody = owner.clone();
        nobody.metadata.name = Some("nobody".into());
        nobody.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
        let mut changeling = owner.clone();
        changeling.metadata.uid = Some("11111111-2222-3333-4444-666666666666".into());
        side.create::<ConfigMap>(map("kept", &[&owner, &nobody]))
            .await;
        side.create::<ConfigMap>(map("of-nobody", &[&nobody])).await;
        side.create::<ConfigMap>(map("of-a-changeling", &[&changeling]))
            .await;
        eventually("the two to be gone", async || {
            // kube-root-ca.crt is the third.
            (side.list::<ConfigMap>().await.len() == 3).then_some(())
        })
        .await;
    })
    .await;
    pair.are_alike("collected").await;
    pair.stop().await;
}

/// Proves gc/cycles.
#[tokio::test]
async fn owners_in_a_circle() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let a = side.create::<ConfigMap>(map("a", &[])).await;
        let b = side.create::<ConfigMap>(map("b", &[&a])).await;
        let c = side.create::<ConfigMap>(map("c", &[&b])).await;
        let owners = map("a", &[&c])["metadata"]["ownerReferences"].clone();
        side.patch::<ConfigMap>("a", json!({ "metadata": { "ownerReferences": owners } }))
            .await;
        let maps = side.api::<ConfigMap>();
        maps.delete("a", &DeleteParams::foreground()).await.unwrap();
        eventually("all to be gone", async || {
            (side.list::<ConfigMap>().await.len() <= 1).then_some(())
        })
        .await;
    })
    .await;
    pair.are_alike("all gone").await;
    pair.stop().await;
}

/// A namespace besides that of the test; goes with it.
async fn second_namespace(side: &Side) -> Side {
    let name = format!("{}-second", side.namespace);
    let namespace = json!({ "metadata": { "name": name } });
    let namespaces = Api::<Namespace>::all(side.client.clone());
    namespaces
        .create(&PostParams::default(), &from_value(namespace).unwrap())
        .await
        .unwrap();
    Side {
        client: side.client.clone(),
        namespace: name,
    }
}

/// Proves service-accounts/defaults.
#[tokio::test]
async fn what_a_namespace_begins_with() {
    let pair = Pair::start().await;
    pair.agree("begun", async |side| {
        let maps = side.list::<ConfigMap>().await;
        let mut maps = masked(json!(maps), &[]);
        for map in maps.as_array_mut().unwrap() {
            map["data"]["ca.crt"] = json!("PEM");
            map["metadata"]["annotations"]["kubernetes.io/description"] = json!("PROSE");
        }
        json!({ "accounts": masked(json!(side.list::<ServiceAccount>().await), &[]), "maps": maps })
    })
    .await;
    pair.stop().await;
}

/// Proves namespaces/emptied.
#[tokio::test]
async fn a_namespace_with_content() {
    let pair = Pair::start().await;
    pair.both(async |side| {
        let second = second_namespace(side).await;
        second.create::<Deployment>(web(2, &json!({}))).await;
        second.roll_out().await;
        let mut held = map("held", &[]);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        second.create::<ConfigMap>(held).await;
        let namespaces = Api::<Namespace>::all(side.client.clone());
        namespaces
            .delete(&second.namespace, &DeleteParams::default())
            .await
            .unwrap();
        second.until_none_left::<Deployment>().await;
    })
    .await;
    let second = |side: &Side| Side {
        client: side.client.clone(),
        namespace: format!("{}-second", side.namespace),
    };
    pair.agree("held", async |side| {
        let namespaces = Api::<Namespace>::all(side.client.clone());
        let namespace = namespaces.get(&second(side).namespace).await.unwrap();
        let status = masked(json!(namespace.status), &[]);
        json!({ "status": status, "objects": second(side).snapshot().await })
    })
    .await;
    pair.agree("a newcomer", async |side| {
        refusal(
            second(side).try_create::<Pod>(pod("late")).await,
            &second(side).namespace,
        )
    })
    .await;
    pair.both(async |side| {
        let second = second(side);
        second
            .patch::<ConfigMap>("held", json!({ "metadata": { "finalizers": null } }))
            .await;
        let namespaces = Api::<Namespace>::all(side.client.clone());
        eventually("the namespace to be gone", async || {
            let found = namespaces.get_opt(&second.namespace).await.unwrap();
            found.is_none().then_some(())
        })
        .await;
    })
    .await;
    pair.stop().await;
}

/// How a request was refused.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>, namespace: &str) -> Value {
    match result {
        Err(kube::Error::Api(status)) => {
            let text = json!(status).to_string().replace(namespace, "NAMESPACE");
            serde_json::from_str(&text).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Proves cluster/end-states.
#[tokio::test]
async fn workloads_that_do_not_select_their_own_pods() {
    let pair = rolled_out(1, json!({})).await;
    let strange = json!({ "selector": { "matchLabels": { "app": "other" } } });
    pair.agree("created so", async |side| {
        let mut deployment = web(1, &strange);
        deployment["metadata"]["name"] = json!("strange");
        let of_others = side.try_create::<Deployment>(deployment.clone()).await;
        deployment["spec"]["selector"] = json!({});
        let of_all = side.try_create::<Deployment>(deployment).await;
        let namespace = &side.namespace;
        json!([refusal(of_others, namespace), refusal(of_all, namespace)])
    })
    .await;
    pair.agree("changed so", async |side| {
        let patch = Patch::Merge(json!({ "spec": strange }));
        let changed = side
            .api::<Deployment>()
            .patch("web", &PatchParams::default(), &patch)
            .await;
        refusal(changed, &side.namespace)
    })
    .await;
    pair.are_alike("all as it was").await;
    pair.stop().await;
}
