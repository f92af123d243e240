//! The local copy of one kind's objects.

pub use crate::object::{
    BoxError, DecodeError, InvalidKey, Kind, Labels, Object, ObjectKey, Of, OwnerRef, ReadError,
    Reader,
};
