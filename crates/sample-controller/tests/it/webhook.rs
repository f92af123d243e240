//! The validating webhook.

use kube::{Api, Client, api::PostParams};
use pintle_apiserver::{ApiServer, WebhookTarget};
use sample_controller::{
    crd,
    foo::{Foo, FooSpec},
    webhook,
};
use serde_json::{Value, json};

async fn post(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
}

/// Proves sample/foo-compatible.
#[tokio::test(start_paused = true)]
async fn foo_without_a_deployment_name_is_denied() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = serde_json::to_value(crd::definition()).unwrap();
    post(&client, definitions, &definition).await;
    let target = WebhookTarget::service(webhook::server().handler());
    server.route_webhooks("default", "sample-controller", target);
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = json!({"metadata": {"name": "sample-controller"}, "webhooks": [{
        "name": "foos.samplecontroller.k8s.io", "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "sample-controller",
            "path": "/validate"}},
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["samplecontroller.k8s.io"],
            "apiVersions": ["*"], "resources": ["foos"]}]}]});
    post(&client, configurations, &configuration).await;
    let foos: Api<Foo> = Api::namespaced(client, "default");
    let named = |name: &str| {
        let spec = FooSpec {
            deployment_name: name.to_owned(),
            replicas: Some(1),
        };
        Foo::new("foo", spec)
    };
    let error = foos
        .create(&PostParams::default(), &named(""))
        .await
        .unwrap_err();
    let message = "admission webhook \"foos.samplecontroller.k8s.io\" denied the request: \
                   spec.deploymentName: Required value";
    assert!(error.to_string().contains(message), "{error}");
    foos.create(&PostParams::default(), &named("web"))
        .await
        .unwrap();
}
