use serde_json::json;

use super::*;

/// Returns the ready, status and restarts cells of a Pod, ten minutes into 2026.
fn shown(object: &Value) -> [String; 3] {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    let cells = cells(&Fields { object, now });
    [1, 2, 3].map(|at| cells[at].as_str().unwrap_or_default().to_owned())
}

fn pod(status: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": status})
}

#[test]
fn pod_row_sums_up_its_containers() {
    let running = json!({"ready": true, "state": {"running": {}}});
    let crashing = json!({"restartCount": 3,
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
    let completed = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let failed = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
    for (containers, phase, wanted) in [
        (json!([]), "Pending", ["0/2", "Pending", "0"]),
        (
            json!([running, running]),
            "Running",
            ["2/2", "Running", "0"],
        ),
        (
            json!([running, crashing]),
            "Running",
            ["1/2", "CrashLoopBackOff", "3 (5m ago)"],
        ),
        (
            json!([completed, running]),
            "Running",
            ["1/2", "NotReady", "0"],
        ),
        (
            json!([failed, running]),
            "Running",
            ["1/2", "Signal:9", "0"],
        ),
    ] {
        let status = json!({"phase": phase, "containerStatuses": containers});
        assert_eq!(shown(&pod(&status)), wanted);
    }
}

#[test]
fn initializing_pod_row_shows_its_progress() {
    let done = json!({"name": "x", "state": {"terminated": {"exitCode": 0}}});
    let waiting = json!({"name": "y", "state": {"waiting": {"reason": "PodInitializing"}}});
    let broken = json!({"name": "y", "state": {"terminated": {"exitCode": 2}}});
    let mut pod = pod(&json!({"phase": "Pending"}));
    pod["spec"]["initContainers"] = json!([{"name": "x"}, {"name": "y"}]);
    for (statuses, word) in [
        (json!([done, waiting]), "Init:1/2"),
        (json!([done, broken]), "Init:ExitCode:2"),
    ] {
        pod["status"]["initContainerStatuses"] = statuses;
        assert_eq!(shown(&pod)[1], word);
    }
}

#[test]
fn gated_and_terminating_pod_rows_show_their_state() {
    let gated = json!([{"type": "PodScheduled", "status": "False",
            "reason": "SchedulingGated"}]);
    let status = json!({"phase": "Pending", "conditions": gated});
    assert_eq!(shown(&pod(&status))[1], "SchedulingGated");
    let mut leaving = pod(&json!({"phase": "Running"}));
    leaving["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(shown(&leaving)[1], "Terminating");
    leaving["status"]["phase"] = "Succeeded".into();
    assert_eq!(shown(&leaving)[1], "Succeeded");
}
