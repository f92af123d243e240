//! Installs the CRD and the example Foo.

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};

use crate::{crd, foo::Foo};

/// The example Foo, as YAML.
pub const EXAMPLE: &str = include_str!("../artifacts/example-foo.yaml");

/// Creates the Foo CRD. An existing one is left unchanged.
///
/// # Errors
///
/// Fails if the API server rejects the request or cannot be reached.
pub async fn crd(client: &Client) -> anyhow::Result<()> {
    create(
        &Api::<CustomResourceDefinition>::all(client.clone()),
        &crd::definition(),
    )
    .await
}

/// Creates `example-foo` in the namespace `default`. An existing one is left unchanged.
///
/// # Errors
///
/// Fails if the API server rejects the request or cannot be reached.
pub async fn example(client: &Client) -> anyhow::Result<()> {
    let foo: Foo = serde_saphyr::from_str(EXAMPLE).context("parsing the example failed")?;
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
