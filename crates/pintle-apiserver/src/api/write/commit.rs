//! Commits of requests: the points around them, and the objects that cannot be committed.

use std::sync::Arc;

use crate::api::{Api, ApiError, write::managers::Mark};
use crate::{
    points::Write,
    registry::Resource,
    schema::MAX_DEPTH,
    store::{Change, CollectionId, Content, Expect, Object, Refused},
};

/// etcd's default limit for a request, in bytes.
const MOST_STORED: usize = 3 * 512 * 1024;

/// The default limit of etcd's client for a message, in bytes.
const MOST_SENT: usize = 2 * 1024 * 1024;

/// Why a write of a request did not happen.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The stored object is not the expected one.
    Mismatch,
    /// The object cannot be written at all.
    Refused(ApiError),
}

impl From<Refused> for Unwritten {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Mismatch => Self::Mismatch,
            Refused::NotServed => Self::Refused(ApiError::unknown_resource()),
        }
    }
}

impl Api {
    /// Commits a change if the stored object is the expected one and the new state can be stored.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        collection: CollectionId,
        key: &Arc<str>,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, Unwritten> {
        if let Change::Put(content) = &change {
            storable(resource, content).map_err(Unwritten::Refused)?;
        }
        let object = self.pass_points(resource, key, change, |change| {
            self.store.commit(collection, key, expect, change)
        })?;
        self.remember_state(object.revision);
        Ok(object)
    }

    fn pass_points(
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
        self.points.pass(|points| points.before_commit(&write));
        let object = commit(change)?;
        let revision = object.revision;
        self.points
            .pass(|points| points.after_commit(&write, revision));
        Ok(object)
    }
}

/// Approximates the size of the value that a kube-apiserver would send to etcd. Built-in kinds are
/// stored as protobuf there, which is smaller than the JSON counted here.
fn stored_size(resource: &Resource, content: &Content) -> usize {
    const METADATA: usize = "\"metadata\":{".len();
    resource.prefix.len() + METADATA + content.len()
}

/// Checks that an object can be decoded again and is small enough for etcd.
fn storable(resource: &Resource, content: &Content) -> Result<(), ApiError> {
    if content.header.depth > MAX_DEPTH {
        return Err(ApiError::bad_request(format!(
            "the object nests too deeply to be stored: at most {MAX_DEPTH} levels are allowed, \
             those of metadata.managedFields included"
        )));
    }
    let size = stored_size(resource, content);
    if size > MOST_SENT {
        return Err(ApiError::new(
            500,
            "",
            format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than \
                 max ({size} vs. {MOST_SENT})"
            ),
        ));
    }
    if size > MOST_STORED {
        return Err(ApiError::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Drops the managed fields of an object that is too large, as a kube-apiserver does before it gives
/// up. An apply keeps them, because it depends on them.
pub(crate) fn lighten(resource: &Resource, content: Content, mark: Mark) -> Content {
    if mark != Mark::Update || stored_size(resource, &content) <= MOST_STORED {
        return content;
    }
    let mut object = content.decode(None);
    crate::meta::metadata(&mut object).remove("managedFields");
    resource.encode(object)
}
