//! Builds the server that each scenario copies, so that CRDs, namespaces and given objects are
//! installed once per check.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, User};
use pintle_clock::Clock;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tower::ServiceExt;

use super::Setup;
use crate::{hub::START, story::Desired};

/// Seed for the UIDs of prepared objects; scenarios use `1 + plan.seed`.
const SEED: u64 = 0x5eed;

impl Setup {
    /// Returns the prepared server, which the first call builds.
    ///
    /// # Panics
    ///
    /// Panics if the first call is made on a Tokio runtime.
    pub(crate) fn prepared(&self) -> Result<&ApiServer, &String> {
        let prepare = || {
            let runtime = Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .map_err(|error| format!("cannot start a runtime: {error}"))?;
            runtime.block_on(self.prepare())
        };
        self.prepared.get_or_init(prepare).as_ref()
    }

    async fn prepare(&self) -> Result<ApiServer, String> {
        let server = ApiServer::builder()
            .clock(Clock::from_fn(|| START.parse().unwrap_or_default()))
            .seed(SEED)
            .build();
        for crd in &self.crds {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let name = &crd["metadata"]["name"];
            let why = |why| format!("cannot install the CRD {name}: {why}");
            create(&server, path, crd).await.map_err(why)?;
        }
        for name in &self.namespaces {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            });
            let why = |why| format!("cannot create the namespace {name}: {why}");
            let created = create(&server, "/api/v1/namespaces", &namespace).await;
            created.map_err(why)?;
        }
        for object in &self.given {
            let path = object.kind.path(&object.namespace);
            let why = |why| format!("cannot create {}: {why}", object.title());
            create(&server, &path, &object.value).await.map_err(why)?;
        }
        Ok(server)
    }
}

async fn create(server: &ApiServer, path: &str, object: &Value) -> Result<(), String> {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(object.to_string())))
        .map_err(|error| error.to_string())?;
    let Ok(response) = server.service_as(User::admin()).oneshot(request).await;
    if response.status().is_success() {
        return Ok(());
    }
    let Ok(body) = response.into_body().collect().await;
    let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    Err(status["message"].as_str().unwrap_or_default().to_owned())
}

/// Returns the namespaces of objects, except `default`.
pub(crate) fn namespaces<'a>(objects: impl Iterator<Item = &'a Desired>) -> Vec<String> {
    objects
        .filter(|object| object.kind.namespaced && object.namespace != "default")
        .map(|object| object.namespace.clone())
        .collect()
}
