//! Tests that span modules.

mod examples;
mod recorded;
