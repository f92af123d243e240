//! The local copy of the objects of one kind, by key and by index.
//!
//! A reconcile reads many objects to decide on one write. Reading them from the API server would be
//! slow and would overload it, so controllers read from a cache instead. An [`Indexer`] stores
//! [`Object`]s, and a [`Lister`] reads them. Every read sees one consistent state: a relist
//! replaces all objects at once.

mod add_index;
mod index;
mod indexer;
mod label_sets;
mod lister;
mod selector;
mod store;
mod version;

pub(crate) use self::indexer::{Replaced, Write};
pub use self::{
    add_index::IndexError,
    indexer::Indexer,
    lister::{Lister, NamespaceLister, UnknownIndex},
    selector::{InvalidSelector, Selector},
    version::{OpaqueVersion, compare_versions},
};
pub use crate::BoxError;
pub use crate::object::{
    DecodeError, InvalidKey, InvalidPointer, Kind, Labels, Object, ObjectKey, OwnerRef, ReadError,
    Reader,
};

#[cfg(test)]
mod tests;
