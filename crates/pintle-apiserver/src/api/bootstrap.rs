//! The objects every cluster has from the start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    kinds::services::NETWORK,
    request::{
        fields::{Source, prune},
        options::WriteOptions,
    },
};
use crate::{
    schema::builtin::seeds,
    store::{Change, Content, Expect},
};

impl Api {
    /// Creates the namespaces, the Service through which Pods find the server, and the objects that
    /// RBAC, the scheduler and discovery expect.
    pub(crate) fn bootstrap(&self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            self.seed("", "namespaces", None, json!({"metadata": {"name": name}}));
        }
        self.store_seeds();
        let [a, b] = NETWORK;
        let address = format!("{a}.{b}.0.1");
        let kubernetes = json!({
            "metadata": {
                "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": address,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
            },
        });
        self.seed("", "services", Some("default"), kubernetes);
        let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        let endpoints = json!({"metadata": {"name": "kubernetes", "labels": labels}});
        self.seed("", "endpoints", Some("default"), endpoints);
        let labels = json!({"kubernetes.io/service-name": "kubernetes"});
        let slice = json!({"metadata": {"name": "kubernetes", "labels": labels},
            "addressType": "IPv4", "endpoints": []});
        self.seed("discovery.k8s.io", "endpointslices", Some("default"), slice);
    }

    /// Rebuilds what the server derives from objects that it did not write itself: event expiry,
    /// webhooks and policies. The rest is read from the store on demand.
    pub(crate) fn adopt_stored(&self) {
        let catalog = self.registry.catalog();
        let policies = "admissionregistration.k8s.io";
        let versions = [
            ("events.k8s.io", "v1"),
            (policies, "v1"),
            (policies, "v1beta1"),
            (policies, "v1alpha1"),
        ];
        let resources = versions.map(|(group, version)| catalog.of_version(group, version));
        for resource in resources.into_iter().flatten() {
            let Some(Ok(stored)) = resource.collection.map(|it| self.store.snapshot(it)) else {
                continue;
            };
            for object in stored.objects.values() {
                resource.hooks.after_write(self, object);
            }
        }
    }

    fn seed(&self, group: &str, plural: &str, namespace: Option<&str>, object: Value) {
        let catalog = self.registry.catalog();
        let (Some(resource), Value::Object(mut object)) =
            (catalog.find(group, "v1", plural), object)
        else {
            return;
        };
        let options = WriteOptions {
            manager: "kube-apiserver".to_owned(),
            ..WriteOptions::default()
        };
        let created = prune(resource, &mut object, Source::CLEAN, &options)
            .and_then(|()| self.create_unasked(resource, namespace, object, &options));
        if let Err(error) = created {
            tracing::error!(
                ?error,
                plural,
                "failed to create a bootstrap object; continuing without it"
            );
        }
    }

    /// Stores the generated seeds, which are already encoded.
    fn store_seeds(&self) {
        let now = self.clock.stamp();
        for seed in seeds() {
            let (group, plural) = seed.resource;
            let Some(collection) = self.registry.builtin_collection(group, plural) else {
                continue;
            };
            let uid = self.rng.uuid();
            let labels = seed.labels();
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let rest = seed.content(&uid, &now);
            let content = Content::encoded(uid, labels.collect(), rest);
            let put = Change::Put(Arc::new(content));
            // The store is empty, so nothing can conflict.
            let _ = self
                .store
                .commit(collection, &seed.key.into(), Expect::Absent, put);
        }
    }
}

#[cfg(test)]
mod tests;
