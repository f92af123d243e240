//! Failures are shrunk, stored and replayed.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use pintle_trials::{Cx, Oracle};
use tempfile::tempdir;

use crate::webs::{Web, map, service, trial};

/// Writes the Service only if the ConfigMap differs.
async fn half_done(cx: Cx) {
    let client = cx.client();
    let reconcile = |web: Arc<Web>, client: Arc<kube::Client>| async move {
        let params = PatchParams::apply("webs").force();
        let maps = Api::<ConfigMap>::namespaced((*client).clone(), "default");
        let current = maps
            .get_opt(&web.name_any())
            .await?
            .and_then(|map| map.data);
        if current.is_some_and(|data| data.get("page") == Some(&web.spec.page)) {
            return Ok(Action::await_change());
        }
        maps.patch(&web.name_any(), &params, &Patch::Apply(map(&web)))
            .await?;
        let mut child = service(&web);
        child["spec"]["ports"][0]["port"] = (1000 + web.spec.page.len()).into();
        let services = Api::<Service>::namespaced((*client).clone(), "default");
        services
            .patch(&web.name_any(), &params, &Patch::Apply(child))
            .await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let policy = |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Web>::all(client.clone()), watcher::Config::default())
        .owns(
            Api::<ConfigMap>::all(client.clone()),
            watcher::Config::default(),
        )
        .run(reconcile, policy, Arc::new(client))
        .for_each(|_| future::ready(()))
        .await;
}

/// Proves trials/finds-known-bugs, trials/report.
#[test]
fn failure_is_shrunk_and_reports_its_replay_token() {
    let folder = tempdir().unwrap();
    let report = trial(&folder, half_done).only(&["crash-after"]).try_run();
    assert!(report.found(Oracle::SameEnd), "{report}");
    let failure = &report.failures[0];
    assert!(failure.steps.len() <= 2, "{report}");
    let text = report.to_string();
    assert!(
        text.contains("PINTLE_TRIALS_REPLAY='crash-after@step/0/patch/configmaps/default/web#1;"),
        "{text}"
    );
    assert!(
        text.contains("Service default/web: want it to exist, got nothing"),
        "{text}"
    );
    let page = std::fs::read_to_string(folder.path().join("web.html")).unwrap();
    assert!(
        page.contains("Without the fault") && page.contains("crash-after"),
        "{page}"
    );
    let trace = std::fs::read_to_string(folder.path().join("web.trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert_eq!(trace["format"], "pintle.trace/v1");
    let run = &trace["keys"][0];
    let sentence = run["why"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("Service default/web"), "{run}");
    let entries = run["entries"].as_array().unwrap();
    let crashed = entries.iter().any(|entry| {
        let error = entry["error"].as_str();
        entry["type"] == "write" && error.is_some_and(|error| error.contains("crash"))
    });
    assert!(crashed, "{run}");
    assert_eq!(trace["keys"][1]["controller"], "reference");
}

/// Proves trials/report.
#[test]
fn found_failures_run_first() {
    let folder = tempdir().unwrap();
    let first = trial(&folder, half_done).only(&["crash-after"]).try_run();
    assert!(!first.is_ok());
    // Nothing else is tried, and the failure is found again.
    let second = trial(&folder, half_done).only(&["nothing"]).try_run();
    assert!(second.found(Oracle::SameEnd), "{second}");
}

/// Proves trials/report.
#[test]
fn token_replays_and_a_vanished_point_fails() {
    let folder = tempdir().unwrap();
    let replay = |token: &str| trial(&folder, half_done).replay(token).try_run();
    let replayed = |token: &str, oracle| {
        let report = replay(token);
        assert!(report.found(oracle), "{token}: {report}");
    };
    let crash = |point: &str| format!("crash-after@{point};pace=paced");
    let (found, vanished) = (Oracle::SameEnd, Oracle::Vanished);
    replayed(&crash("step/0/patch/configmaps/default/web#1"), found);
    replayed(&crash("step/4/patch/configmaps/default/web#1"), found);
    replayed(&crash("step/4/patch/configmaps/default/web#2"), vanished);
    replayed(&crash("step/0/patch/secrets/default/web#1"), vanished);
    // Without a step, requests are numbered across the story.
    replayed(&crash("patch/configmaps/default/web#1"), found);
    replayed(&crash("patch/configmaps/default/web#2"), found);
    replayed(&crash("patch/configmaps/default/web#9"), vanished);
    let report = replay("crash-sideways@patch/secrets/default/web#1");
    assert!(report.to_string().contains("unknown fault"), "{report}");
}

/// Proves trials/report.
#[test]
fn stored_failure_that_does_not_parse_fails_the_check() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("web.txt");
    let stored = "# found\n\ncrash-sideways@patch/configmaps/default/web#1;pace=paced\n";
    std::fs::write(&file, stored).unwrap();
    let report = trial(&folder, half_done).only(&["nothing"]).try_run();
    assert!(report.found(Oracle::Vanished), "{report}");
    let text = report.to_string();
    let expected = "web.txt:3: invalid replay token: unknown fault \"crash-sideways\"";
    assert!(text.contains(expected), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), stored);
}

/// Proves trials/report.
#[test]
fn unreadable_failures_are_reported_and_not_overwritten() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("web.txt");
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let report = trial(&folder, half_done).only(&["crash-after"]).try_run();
    let text = report.to_string();
    assert!(
        report.found(Oracle::SameEnd) && report.found(Oracle::Vanished),
        "{text}"
    );
    assert!(
        text.contains("new failures were not saved: cannot read"),
        "{text}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"\xff\xfe");
}
