//! Bodies: how objects are read from the wire.

pub mod protobuf;
