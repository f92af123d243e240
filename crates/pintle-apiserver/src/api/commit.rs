//! Commits of requests, with the points around them, and what cannot be committed.

use std::sync::Arc;

use super::{Api, error::ApiError, managers::Mark};
use crate::{
    points::Write,
    registry::Resource,
    schema::MAX_DEPTH,
    store::{Change, Content, Expect, Object, Refused, TableId},
};

/// The largest object that etcd takes by default, in bytes.
const MOST_STORED: usize = 3 * 512 * 1024;

/// The largest message that a client of etcd sends by default, in bytes.
const MOST_SENT: usize = 2 * 1024 * 1024;

/// Why a write of a request did not happen.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The object is another one than the writer believed, or none.
    Mismatch,
    /// It cannot be written at all.
    Refused(ApiError),
}

impl From<Refused> for Unwritten {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Mismatch => Self::Mismatch,
            Refused::NoTable => Self::Refused(ApiError::unknown_resource()),
        }
    }
}

impl Api {
    /// Writes for a request, if what is stored is what it believes and the new state can be kept.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        table: TableId,
        key: &Arc<str>,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, Unwritten> {
        if let Change::Put(content) = &change {
            storable(resource, content).map_err(Unwritten::Refused)?;
        }
        let object = self.pass_points(resource, key, change, |change| {
            self.store.commit(table, key, expect, change)
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

/// How many bytes a Kubernetes API server would hand to etcd. It stores built-in kinds in protobuf,
/// which is shorter than the JSON that is counted here.
fn stored_size(resource: &Resource, content: &Content) -> usize {
    const METADATA: usize = "\"metadata\":{".len();
    resource.prefix.len() + METADATA + content.len()
}

/// Whether an object can be kept: it must be readable again, and small enough for etcd.
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

/// An object that only its managers make too large is stored without them, unless it is applied:
/// then they are what the request is about.
pub(crate) fn lighten(resource: &Resource, content: Content, mark: Mark) -> Content {
    if mark != Mark::Update || stored_size(resource, &content) <= MOST_STORED {
        return content;
    }
    let mut object = content.decode(None);
    crate::meta::metadata(&mut object).remove("managedFields");
    resource.encode(object)
}
