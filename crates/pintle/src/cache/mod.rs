//! The local copy of one kind's objects: by key, by index, every answer from one consistent state.
//!
//! An [`Indexer`] holds [`Object`]s, a [`Lister`] reads them. Controllers read from here and never
//! ask the server for what they only want to look at.

mod define;
mod index;
mod indexer;
mod label_sets;
mod lister;
mod selector;
mod store;
mod version;

pub(crate) use self::indexer::{Replaced, Write};
pub use self::{
    indexer::{IndexError, Indexer},
    lister::{Lister, NamespaceLister, UnknownIndex},
    selector::{InvalidSelector, Selector},
    version::{OpaqueVersion, compare_versions},
};
pub use crate::object::{
    BoxError, DecodeError, InvalidKey, InvalidPointer, Kind, Labels, Object, ObjectKey, Of,
    OwnerRef, ReadError, Reader,
};

#[cfg(test)]
mod tests;
