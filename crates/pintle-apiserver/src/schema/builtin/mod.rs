//! What the server knows of the kinds that need no definition: their types, field by field, the
//! resources they are served as, and the objects every server begins with.
//!
//! All are tables written by `cargo xtask generate` from one pinned version of Kubernetes, read
//! lazily: the first question indexes the lines (well below a millisecond), and a type is parsed
//! when it is first asked for.

mod resources;
mod seeds;
mod types;

pub(crate) use self::resources::{Resource, group_versions, resource};
pub(crate) use self::seeds::seeds;
pub(crate) use self::types::{
    Field, FieldType, Leaf, ListType, PatchStrategy, ProtoTarget, Type, TypeRef, kind, named, types,
};

/// The version of Kubernetes the tables were taken from.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.4";
