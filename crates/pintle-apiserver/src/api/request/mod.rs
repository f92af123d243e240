//! Decodes a request: path, user, query, options, selectors, body.

mod deadline;
pub(crate) mod decode;
pub(crate) mod fields;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod selector;
pub(crate) mod user;
