//! Defaults that custom resources get when they are read.
//!
//! The storage version of a CRD may have gained defaults after an object was stored. Upstream
//! applies them when it decodes the object, and so does this server.

use std::sync::Arc;

use serde_json::Value;

use super::fingerprint;
use crate::{meta::Tree, schema::structural::Structural};

/// The defaults of a CRD's storage version.
#[derive(Debug)]
pub(crate) struct StorageDefaults {
    schema: Structural,
    /// Identifies the schema; never 0.
    pub(crate) fingerprint: u64,
}

impl StorageDefaults {
    /// Returns `None` if the version has no defaults.
    pub(super) fn of(version: &Value) -> Option<Arc<Self>> {
        let text = &version["schema"]["openAPIV3Schema"];
        // The schema was validated when the definition was written.
        let schema = Structural::parse(text).ok()?;
        let fingerprint = fingerprint(&text.to_string()).max(1);
        schema.has_defaults().then(|| {
            Arc::new(Self {
                schema,
                fingerprint,
            })
        })
    }

    /// Adds missing defaults to an object.
    pub(crate) fn apply(&self, tree: Tree) -> Tree {
        let mut value = Value::Object(tree);
        self.schema.default(&mut value);
        match value {
            Value::Object(tree) => tree,
            _ => Tree::new(),
        }
    }
}
