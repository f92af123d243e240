//! Looks up the scales of Pods' controllers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Client, core::ApiResource};
use parking_lot::Mutex;
use pintle::{cache::ObjectKey, controller::ReconcileError};
use serde_json::Value;

use super::plan::{Failure, Scale, Scales};
use crate::{discovery, loops::Environment, meta};

/// The discovered namespaced kinds, by group and kind.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<BTreeMap<(String, String), ApiResource>>);

impl Kinds {
    fn of(&self, owner: &OwnerReference) -> Option<ApiResource> {
        let key = (group(owner).to_owned(), owner.kind.clone());
        self.0.lock().get(&key).cloned()
    }
}

/// Returns the scales of the existing controllers of these Pods.
///
/// `ReplicaSet`s and Deployments are read from the cache. Other kinds, including custom resources,
/// are read through their scale subresource.
pub(super) async fn scales(
    environment: &Environment,
    kinds: &Kinds,
    namespace: &str,
    pods: &[Arc<Pod>],
) -> Result<Result<Scales, Failure>, ReconcileError> {
    let mut scales = Scales::new();
    let mut seen = BTreeSet::new();
    let mut lookup = Lookup {
        client: &environment.client,
        namespace,
        kinds,
        is_fresh: false,
    };
    for pod in pods {
        let Some(owner) = meta::controller_of(&pod.metadata) else {
            continue;
        };
        if !seen.insert(&owner.uid) {
            continue;
        }
        let scale = match cached(environment, namespace, owner)? {
            Some(scale) => Some(scale),
            None => match lookup.scale(owner).await? {
                Ok(scale) => scale,
                Err(failure) => return Ok(Err(failure)),
            },
        };
        if let Some(scale) = scale {
            scales.insert(owner.uid.clone(), scale);
        }
    }
    Ok(Ok(scales))
}

fn group(owner: &OwnerReference) -> &str {
    owner
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group)
}

/// Returns the scale of a `ReplicaSet` or of the Deployment that controls it.
fn cached(
    environment: &Environment,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<Scale>, ReconcileError> {
    let is = |owner: &OwnerReference, kind: &str| owner.kind == kind && group(owner) == "apps";
    if !is(owner, "ReplicaSet") {
        return Ok(None);
    }
    let informers = &environment.informers;
    let key = |owner: &OwnerReference| ObjectKey::namespaced(namespace, &owner.name);
    let set = informers.informer::<ReplicaSet>().lister().get(&key(owner));
    let Some(set) = set.filter(|set| set.uid() == owner.uid) else {
        return Ok(None);
    };
    let set = set.get()?;
    let scale = |uid: &str, replicas: Option<i32>| Scale {
        uid: uid.to_owned(),
        replicas: replicas.unwrap_or(1),
    };
    let replicas = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas);
    let Some(owner) = meta::controller_of(&set.metadata) else {
        return Ok(Some(scale(meta::uid(&set.metadata), replicas(&set))));
    };
    if !is(owner, "Deployment") {
        return Ok(Some(scale(meta::uid(&set.metadata), replicas(&set))));
    }
    let deployment = informers.informer::<Deployment>().lister().get(&key(owner));
    let Some(deployment) = deployment.filter(|deployment| deployment.uid() == owner.uid) else {
        return Ok(None);
    };
    let deployment = deployment.get()?;
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    Ok(Some(scale(&owner.uid, replicas)))
}

/// Reads scales from the server, with at most one discovery.
struct Lookup<'a> {
    client: &'a Client,
    namespace: &'a str,
    kinds: &'a Kinds,
    is_fresh: bool,
}

impl Lookup<'_> {
    async fn scale(
        &mut self,
        owner: &OwnerReference,
    ) -> Result<Result<Option<Scale>, Failure>, kube::Error> {
        let known = self.kinds.of(owner);
        if let Some(kind) = &known {
            let scale = subresource(self.client, self.namespace, owner, kind).await?;
            if self.is_fresh || matches!(scale, Ok(Some(_))) {
                return Ok(scale);
            }
            // The kind may be served differently by now.
            self.discover().await?;
            if self.kinds.of(owner) == known {
                return Ok(scale);
            }
        } else if !self.is_fresh {
            self.discover().await?;
        }
        let Some(kind) = self.kinds.of(owner) else {
            let message = format!(
                "no matches for kind {:?} in version {:?}",
                owner.kind, owner.api_version
            );
            return Ok(Err(Failure::Scale(message)));
        };
        subresource(self.client, self.namespace, owner, &kind).await
    }

    async fn discover(&mut self) -> Result<(), kube::Error> {
        let kinds = discovery::kinds(self.client).await?.into_iter();
        let kinds = kinds.filter(|kind| kind.namespaced).map(|kind| {
            let kind = kind.resource;
            ((kind.group.clone(), kind.kind.clone()), kind)
        });
        *self.kinds.0.lock() = kinds.collect();
        self.is_fresh = true;
        Ok(())
    }
}

/// Reads the scale subresource.
async fn subresource(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
    kind: &ApiResource,
) -> Result<Result<Option<Scale>, Failure>, kube::Error> {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let object = format!(
        "/{root}/{}/namespaces/{namespace}/{}/{}",
        kind.api_version, kind.plural, owner.name
    );
    if let Some(scale) = get(client, &format!("{object}/scale")).await? {
        let is_owner = scale["metadata"]["uid"] == *owner.uid;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        return Ok(Ok(is_owner.then(|| Scale {
            uid: owner.uid.clone(),
            replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        })));
    }
    if get(client, &object).await?.is_none() {
        return Ok(Ok(None));
    }
    let resource = match &*kind.group {
        "" => kind.plural.clone(),
        group => format!("{}.{group}", kind.plural),
    };
    let message = format!("{resource} does not implement the scale subresource");
    Ok(Err(Failure::Scale(message)))
}

async fn get(client: &Client, path: &str) -> Result<Option<Value>, kube::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Ok(value) => Ok(Some(value)),
        // Compare the code, because a version that is not served yields a 404 without a `Status`.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
