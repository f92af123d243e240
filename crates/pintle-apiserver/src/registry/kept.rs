//! Reading custom resources: the version they are kept in may have got defaults since.

use std::sync::Arc;

use serde_json::Value;

use crate::{meta::Tree, schema::structural::Structural};

/// The defaults of the version objects are kept in.
#[derive(Debug)]
pub(crate) struct Kept {
    schema: Structural,
    /// Tells this schema from others; never 0.
    pub(crate) mark: u64,
}

impl Kept {
    /// None if the version has no defaults.
    pub(super) fn of(version: &Value) -> Option<Arc<Self>> {
        let text = &version["schema"]["openAPIV3Schema"];
        // It was checked when the definition was written.
        let schema = Structural::parse(text).ok()?;
        let mark = fingerprint(&text.to_string()).max(1);
        schema
            .has_defaults()
            .then(|| Arc::new(Self { schema, mark }))
    }

    /// The object with what it lacks.
    pub(crate) fn complete(&self, tree: Tree) -> Tree {
        let mut value = Value::Object(tree);
        self.schema.default(&mut value);
        match value {
            Value::Object(tree) => tree,
            _ => Tree::new(),
        }
    }
}

/// FNV-1a.
pub(super) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
