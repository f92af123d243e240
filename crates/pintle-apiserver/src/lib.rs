//! server

pub mod patch;
pub mod schema;
