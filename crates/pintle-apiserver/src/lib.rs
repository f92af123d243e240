//! server

pub mod codec;
pub mod patch;
pub mod schema;
