//! What the program puts on a cluster when asked to: the CRD, and the example.

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};

use crate::{crd, foo::Foo};

/// The example that every introduction applies first.
pub const EXAMPLE: &str = include_str!("../artifacts/example-foo.yaml");

/// Installs the Foo CRD unless it is there. One that is there is left as it is.
pub async fn crd(client: &Client) -> anyhow::Result<()> {
    create(
        &Api::<CustomResourceDefinition>::all(client.clone()),
        &crd::definition(false),
    )
    .await
}

/// Applies `example-foo` to the namespace `default` unless it is there.
pub async fn example(client: &Client) -> anyhow::Result<()> {
    let foo: Foo = serde_saphyr::from_str(EXAMPLE).context("reading the example")?;
    create(&Api::namespaced(client.clone(), "default"), &foo).await
}

async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
