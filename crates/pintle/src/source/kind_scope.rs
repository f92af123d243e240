//! Whether a kind is namespaced or cluster-scoped.
//!
//! A Rust type states this as its [`Resource::Scope`]. A kind known only at run time does not: its
//! [`ApiResource`](kube::core::ApiResource) carries no scope, so the source asks the server's
//! discovery API before its first request.

use std::any::TypeId;

use http::Request;
use http_body_util::BodyExt;
use kube::{
    Resource,
    core::{ClusterResourceScope, DynamicResourceScope, request},
};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{ApiError, BodyError, SourceError, kube_source::KubeSource};

/// The largest `APIResourceList` that is accepted.
const DISCOVERY_LIMIT: usize = 4 * 1024 * 1024;

/// The scope of a kind, as far as its Rust type states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindScope {
    Namespaced,
    Cluster,
    /// Only the server knows.
    Dynamic,
}

impl KindScope {
    /// Returns the scope that the type `K` states.
    pub(crate) fn of<K: Resource<Scope: 'static>>() -> Self {
        let scope = TypeId::of::<K::Scope>();
        if scope == TypeId::of::<ClusterResourceScope>() {
            Self::Cluster
        } else if scope == TypeId::of::<DynamicResourceScope>() {
            Self::Dynamic
        } else {
            Self::Namespaced
        }
    }
}

/// Looks up the scope of a dynamic kind and caches the answer.
pub(super) struct ScopeLookup {
    /// The discovery path of the kind's group version: `/api/v1` or `/apis/apps/v1`.
    path: String,
    plural: String,
    /// For requests at cluster scope.
    pub(super) cluster: request::Request,
    namespaced: Mutex<Option<bool>>,
}

impl ScopeLookup {
    pub(super) fn new<K: Resource>(kind: &K::DynamicType) -> Self {
        let (group, version) = (K::group(kind), K::version(kind));
        Self {
            path: if group.is_empty() {
                format!("/api/{version}")
            } else {
                format!("/apis/{group}/{version}")
            },
            plural: K::plural(kind).into_owned(),
            cluster: request::Request::new(K::url_path(kind, None)),
            namespaced: Mutex::new(None),
        }
    }

    /// Returns whether the server has reported the kind as cluster-scoped.
    pub(super) fn found_cluster_scoped(&self) -> bool {
        *self.namespaced.lock() == Some(false)
    }

    /// Drops the cached answer: the kind is gone and may come back with another scope.
    pub(super) fn forget(&self) {
        *self.namespaced.lock() = None;
    }

    /// Returns whether the kind is namespaced, asking `source`'s server the first time.
    pub(super) async fn namespaced<K>(&self, source: &KubeSource<K>) -> Result<bool, SourceError> {
        if let Some(known) = *self.namespaced.lock() {
            return Ok(known);
        }
        let request = Request::get(&self.path).body(Vec::new());
        let request = request.map_err(|error| SourceError::Request(error.into()))?;
        let response = source.send(Ok(request), None).await?;
        let body = http_body_util::Limited::new(response.into_body(), DISCOVERY_LIMIT);
        let body = body.collect().await.map_err(SourceError::transport)?;
        let served: ApiResourceList =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| BodyError::Malformed {
                expected: "an APIResourceList",
                at: u64::try_from(error.column()).unwrap_or_default(),
            })?;
        let found = served.resources.iter().find(|one| one.name == self.plural);
        let Some(found) = found else {
            let message = format!("{} does not list {}", self.path, self.plural);
            return Err(ApiError::new(404, "NotFound", message).into());
        };
        *self.namespaced.lock() = Some(found.namespaced);
        Ok(found.namespaced)
    }
}

/// The part of an `APIResourceList` that is read here.
#[derive(Deserialize)]
struct ApiResourceList {
    resources: Vec<ApiResourceEntry>,
}

#[derive(Deserialize)]
struct ApiResourceEntry {
    name: String,
    namespaced: bool,
}
