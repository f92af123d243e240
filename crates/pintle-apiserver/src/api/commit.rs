//! Commits of requests, with the points around them.

use std::sync::Arc;

use super::Api;
use crate::{
    points::Write,
    registry::Resource,
    store::{Change, Expect, Object, Refused, TableId},
};

impl Api {
    /// Writes for a request, if what is stored is what it believes.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        table: TableId,
        key: &Arc<str>,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, Refused> {
        if !self.points.is_set() {
            return self.store.commit(table, key, expect, change);
        }
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, &**key),
        };
        let write = Write {
            group: &resource.group,
            resource: &resource.plural,
            namespace,
            name,
            removes: matches!(change, Change::Delete(_)),
        };
        self.points.pass(|points| points.before_commit(&write));
        let object = self.store.commit(table, key, expect, change)?;
        let revision = object.revision;
        self.points
            .pass(|points| points.after_commit(&write, revision));
        Ok(object)
    }
}
