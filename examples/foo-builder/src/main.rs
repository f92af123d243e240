//! The sample controller on the `Controller` builder, in a screenful: a Foo names a Deployment and a
//! number of replicas, and this makes it so. Status and events are left to the long form.
//!
//! ```sh
//! cargo run -p foo-builder
//! ```

#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Patch;
use pintle::{
    cache::{ObjectKey, OwnerRef},
    client::Target,
    controller::{Action, Context, Controller, Primary, ReconcileError},
    informer::InformerFactory,
    signals,
};
use pintle_cluster::Cluster;
use sample_controller::{deployment, foo::Foo, install};
use serde_json::json;

async fn reconcile(key: ObjectKey, cx: Context) -> Result<Action, ReconcileError> {
    let Primary::Live(cached) = cx.primary::<Foo>()? else {
        return Ok(Action::await_change()); // Gone or going; the garbage collector takes the rest.
    };
    let foo = cached.get()?;
    let name = ObjectKey::new(key.namespace(), &foo.spec.deployment_name);
    let Some(deployment) = cx.lister::<Deployment>()?.get(&name) else {
        cx.create(&deployment::for_foo(&foo)?).await?;
        println!("created Deployment {name} for Foo {key}");
        return Ok(Action::await_change());
    };
    let owner = deployment.controller_owner().map(OwnerRef::uid);
    if owner != Some(cached.uid()) {
        let message = format!("Deployment {name} belongs to another controller");
        return Err(ReconcileError::retry(message));
    }
    let has = deployment
        .get()?
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas);
    if foo.spec.replicas.is_some() && foo.spec.replicas != has {
        let patch = Patch::Merge(json!({ "spec": { "replicas": foo.spec.replicas } }));
        cx.patch::<Deployment, _>(&name, &patch).await?;
        println!(
            "scaled Deployment {name} from {has:?} to {:?}",
            foo.spec.replicas
        );
    }
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut cluster = None;
    let client = if let Some(target) = Target::named(None, None).await? {
        target.client("foo-builder/0.1")?
    } else {
        let client = cluster.insert(Cluster::start().await).client();
        install::crd(&client).await?;
        install::example(&client).await?;
        client
    };
    let shutdown = signals::shutdown_token()?;
    let informers = InformerFactory::new(client);
    Controller::<Foo>::new("foos", &informers)
        .owns::<Deployment>()
        .workers(2)
        .run(reconcile, &shutdown)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::{Api, api::PatchParams};
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_example_becomes_a_deployment_that_follows_its_foo() {
        let cluster = Cluster::start().await;
        let client = cluster.client();
        install::crd(&client).await.unwrap();
        install::example(&client).await.unwrap();
        let informers = InformerFactory::new(client.clone());
        tokio::spawn(async move {
            let shutdown = CancellationToken::new();
            let controller = Controller::<Foo>::new("foos", &informers).owns::<Deployment>();
            controller.run(reconcile, &shutdown).await
        });
        let replicas = async || {
            sleep(Duration::from_secs(10)).await;
            let deployments = Api::<Deployment>::namespaced(client.clone(), "default");
            let deployment = deployments.get("example-foo").await.unwrap();
            deployment.spec.and_then(|spec| spec.replicas)
        };
        assert_eq!(replicas().await, Some(1));

        let foos = Api::<Foo>::namespaced(client.clone(), "default");
        let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
        foos.patch("example-foo", &PatchParams::default(), &patch)
            .await
            .unwrap();
        assert_eq!(replicas().await, Some(3));
    }
}
