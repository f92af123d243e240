//! Writes: create, update, patch, apply, delete, and the subresources that change an object.

pub(crate) mod commit;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod managers;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod scale;
pub(crate) mod update;
