//! Commits: checks that an object can be stored, and runs the [`Points`](crate::Points) around it.

use std::sync::Arc;

use super::Managers;
use crate::{
    api::{Api, ApiError},
    meta,
    points::Write,
    registry::Resource,
    schema::MAX_DEPTH,
    store::{Change, CollectionId, Content, Expect, Object, Refused},
};

/// etcd's default limit for a request, in bytes.
const MAX_REQUEST: usize = 3 * 512 * 1024;

/// The default limit of etcd's client for a message, in bytes.
const MAX_MESSAGE: usize = 2 * 1024 * 1024;

/// Why a commit failed.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// The stored object is not the expected one.
    Conflict,
    /// The object cannot be stored.
    Refused(ApiError),
}

impl From<Refused> for CommitError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Mismatch => Self::Conflict,
            Refused::NotServed => Self::Refused(ApiError::unknown_resource()),
        }
    }
}

impl Api {
    /// Commits a change if the stored object is the expected one and the new one can be stored.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        collection: CollectionId,
        key: &Arc<str>,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, CommitError> {
        if let Change::Put(content) = &change {
            check_storable(resource, content).map_err(CommitError::Refused)?;
        }
        let object = self.with_points(resource, key, change, |change| {
            self.store.commit(collection, key, expect, change)
        })?;
        self.remember_state(object.revision);
        Ok(object)
    }

    fn with_points(
        &self,
        resource: &Resource,
        key: &str,
        change: Change,
        commit: impl FnOnce(Change) -> Result<Arc<Object>, Refused>,
    ) -> Result<Arc<Object>, Refused> {
        if !self.points.is_set() {
            return commit(change);
        }
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, key),
        };
        let write = Write {
            group: &resource.group,
            resource: &resource.plural,
            namespace,
            name,
            removes: matches!(change, Change::Delete(_)),
        };
        self.points.run(|points| points.before_commit(&write));
        let object = commit(change)?;
        let revision = object.revision;
        self.points
            .run(|points| points.after_commit(&write, revision));
        Ok(object)
    }
}

/// Estimates the size of the value that kube-apiserver would send to etcd. It stores built-in kinds
/// as protobuf, which is smaller than the JSON counted here.
fn stored_size(resource: &Resource, content: &Content) -> usize {
    const METADATA: usize = "\"metadata\":{".len();
    resource.prefix.len() + METADATA + content.len()
}

/// Checks that an object can be decoded again and would fit into etcd.
fn check_storable(resource: &Resource, content: &Content) -> Result<(), ApiError> {
    if content.header.depth > MAX_DEPTH {
        return Err(ApiError::bad_request(format!(
            "the object nests too deeply to be stored: at most {MAX_DEPTH} levels are allowed, \
             those of metadata.managedFields included"
        )));
    }
    let size = stored_size(resource, content);
    if size > MAX_MESSAGE {
        return Err(ApiError::new(
            500,
            "",
            format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than \
                 max ({size} vs. {MAX_MESSAGE})"
            ),
        ));
    }
    if size > MAX_REQUEST {
        return Err(ApiError::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Drops the managed fields of an object that is too large, as kube-apiserver does before it gives
/// up. An apply keeps them, because it depends on them.
pub(super) fn drop_managers_if_too_large(
    resource: &Resource,
    content: Content,
    managers: Managers,
) -> Content {
    if managers != Managers::Record || stored_size(resource, &content) <= MAX_REQUEST {
        return content;
    }
    let mut object = content.decode(None);
    meta::metadata(&mut object).remove("managedFields");
    resource.encode(object)
}
