//! Tests of more than one part.

mod examples;
mod recorded;
