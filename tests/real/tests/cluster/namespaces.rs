//! The initial contents of a namespace, and its deletion.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod, ServiceAccount},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use real_tests::eventually;
use serde_json::{from_value, json};

use super::{
    garbage::map,
    mask::masked,
    pair::{Pair, Side},
    pod, rejection, web,
};

/// Creates another namespace.
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
async fn new_namespace_gets_its_initial_objects() {
    let pair = Pair::start().await;
    pair.agree("initial objects", async |side| {
        let maps = side.list::<ConfigMap>().await;
        let mut maps = masked(json!(maps), &[]);
        for map in maps.as_array_mut().unwrap() {
            map["data"]["ca.crt"] = json!("PEM");
            map["metadata"]["annotations"]["kubernetes.io/description"] = json!("TEXT");
        }
        json!({ "accounts": masked(json!(side.list::<ServiceAccount>().await), &[]), "maps": maps })
    })
    .await;
    pair.stop().await;
}

/// Proves namespaces/emptied.
#[tokio::test]
async fn deleted_namespace_waits_for_finalizers() {
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
    pair.agree("terminating", async |side| {
        let namespaces = Api::<Namespace>::all(side.client.clone());
        let namespace = namespaces.get(&second(side).namespace).await.unwrap();
        let status = masked(json!(namespace.status), &[]);
        json!({ "status": status, "objects": second(side).snapshot().await })
    })
    .await;
    pair.agree("creation in it", async |side| {
        rejection(
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
