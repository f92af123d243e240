//! Checks find every bug of the gallery, and no bug in the repaired controllers.
//!
//! Each pair of controllers runs under the faults that trigger its bug. The tests are bounded by
//! the number of scenarios, not by time.

use std::{collections::BTreeMap, time::Duration};

use gallery::kit::{Shop, shop};
use pintle_trials::{Check, Cx, Oracle, Story, check};

/// Creates the shop, changes all of its fields, resets them, and recreates the shop.
fn story() -> Story {
    let mut changed = shop();
    changed.spec.page = String::from("welcome");
    changed.spec.replicas = 1;
    changed.spec.labels = BTreeMap::from([("tier".to_owned(), "front".to_owned())]);
    let again = shop();
    Story::new()
        .apply(&shop())
        .apply(&changed)
        .apply(&again)
        .delete(&again)
        .apply(&again)
}

fn trial<F, R>(folder: &tempfile::TempDir, families: &[&str], controller: F) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    check(controller)
        .name("gallery")
        .folder(folder.path())
        .budget(Duration::MAX)
        .kind::<Shop>()
        .story(story())
        .only(families)
}

macro_rules! twins {
    ($($name:ident: $families:expr, $oracle:ident;)*) => {
        $(mod $name {
            use super::{Oracle, trial};

            /// Proves trials/finds-known-bugs.
            #[test]
            fn bug_is_found() {
                let folder = tempfile::tempdir().unwrap();
                let report = trial(&folder, &$families, gallery::$name::broken).try_run();
                println!("{report}");
                assert!(report.found(Oracle::$oracle), "{report}");
            }

            /// Proves trials/no-false-alarm.
            #[test]
            fn repair_is_clean() {
                let folder = tempfile::tempdir().unwrap();
                let report = trial(&folder, &$families, gallery::$name::repaired).run();
                assert_eq!(report.nondeterministic, None);
                assert_eq!(report.left_out, 0, "{report}");
                // In a rapid story, latencies determine which intermediate states are observed, so
                // the point of a fault may not occur.
                let tried: usize = report.families.values().sum();
                assert!(report.vanished * 4 < tried, "{report}");
            }
        })*
    };
}

twins! {
    all_finalizers: ["held-finalizer", "user-recreate"], OwnOnly;
    blind_resume: ["cut", "gone", "unobserved"], SameEnd;
    blind_write: ["rival"], NoLostUpdate;
    busy: ["crash-after"], SameEnd;
    defaults_fight: ["defaulting"], NoHotLoop;
    disabled_feature: ["crash-before"], PathFree;
    dropped_field: ["crd-upgrade"], NoLostUpdate;
    early_finalizer: ["crash-after"], SameEnd;
    edge_triggered: ["stopped"], SameEnd;
    finalizer_stuck: ["crash-after"], SameEnd;
    forced_deletion: ["drift-held"], OwnOnly;
    forgotten_code: ["timeout"], SameEnd;
    forgotten_label: ["crash-before"], PathFree;
    half_done: ["crash-after"], SameEnd;
    hot_retry: ["server-restart"], NoHotLoop;
    immutable: ["crash-before"], PathFree;
    late_delete: ["late-write"], NoExtraDelete;
    late_finalizer: ["user-delete"], SameEnd;
    latest_generation: ["user-next"], SameEnd;
    lost_id: ["crash-after"], NoDuplicate;
    missing_child: ["drift"], SameEnd;
    name_prefix: ["crash-before"], OwnOnly;
    no_owner: ["crash-before"], NoOrphan;
    recreated: ["user-recreate"], SameEnd;
    shuffled: ["crash-before"], Idempotent;
    stale_cleanup: ["time-travel", "stopped"], NoExtraDelete;
    stale_count: ["delay"], NoDuplicate;
    stale_status: ["crash-before"], StatusTrue;
    startup_cleanup: ["overlap"], SameEnd;
    status_time: ["crash-before"], Idempotent;
    swallowed: ["error"], SameEnd;
    unwatched_child: ["drift"], SameEnd;
    without_force: ["drift"], SameEnd;
    wrong_owner: ["crash-before"], Idempotent;
}

/// Returns a check of a controller on a shop whose namespace is deleted.
fn in_namespace<F, R>(folder: &tempfile::TempDir, controller: F) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    let mut shop = shop();
    shop.metadata.namespace = Some("shops".to_owned());
    trial(folder, &["namespace-delete"], controller).story(Story::new().apply(&shop))
}

/// Proves trials/finds-known-bugs, trials/faults.
#[test]
fn stuck_namespace_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let report = in_namespace(&folder, gallery::stuck_namespace::broken).try_run();
    println!("{report}");
    assert!(report.found(Oracle::SameEnd), "{report}");
}

/// Proves trials/no-false-alarm, trials/faults.
#[test]
fn repaired_controller_lets_the_namespace_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let report = in_namespace(&folder, gallery::stuck_namespace::repaired).run();
    assert_eq!((report.left_out, report.vanished), (0, 0), "{report}");
    assert!(!report.families.is_empty(), "{report}");
}
