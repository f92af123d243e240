//! Bodies: how objects are read from the wire.

pub(crate) mod json;
pub(crate) mod protobuf;
