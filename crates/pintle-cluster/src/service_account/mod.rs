//! The account and the certificates every namespace is born with.

mod plan;
