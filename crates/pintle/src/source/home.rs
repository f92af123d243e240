//! Where the objects of a kind live: in namespaces, or in the cluster as a whole.
//!
//! A Rust type usually says so by its [`Resource::Scope`]. A kind known only at run time does not:
//! its [`ApiResource`](kube::core::ApiResource) has no scope, so the server's discovery is asked.

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

/// How large the list of a group's resources may be.
const DISCOVERY_LIMIT: usize = 4 * 1024 * 1024;

/// Where the objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Namespaces,
    Cluster,
    /// Only the server knows.
    Unknown,
}

impl Home {
    /// What the type of a kind says.
    pub(crate) fn of<K: Resource<Scope: 'static>>() -> Self {
        let scope = TypeId::of::<K::Scope>();
        if scope == TypeId::of::<ClusterResourceScope>() {
            Self::Cluster
        } else if scope == TypeId::of::<DynamicResourceScope>() {
            Self::Unknown
        } else {
            Self::Namespaces
        }
    }
}

/// The scope of a kind that is looked up before the first request.
pub(super) struct Lookup {
    /// The kind's place in discovery: `/api/v1` or `/apis/apps/v1`.
    path: String,
    plural: String,
    /// For requests at cluster scope.
    pub(super) cluster: request::Request,
    namespaced: Mutex<Option<bool>>,
}

impl Lookup {
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

    /// Whether the server said that the kind lives in no namespace.
    pub(super) fn found_cluster_scoped(&self) -> bool {
        *self.namespaced.lock() == Some(false)
    }

    /// Asks again next time: the kind is not there, and may come back in another scope.
    pub(super) fn forget(&self) {
        *self.namespaced.lock() = None;
    }

    /// Whether the kind lives in namespaces. Asks `source`'s server the first time.
    pub(super) async fn namespaced<K>(&self, source: &KubeSource<K>) -> Result<bool, SourceError> {
        if let Some(known) = *self.namespaced.lock() {
            return Ok(known);
        }
        let request = Request::get(&self.path).body(Vec::new());
        let request = request.map_err(|error| SourceError::Request(error.into()))?;
        let response = source.send(Ok(request), None).await?;
        let body = http_body_util::Limited::new(response.into_body(), DISCOVERY_LIMIT);
        let body = body.collect().await.map_err(SourceError::transport)?;
        let served: Resources =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| BodyError::Malformed {
                expected: "a list of resources",
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

/// The part of an `APIResourceList` that matters here.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    namespaced: bool,
}
