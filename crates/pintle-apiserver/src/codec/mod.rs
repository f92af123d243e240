//! Bodies: how objects are read from the wire.

pub(crate) mod duplicates;
pub(crate) mod protobuf;
