//! Bugs that real controllers have had, each as a small controller with the bug and one without it.
//!
//! The bugs come from public issue reports; the code is new. Every module has `broken` and
//! `repaired`, which differ only in the bug. `tests/gallery.rs` runs the trials on both.

#![allow(clippy::missing_panics_doc, reason = "examples")]

pub mod all_finalizers;
pub mod blind_resume;
pub mod blind_write;
pub mod busy;
pub mod defaults_fight;
pub mod disabled_feature;
pub mod dropped_field;
pub mod early_finalizer;
pub mod edge_triggered;
pub mod finalizer_stuck;
pub mod forced_deletion;
pub mod forgotten_code;
pub mod forgotten_label;
pub mod half_done;
pub mod hot_retry;
pub mod immutable;
pub mod kit;
pub mod late_delete;
pub mod late_finalizer;
pub mod latest_generation;
pub mod lost_id;
pub mod missing_child;
pub mod name_prefix;
pub mod no_owner;
pub mod recreated;
pub mod shuffled;
pub mod stale_cleanup;
pub mod stale_count;
pub mod stale_status;
pub mod startup_cleanup;
pub mod status_time;
pub mod stuck_namespace;
pub mod swallowed;
pub mod unwatched_child;
pub mod without_force;
pub mod wrong_owner;
