//! Webhooks of the library, called by the embedded API server.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, ObjectMeta, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use pintle::{
    manager::Manager,
    metrics::Metrics,
    webhook::{Admission, Certificates, Denied, Injection, WebhookServer},
};
use pintle_apiserver::{ApiServer, WebhookTarget};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

async fn check(admission: Admission<ConfigMap>) -> Result<(), Denied> {
    let data = admission.object.clone().and_then(|map| map.data);
    let data = data.unwrap_or_default();
    assert!(!data.contains_key("panic"), "asked to");
    if data.contains_key("password") {
        return Err(Denied::invalid("passwords belong in a Secret"));
    }
    if data.is_empty() {
        admission.warn("the map is empty");
    }
    Ok(())
}

async fn label(mut map: ConfigMap, admission: Admission<ConfigMap>) -> Result<ConfigMap, Denied> {
    let labels = map.metadata.labels.get_or_insert_default();
    labels.insert("by".to_owned(), admission.user);
    Ok(map)
}

fn webhooks() -> WebhookServer {
    WebhookServer::new()
        .validate("/validate", check)
        .mutate("/mutate", label)
}

fn map(name: &str, key: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(key.to_owned(), "x".to_owned())])),
        ..ConfigMap::default()
    }
}

/// Creates a configuration of the kind for creates of config maps.
async fn configure(client: &Client, kind: &str, client_config: &Value) {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let name = format!("{}.example.com", kind.to_lowercase());
    let configuration = json!({"metadata": {"name": "shop"}, "webhooks": [{
        "name": name, "clientConfig": client_config, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]}]});
    let configuration = serde_json::from_value(configuration).unwrap();
    api.create(&PostParams::default(), &configuration)
        .await
        .unwrap();
}

async fn create(client: &Client, map: &ConfigMap) -> Result<ConfigMap, kube::core::Status> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    match api.create(&PostParams::default(), map).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{error}"),
    }
}

/// Proves webhook/in-process.
#[tokio::test(start_paused = true)]
async fn webhooks_answer_the_api_server_in_process() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let metrics = Metrics::new();
    let handler = webhooks().metrics(&metrics).handler();
    server.route_webhooks("shop", "webhooks", WebhookTarget::service(handler));
    let service =
        |path: &str| json!({"service": {"namespace": "shop", "name": "webhooks", "path": path}});
    configure(&client, "MutatingWebhookConfiguration", &service("/mutate")).await;
    configure(
        &client,
        "ValidatingWebhookConfiguration",
        &service("/validate"),
    )
    .await;

    let created = create(&client, &map("good", "k")).await.unwrap();
    assert_eq!(created.metadata.labels.unwrap()["by"], "kubernetes-admin");
    let status = create(&client, &map("bad", "password")).await.unwrap_err();
    assert_eq!(status.code, 422);
    assert_eq!(
        status.message,
        "admission webhook \"validatingwebhookconfiguration.example.com\" denied the request: \
         passwords belong in a Secret"
    );
    let status = create(&client, &map("ugly", "panic")).await.unwrap_err();
    assert_eq!(status.code, 500);
    assert!(
        status.message.contains("the webhook panicked"),
        "{}",
        status.message
    );
    let text = metrics.encode();
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"200\"} 2",
        "controller_runtime_webhook_requests_total{webhook=\"/validate\",code=\"500\"} 1",
        "controller_runtime_webhook_panics_total 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// Proves webhook/conversion.
#[tokio::test(start_paused = true)]
async fn converter_serves_every_version_of_a_crd() {
    let server = ApiServer::builder().build();
    let client = server.client();
    let converting =
        WebhookServer::new().convert("/convert", |mut object: Value, to: String| async move {
            let spec = object["spec"].take();
            object["spec"] = if to == "example.com/v2" {
                json!({"text": spec["count"].to_string()})
            } else {
                let text = spec["text"].as_str().unwrap_or_default();
                json!({"count": text.parse::<i64>().map_err(|_| format!("not a number: {text}"))?})
            };
            object["apiVersion"] = to.into();
            Ok(object)
        });
    server.route_webhooks(
        "shop",
        "webhooks",
        WebhookTarget::service(converting.handler()),
    );
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true,
        "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1", true), version("v2", false)],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "shop", "name": "webhooks",
                "path": "/convert"}}}}}});
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let definition = serde_json::from_value(definition).unwrap();
    api.create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let things = |version: &str| {
        let gvk = GroupVersionKind::gvk("example.com", version, "Thing");
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&gvk))
    };
    let thing = |version: &str, spec: Value| -> DynamicObject {
        let api_version = format!("example.com/{version}");
        serde_json::from_value(json!({"apiVersion": api_version, "kind": "Thing",
            "metadata": {"name": "one"}, "spec": spec}))
        .unwrap()
    };
    let new = thing("v2", json!({"text": "7"}));
    let created = things("v2").create(&PostParams::default(), &new).await;
    assert_eq!(created.unwrap().data["spec"], json!({"text": "7"}));
    assert_eq!(
        things("v1").get("one").await.unwrap().data["spec"],
        json!({"count": 7})
    );
    let mut bad = thing("v2", json!({"text": "seven"}));
    bad.metadata.name = Some("two".to_owned());
    let error = things("v2")
        .create(&PostParams::default(), &bad)
        .await
        .unwrap_err();
    let message = "conversion webhook for example.com/v2, Kind=Thing failed: not a number: seven";
    assert!(error.to_string().contains(message), "{error}");
}

/// Proves webhook/tls.
#[tokio::test]
async fn manager_serves_webhooks_on_tls_and_injects_its_authority() {
    let server = ApiServer::builder().build();
    let client = server.client();
    // A port that is free now; the configuration must name it before the server starts.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = json!({"url": format!("https://{address}/validate")});
    configure(&client, "ValidatingWebhookConfiguration", &url).await;
    let status = create(&client, &map("early", "k")).await.unwrap_err();
    assert!(
        status.message.contains("connection refused"),
        "{}",
        status.message
    );

    let certificates = Certificates::self_signed(["127.0.0.1"]).unwrap();
    let certificates = certificates.inject(Injection::validating("shop"));
    let mut manager = Manager::builder("shop", client.clone()).build();
    manager.add(webhooks().component("webhooks", address.to_string(), certificates));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { manager.run_until(&shutdown).await }
    });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let status = loop {
        let status = create(&client, &map("bad", "password")).await.unwrap_err();
        if status.code == 422 || tokio::time::Instant::now() > deadline {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(status.code, 422, "{}", status.message);
    create(&client, &map("good", "k")).await.unwrap();
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
