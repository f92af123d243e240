//! Requests built by hand and untyped JSON, as in a port of a script. The bug: PUT requests without
//! a `resourceVersion` overwrite other clients' changes (infinispan/infinispan-operator#2166).

use std::time::Duration;

use http::Request;
use kube::{Client, CustomResource};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Page",
    namespaced
)]
pub(crate) struct PageSpec {
    title: String,
    #[serde(default)]
    draft: bool,
}

async fn call(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    client.request::<Value>(request).await
}

async fn round(client: &Client, broken: bool) -> Result<(), kube::Error> {
    let maps = "/api/v1/namespaces/default/configmaps";
    let all = "/apis/stranger.example.com/v1/pages";
    let pages = call(client, "GET", all, &Value::Null).await?;
    for page in pages["items"].as_array().into_iter().flatten() {
        let name = page["metadata"]["name"].as_str().unwrap_or_default();
        let text = if page["spec"]["draft"] == true {
            "draft"
        } else {
            "final"
        };
        let data = json!({"title": page["spec"]["title"], "state": text});
        let path = format!("{maps}/{name}");
        match call(client, "GET", &path, &Value::Null).await {
            Ok(mut map) if map["data"] != data => {
                map["data"] = data;
                if broken {
                    map["metadata"] = json!({"name": name,
                        "ownerReferences": map["metadata"]["ownerReferences"]});
                }
                call(client, "PUT", &path, &map).await?;
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let owner = json!([{"apiVersion": "stranger.example.com/v1", "kind": "Page",
                    "name": name, "uid": page["metadata"]["uid"], "controller": true}]);
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "ownerReferences": owner}, "data": data});
                call(client, "POST", maps, &map).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    loop {
        let _ = round(&client, broken).await;
        sleep(Duration::from_secs(10)).await;
    }
}

fn page() -> Page {
    let spec = PageSpec {
        title: "Hello".to_owned(),
        draft: false,
    };
    Page::new("home", spec)
}

super::twins!(controller, page(), NoLostUpdate);
