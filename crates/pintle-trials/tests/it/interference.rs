//! Stopped and overlapping processes, late requests, and other users of the cluster.

use pintle_trials::{Cx, Oracle, Report, Story};
use tempfile::{TempDir, tempdir};

use crate::{
    kinds_of_controllers::{of_kube_runtime, of_pintle},
    webs::{trial, web},
};

/// Creates, changes and deletes the Web, and creates it again.
fn story() -> Story {
    let mut changed = web();
    changed.spec.page = String::from("welcome");
    let story = Story::new().apply(&web()).apply(&changed);
    story.delete(&changed).apply(&web())
}

fn run<R: Future + 'static>(
    folder: &TempDir,
    families: &[&str],
    controller: fn(Cx) -> R,
) -> Report {
    let trial = trial(folder, controller).story(story());
    trial.only(families).try_run()
}

/// Asserts that the check passed, and that each family was injected this many times.
fn assert_injected(report: &Report, expected: &[(&str, usize)]) {
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.vanished, report.left_out), (0, 0), "{report}");
    let families = report.families.iter();
    let found: Vec<(&str, usize)> = families.map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(found, expected);
}

/// Proves trials/faults.
#[test]
fn steps_are_applied_while_the_process_is_stopped() {
    let folder = tempdir().unwrap();
    let families = ["stopped", "crd-upgrade"];
    let expected = [("crd-upgrade", 1), ("stopped", 4)];
    assert_injected(&run(&folder, &families, of_pintle), &expected);
    assert_injected(&run(&folder, &families, of_kube_runtime), &expected);
}

/// Proves trials/faults.
#[test]
fn finalizers_of_others_delay_deletions() {
    let folder = tempdir().unwrap();
    let families = ["held-finalizer", "drift-held"];
    let expected = [("drift-held", 2), ("held-finalizer", 1)];
    assert_injected(&run(&folder, &families, of_pintle), &expected);
}

/// Proves trials/faults.
#[test]
fn processes_overlap_and_requests_arrive_late() {
    let folder = tempdir().unwrap();
    let report = run(&folder, &["overlap", "late-write"], of_pintle);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.left_out, 0, "{report}");
    assert!(report.families["overlap"] > 4, "{report}");
    assert!(report.families["late-write"] > 2, "{report}");
}

/// A process that exits whenever it cannot reach the API server is restarted like a Pod.
///
/// Proves trials/no-false-alarm.
#[test]
fn process_may_exit_while_the_server_is_down() {
    async fn fragile(cx: Cx) {
        let client = cx.client();
        let unreachable = async {
            for _ in 0..240 {
                if client.apiserver_version().await.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = unreachable => {}
            () = of_pintle(cx.clone()) => {}
        }
    }
    let folder = tempdir().unwrap();
    let report = run(&folder, &["server-restart"], fragile);
    assert!(!report.found(Oracle::NoCrashLoop), "{report}");
    assert!(
        report.is_ok() && report.families["server-restart"] > 2,
        "{report}"
    );
}
