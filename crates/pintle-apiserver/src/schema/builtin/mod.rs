//! Tables of built-in kinds: their types, the resources they are served as, and the objects that
//! every server starts with.
//!
//! `cargo xtask generate` writes the tables from a pinned version of Kubernetes. They are read
//! lazily: the first access indexes the lines, which takes well under a millisecond, and each type
//! is parsed on first use.

mod resources;
mod seeds;
mod types;

pub(crate) use self::resources::{Resource, group_versions};
pub(crate) use self::seeds::seeds;
pub(crate) use self::types::{
    Field, FieldType, Leaf, ListType, PatchStrategy, ProtoTarget, Type, TypeRef, kind, named, types,
};

/// The Kubernetes version that the tables come from.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.4";
