//! Controllers written with any framework converge, and fail the check if they have a bug.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use kube_runtime::{
    WatchStreamExt,
    controller::{self, Controller},
    reflector, watcher,
};
use pintle::{
    controller::{Action, Context, ReconcileError},
    informer::InformerFactory,
};
use pintle_trials::{Cx, Oracle, Report, Story, converges};
use serde_json::json;
use tempfile::tempdir;

use crate::webs::{Web, map, service, sync, trial, web};

/// Creates, changes and deletes the Web.
fn short() -> Story {
    let mut changed = web();
    changed.spec.page = String::from("welcome");
    Story::new().apply(&web()).apply(&changed).delete(&changed)
}

/// Asserts that no scenario was skipped, and that most faults were injected: in a rapid story,
/// timing shifts some requests.
fn assert_mostly_hit(report: &Report) {
    let planned: usize = report.families.values().sum();
    assert_eq!(report.left_out, 0, "{report}");
    assert!(report.vanished * 4 < planned, "{report}");
}

/// A controller written with kube-runtime, as in its documentation.
pub(crate) async fn of_kube_runtime(cx: Cx) {
    let client = cx.client();
    let all = watcher::Config::default;
    let reconcile = |web: Arc<Web>, client: Arc<kube::Client>| async move {
        sync(web, (*client).clone()).await?;
        Ok::<_, kube::Error>(controller::Action::requeue(Duration::from_secs(300)))
    };
    let policy = |_, _: &kube::Error, _| controller::Action::requeue(Duration::from_secs(60));
    Controller::new(Api::<Web>::all(client.clone()), all())
        .owns(Api::<ConfigMap>::all(client.clone()), all())
        .owns(Api::<Service>::all(client.clone()), all())
        .run(reconcile, policy, Arc::new(client))
        .for_each(|_| future::ready(()))
        .await;
}

/// A controller written with Pintle.
pub(crate) async fn of_pintle(cx: Cx) {
    let informers = InformerFactory::new(cx.client()).rng(cx.rng());
    let reconcile = |web: Arc<Web>, cx: Context| async move {
        cx.apply_owned(serde_json::from_value::<ConfigMap>(map(&web))?)
            .await?;
        cx.apply_owned(serde_json::from_value::<Service>(service(&web))?)
            .await?;
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let _ = pintle::controller::Controller::<Web>::new("webs", &informers)
        .owns::<ConfigMap>()
        .owns::<Service>()
        .run(reconcile, cx.shutdown())
        .await;
}

/// A loop without a framework: a watch, and a full reconcile every minute.
async fn by_hand(cx: Cx) -> Result<(), watcher::Error> {
    let client = cx.client();
    let webs = Api::<Web>::all(client.clone());
    let (reader, writer) = reflector::store();
    let changes = watcher(webs, watcher::Config::default()).default_backoff();
    let mut changes = pin!(reflector(writer, changes).touched_objects());
    loop {
        let change = tokio::time::timeout(Duration::from_secs(60), changes.try_next()).await;
        if let Ok(change) = change {
            // The watcher is backing off from an error, or the stream has ended.
            let Ok(Some(_)) = change else { continue };
        }
        for web in reader.state() {
            if web.metadata.deletion_timestamp.is_none() {
                let _ = sync(web, client.clone()).await;
            }
        }
    }
}

/// Proves trials/one-line, trials/no-false-alarm.
#[test]
fn kube_runtime_controller_converges() {
    let folder = tempdir().unwrap();
    let report = trial(&folder, of_kube_runtime)
        .story(short())
        .only(&["crash-after", "lost-response", "cut"])
        .run();
    assert_mostly_hit(&report);
    assert_eq!(report.families.len(), 3, "{report}");
}

/// Proves trials/one-line, trials/no-false-alarm.
#[test]
fn pintle_controller_converges() {
    let folder = tempdir().unwrap();
    let report = trial(&folder, of_pintle)
        .story(short())
        .only(&["unobserved", "server-restart"])
        .run();
    assert_eq!(report.nondeterministic, None);
    assert_mostly_hit(&report);
    assert_eq!(report.families.len(), 2, "{report}");
}

/// Proves trials/one-line, trials/no-false-alarm.
#[test]
fn hand_written_loop_converges() {
    let folder = tempdir().unwrap();
    let report = trial(&folder, by_hand)
        .story(short())
        .only(&["crash-before", "gone", "refused"])
        .run();
    assert_mostly_hit(&report);
    assert_eq!(report.families.len(), 3, "{report}");
}

/// Proves trials/one-line.
#[test]
#[should_panic(expected = "quiescent")]
fn one_line_fails_with_a_report() {
    // Writes every five minutes, although nothing changes.
    converges(
        |cx: Cx| async move {
            let maps = Api::<ConfigMap>::namespaced(cx.client(), "default");
            for round in 0_u64.. {
                let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "round"}, "data": {"round": round.to_string()}});
                let params = PatchParams::apply("rounds");
                let _ = maps.patch("round", &params, &Patch::Apply(child)).await;
                tokio::time::sleep(Duration::from_secs(300)).await;
            }
        },
        web(),
    );
}

/// Proves trials/settings.
#[test]
fn relaxed_oracles_are_named() {
    let folder = tempdir().unwrap();
    let leaky = |cx: Cx| async move {
        let client = cx.client();
        let reconcile = |web: Arc<Web>, client: Arc<kube::Client>| async move {
            let mut child = map(&web);
            child["metadata"]["ownerReferences"] = json!([]);
            let maps = Api::<ConfigMap>::namespaced((*client).clone(), "default");
            let params = PatchParams::apply("webs").force();
            maps.patch(&web.name_any(), &params, &Patch::Apply(child))
                .await?;
            Ok::<_, kube::Error>(controller::Action::await_change())
        };
        let policy = |_, _: &kube::Error, _| controller::Action::requeue(Duration::from_secs(5));
        Controller::new(Api::<Web>::all(client.clone()), watcher::Config::default())
            .run(reconcile, policy, Arc::new(client))
            .for_each(|_| future::ready(()))
            .await;
    };
    let story = || Story::new().apply(&web()).delete(&web());
    let report = trial(&folder, leaky).story(story()).try_run();
    assert!(report.found(Oracle::NoOrphan), "{report}");
    let relaxed = trial(&folder, leaky).story(story()).only(&["cut"]);
    let report = relaxed
        .relax(Oracle::NoOrphan, "the page outlives the site")
        .run();
    let text = report.to_string();
    assert!(
        text.contains("no-orphan is relaxed: the page outlives the site"),
        "{text}"
    );
}

/// Proves trials/settings.
#[test]
fn predicates_of_the_user_are_checked() {
    let folder = tempdir().unwrap();
    let report = trial(&folder, of_pintle)
        .always("no Service without a ConfigMap", |view| {
            view.list::<Service>().len() <= view.list::<ConfigMap>().len()
        })
        .story(short())
        .only(&["crash-after"])
        .try_run();
    // The garbage collector deletes the ConfigMap first.
    assert!(report.found(Oracle::User), "{report}");
    let report = trial(&folder, of_pintle)
        .eventually("there are five Services", |view| {
            view.list::<Service>().len() == 5
        })
        .story(Story::new().apply(&web()))
        .only(&["nothing"])
        .try_run();
    assert!(report.found(Oracle::User), "{report}");
}

/// Proves trials/one-line.
#[test]
fn controller_that_writes_nothing_fails() {
    let folder = tempdir().unwrap();
    let idle = |cx: Cx| async move {
        let _ = Api::<Web>::all(cx.client())
            .list(&ListParams::default())
            .await;
        future::pending::<()>().await;
    };
    let report = trial(&folder, idle).story(short()).try_run();
    assert!(report.found(Oracle::Story), "{report}");
    assert!(report.to_string().contains("wrote nothing"), "{report}");
}

/// Proves trials/permissions.
#[test]
fn permissions_are_compared_with_the_role() {
    let folder = tempdir().unwrap();
    let rules = json!([
        {"apiGroups": ["example.com"], "resources": ["webs"], "verbs": ["list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
    ]);
    let report = trial(&folder, of_kube_runtime)
        .story(Story::new().apply(&web()))
        .role(rules)
        .only(&["nothing"])
        .try_run();
    assert!(!report.is_ok(), "{report}");
    assert_eq!(
        report.unused_permissions,
        ["delete webs.example.com"],
        "{report}"
    );
    assert_eq!(report.missing_permissions, ["patch services"], "{report}");
    let smallest = report.permissions.to_yaml();
    let of_maps = "resources: [\"configmaps\"]\n  verbs: [list, patch, watch]";
    assert!(smallest.contains(of_maps), "{smallest}");
}
