//! What the server knows of the kinds that need no definition: their types, field by field, and
//! the resources they are served as.
//!
//! Both are tables written by `cargo xtask generate` from one pinned version of Kubernetes, read
//! lazily: the first question indexes the lines (well below a millisecond), and a type is parsed
//! when it is first asked for.
//!
//! ```
//! use pintle_apiserver::schema::builtin;
//!
//! let deployment = builtin::kind("apps", "v1", "Deployment").unwrap();
//! let spec = deployment.field("spec").unwrap().ty.named().unwrap();
//! assert!(spec.field("replicas").unwrap().pointer);
//!
//! let pods = builtin::resource("", "v1", "pods").unwrap();
//! assert_eq!(pods.kind, "Pod");
//! assert!(pods.namespaced && pods.subresource("status").is_some());
//! ```

mod resources;
mod types;

pub use self::resources::{GroupVersion, Resource, Subresource, group_versions, resource};
pub use self::types::{
    Field, FieldType, Leaf, ListType, PatchStrategy, ProtoTarget, Type, TypeRef, kind, named, types,
};

/// The version of Kubernetes the tables were taken from.
pub const KUBERNETES_VERSION: &str = "v1.36.4";
