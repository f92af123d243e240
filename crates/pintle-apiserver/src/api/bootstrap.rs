//! What every cluster has from the start.

use serde_json::{Value, json};

use super::{
    Api,
    managers::Mark,
    options::WriteOptions,
    prune::{Source, prune},
};

impl Api {
    /// Fills a fresh server: its namespaces, and the service by which pods find it.
    pub(crate) fn bootstrap(&self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            self.seed("namespaces", None, json!({"metadata": {"name": name}}));
        }
        let kubernetes = json!({
            "metadata": {
                "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": "10.96.0.1",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
            },
        });
        self.seed("services", Some("default"), kubernetes);
    }

    fn seed(&self, plural: &str, namespace: Option<&str>, object: Value) {
        let catalog = self.registry.catalog();
        let (Some(resource), Value::Object(mut object)) = (catalog.find("", "v1", plural), object)
        else {
            return;
        };
        let options = WriteOptions {
            manager: "kube-apiserver".to_owned(),
            ..WriteOptions::default()
        };
        let made = prune(resource, &mut object, Source::CLEAN, &options)
            .and_then(|()| self.create_object(resource, namespace, object, &options, Mark::Update));
        if let Err(error) = made {
            tracing::error!(?error, plural, "cannot create what every cluster has");
        }
    }
}
