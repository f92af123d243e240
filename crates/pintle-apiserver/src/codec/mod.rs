//! Decoding of request bodies: strict JSON and Kubernetes' protobuf encoding.

pub(crate) mod json;
pub(crate) mod protobuf;
