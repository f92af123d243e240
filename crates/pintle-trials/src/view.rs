//! The state of the cluster, as predicates see it.

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::{canonical::Snapshot, gateway::request::ResourceName};

/// The state of the cluster at one moment: all objects of the kinds that anything has written.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(pub(crate) &'a Snapshot);

impl View<'_> {
    /// Returns all objects of a kind.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn my_controller(client: kube::Client) {}
    /// pintle_trials::check(|cx| my_controller(cx.client()))
    ///     .always("at most three Pods", |view| view.list::<Pod>().len() <= 3);
    /// ```
    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ResourceName {
            group: K::group(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        };
        let list = self.0.lists.get(&resource);
        let objects = list.into_iter().flat_map(|list| list.iter());
        objects
            .filter_map(|object| serde_json::from_value(object.clone()).ok())
            .collect()
    }

    /// Returns an object with this name, from any namespace.
    pub fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let mut all = self.list::<K>();
        all.retain(|object| object.meta().name.as_deref() == Some(name));
        all.pop()
    }
}
