//! Writes a CA bundle into the configurations that refer to a webhook server.

use std::fmt;

use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};

/// A configuration that gets the CA bundle of a self-signed certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    path: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Webhooks,
    Conversion,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl Injection {
    fn webhooks(plural: &str, name: &str) -> Self {
        Self {
            path: format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}"),
            kind: Kind::Webhooks,
        }
    }

    /// Names a `ValidatingWebhookConfiguration`, all of whose webhooks get the bundle.
    pub fn validating(name: &str) -> Self {
        Self::webhooks("validatingwebhookconfigurations", name)
    }

    /// Names a `MutatingWebhookConfiguration`, all of whose webhooks get the bundle.
    pub fn mutating(name: &str) -> Self {
        Self::webhooks("mutatingwebhookconfigurations", name)
    }

    /// Names a `CustomResourceDefinition` whose conversion webhook gets the bundle.
    pub fn definition(name: &str) -> Self {
        Self {
            path: format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
            kind: Kind::Conversion,
        }
    }

    /// Writes the bundle, in base64, wherever it is missing or another one is present.
    ///
    /// # Errors
    ///
    /// Fails if the configuration does not exist, or changes at the same time; the caller tries
    /// again.
    pub(super) async fn apply(&self, client: &Client, bundle: &str) -> Result<(), kube::Error> {
        let request = Request::get(&self.path).body(Vec::new());
        let current: Value = client
            .request(request.map_err(kube::Error::HttpError)?)
            .await?;
        let places: Vec<String> = match self.kind {
            Kind::Webhooks => {
                let count = current["webhooks"].as_array().map_or(0, Vec::len);
                let place = |i| format!("/webhooks/{i}/clientConfig/caBundle");
                (0..count).map(place).collect()
            }
            Kind::Conversion => vec!["/spec/conversion/webhook/clientConfig/caBundle".to_owned()],
        };
        let missing = places.iter().filter(|place| {
            let found = current.pointer(place).and_then(Value::as_str);
            found != Some(bundle)
        });
        let mut operations: Vec<Value> = missing
            .map(|place| json!({"op": "add", "path": place, "value": bundle}))
            .collect();
        if operations.is_empty() {
            return Ok(());
        }
        // Webhooks are addressed by index, which another client may change in the meantime.
        let version = &current["metadata"]["resourceVersion"];
        let unchanged =
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        operations.insert(0, unchanged);
        let request = Request::patch(&self.path)
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(Value::from(operations).to_string().into_bytes());
        let request = request.map_err(kube::Error::HttpError)?;
        client.request::<Value>(request).await.map(drop)
    }
}
