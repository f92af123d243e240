//! Controllers in common styles, each with and without a bug that operators have had. The check is
//! not tuned to them: every family of faults and every oracle is enabled.
//!
//! `PINTLE_TRIALS_BUDGET=10m` tries every fault on the controllers without a bug, then pairs and
//! combinations.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod backups;
mod caches;
mod headers;
mod leader;
mod nodes;
mod pages;
mod poller;
mod records;
mod resize;
mod sets;
mod tenants;

use std::time::Duration;

use kube::{CustomResourceExt, Resource};
use pintle_trials::{Check, Cx, Oracle, Report, check};
use serde::Serialize;
use tempfile::TempDir;

/// Starts the check of `converges`, in its own folder and without a wall-clock limit.
fn trial<F, R, K>(folder: &TempDir, controller: F, object: &K) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
    K: CustomResourceExt + Resource<DynamicType = ()> + Serialize,
    K::Scope: 'static,
{
    check(controller)
        .walk(object)
        .name("stranger")
        .folder(folder.path())
        .budget(Duration::MAX)
}

/// Asserts that the bug is found, by this oracle.
#[track_caller]
fn assert_found(report: &Report, oracle: Oracle) {
    assert!(report.found(oracle), "{report}");
}

/// Asserts that no fault raised an alarm.
#[track_caller]
fn assert_clean(report: &Report) {
    assert!(report.is_ok(), "{report}");
    assert!(report.families.len() > 10, "{report}");
}

macro_rules! twins {
    ($make:expr, $object:expr, $oracle:ident) => {
        /// Proves trials/strangers.
        #[test]
        fn bug_is_found() {
            let folder = tempfile::tempdir().unwrap();
            let trial = crate::strangers::trial(&folder, |cx| $make(cx, true), &$object);
            crate::strangers::assert_found(&trial.try_run(), pintle_trials::Oracle::$oracle);
        }

        /// Proves trials/no-false-alarm.
        #[test]
        fn without_the_bug_it_converges() {
            let folder = tempfile::tempdir().unwrap();
            let trial = crate::strangers::trial(&folder, |cx| $make(cx, false), &$object);
            crate::strangers::assert_clean(&trial.sample(30).try_run());
        }
    };
}
use twins;
