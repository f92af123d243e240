//! Reading custom resources: the version they are kept in may have got defaults since.

use std::sync::Arc;

use serde_json::Value;

use super::fingerprint;
use crate::{meta::Tree, schema::structural::Structural};

/// The defaults of the version objects are kept in.
#[derive(Debug)]
pub(crate) struct StorageDefaults {
    schema: Structural,
    /// Tells this schema from others; never 0.
    pub(crate) fingerprint: u64,
}

impl StorageDefaults {
    /// None if the version has no defaults.
    pub(super) fn of(version: &Value) -> Option<Arc<Self>> {
        let text = &version["schema"]["openAPIV3Schema"];
        // It was checked when the definition was written.
        let schema = Structural::parse(text).ok()?;
        let fingerprint = fingerprint(&text.to_string()).max(1);
        schema.has_defaults().then(|| {
            Arc::new(Self {
                schema,
                fingerprint,
            })
        })
    }

    /// The object with what it lacks.
    pub(crate) fn apply(&self, tree: Tree) -> Tree {
        let mut value = Value::Object(tree);
        self.schema.default(&mut value);
        match value {
            Value::Object(tree) => tree,
            _ => Tree::new(),
        }
    }
}
