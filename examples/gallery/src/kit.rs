//! Code shared by the controllers of the gallery: a custom resource, and a controller around a
//! reconcile function.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::{
    Api, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use pintle::{
    controller::{Action, Context, Controller, ReconcileError},
    informer::InformerFactory,
};
use pintle_trials::{Cx, External};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The field manager of every write.
pub const MANAGER: &str = "shop";

/// The result of the reconcile functions.
pub type Outcome = Result<Action, ReconcileError>;

/// The desired state.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "gallery.example.com",
    version = "v1",
    kind = "Shop",
    namespaced
)]
#[kube(status = "ShopStatus")]
#[serde(rename_all = "camelCase")]
pub struct ShopSpec {
    /// The text of the page.
    pub page: String,
    /// The number of children, for controllers that have several.
    #[schemars(range(min = 0, max = 5))]
    pub replicas: i32,
    /// Labels of the children.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShopStatus {
    /// The phase of the current operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When the controller checked the shop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// The generation that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The external resource of the shop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Returns the shop that the tests create.
pub fn shop() -> Shop {
    let spec = ShopSpec {
        page: "hello".to_owned(),
        replicas: 2,
        labels: BTreeMap::new(),
    };
    Shop::new("shop", spec)
}

/// Returns a controller that watches shops and the `ConfigMap`s, Services and Pods they own.
pub fn controller(cx: &Cx) -> Controller<Shop> {
    watching(cx).owns::<ConfigMap>()
}

/// Returns a controller that does not watch `ConfigMap`s.
pub fn watching(cx: &Cx) -> Controller<Shop> {
    let informers = InformerFactory::new(cx.client()).rng(cx.rng());
    Controller::<Shop>::new(MANAGER, &informers)
        .clock(cx.clock())
        .owns::<Service>()
        .owns::<Pod>()
}

/// Runs a reconcile function.
pub async fn run<F, R>(cx: Cx, reconcile: F)
where
    F: Fn(Arc<Shop>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let _ = controller(&cx).run(reconcile, cx.shutdown()).await;
}

/// Runs a reconcile function with an external service. Shops that are being deleted are reconciled
/// as well.
pub async fn run_external<F, R>(cx: Cx, service: &str, reconcile: F)
where
    F: Fn(Arc<Shop>, Context<External>) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let external = cx.external(service);
    let controller = controller(&cx).state(external).reconcile_deleting();
    let _ = controller.run(reconcile, cx.shutdown()).await;
}

/// A context with a client.
pub trait HasClient {
    /// Returns the client.
    fn api_client(&self) -> kube::Client;
}

impl<S> HasClient for Context<S> {
    fn api_client(&self) -> kube::Client {
        self.client().clone()
    }
}

/// Returns the API of a kind in the shop's namespace.
pub fn api<K>(shop: &Shop, cx: &impl HasClient) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(cx.api_client(), &shop.namespace().unwrap_or_default())
}

/// Returns a child of the shop.
pub fn child(shop: &Shop, kind: &str, name: &str, rest: Value) -> Value {
    let mut child = json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": { "name": name, "ownerReferences": [shop.controller_owner_ref(&())] },
    });
    if let (Some(child), Value::Object(rest)) = (child.as_object_mut(), rest) {
        child.extend(rest);
    }
    child
}

/// Returns a `ConfigMap` with the page.
pub fn page(shop: &Shop) -> Value {
    child(
        shop,
        "ConfigMap",
        &shop.name_any(),
        json!({ "data": { "page": shop.spec.page } }),
    )
}

/// Applies a child with force.
pub async fn apply<K>(shop: &Shop, cx: &impl HasClient, child: &Value) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let name = child["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    api::<K>(shop, cx)
        .patch(name, &params, &Patch::Apply(child))
        .await
}

/// Sets fields of the status.
pub async fn set_status(
    shop: &Shop,
    cx: &impl HasClient,
    status: Value,
) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "status": status }));
    let shops = api::<Shop>(shop, cx);
    shops
        .patch_status(&shop.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Sets the finalizers.
pub async fn set_finalizers<T: Serialize + Sync>(
    shop: &Shop,
    cx: &impl HasClient,
    names: &[T],
) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({ "metadata": {
        "finalizers": names, "resourceVersion": shop.resource_version(),
    }}));
    let shops = api::<Shop>(shop, cx);
    shops
        .patch(&shop.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
