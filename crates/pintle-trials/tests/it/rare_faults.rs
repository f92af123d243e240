//! Faults that apply to certain controllers, or must be enabled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use pintle_trials::{Cx, Oracle, Report, Story};
use tempfile::tempdir;
use tokio::sync::oneshot;

use crate::webs::{Web, map, trial, web};

fn changed() -> Web {
    let mut changed = web();
    changed.spec.page = String::from("welcome");
    changed
}

/// Maintains the ConfigMap of each Web. Does not notice changes by other clients.
async fn keep_pages(client: Client, webs: watcher::Config) {
    let reconcile = |web: Arc<Web>, client: Arc<Client>| async move {
        let maps = Api::<ConfigMap>::namespaced((*client).clone(), "default");
        let params = PatchParams::apply("webs").force();
        maps.patch("web", &params, &Patch::Apply(map(&web))).await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let policy = |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Web>::all(client.clone()), webs)
        .run(reconcile, policy, Arc::new(client))
        .for_each(|_| future::ready(()))
        .await;
}

/// Proves trials/faults.
#[test]
fn restarted_process_reads_stale_state() {
    let folder = tempdir().unwrap();
    let stale = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&stale);
    let controller = move |cx: Cx| {
        let count = Arc::clone(&count);
        async move {
            let webs = Api::<Web>::all(cx.client());
            let any = ListParams::default().match_any();
            if let (Ok(any), Ok(newest)) = (
                webs.list(&any).await,
                webs.list(&ListParams::default()).await,
            ) {
                let pages = |list: kube::core::ObjectList<Web>| -> Vec<String> {
                    list.items.into_iter().map(|web| web.spec.page).collect()
                };
                count.fetch_add(usize::from(pages(any) != pages(newest)), Ordering::Relaxed);
            }
            keep_pages(cx.client(), watcher::Config::default().any_semantic()).await;
        }
    };
    let report = trial(&folder, controller)
        .story(Story::new().apply(&web()).apply(&changed()))
        .only(&["time-travel"])
        .run();
    assert!(report.families.contains_key("time-travel"), "{report}");
    assert_eq!((report.left_out, report.vanished), (0, 0), "{report}");
    assert!(stale.load(Ordering::Relaxed) > 0, "{report}");
}

/// Proves trials/settings.
#[test]
fn pairs_of_crashes_and_random_combinations_run_on_request() {
    let folder = tempdir().unwrap();
    let controller = |cx: Cx| keep_pages(cx.client(), watcher::Config::default());
    let report = trial(&folder, controller)
        .story(Story::new().apply(&web()).apply(&changed()))
        .only(&["crash-before", "lost-response"])
        .pairs()
        .seeds(8)
        .run();
    let of = |family: &str| report.families.get(family).copied().unwrap_or_default();
    assert!(of("crash-after+crash-after") > 0, "{:?}", report.families);
    let total: usize = report.families.values().sum();
    let planned = |name: &String| !name.contains("after");
    let others = report.families.iter().filter(|(name, _)| planned(name));
    assert!(others.count() > 1 && total > 8, "{:?}", report.families);
    assert_eq!(report.left_out, 0, "{report}");
}

/// Proves trials/settings.
#[test]
fn budget_bounds_any_number_of_combinations() {
    let folder = tempdir().unwrap();
    let controller = |cx: Cx| keep_pages(cx.client(), watcher::Config::default());
    let report = trial(&folder, controller)
        .story(Story::new().apply(&web()))
        .only(&["crash-before"])
        .budget(Duration::ZERO)
        .seeds(usize::MAX)
        .run();
    assert_eq!(report.left_out, usize::MAX, "{report}");
}

/// Runs a controller whose processes also run `extra` in a task. `extra` receives whether the
/// process was restarted, and a channel that closes when the process ends.
fn with_task<R>(folder: &tempfile::TempDir, extra: fn(bool, oneshot::Receiver<()>) -> R) -> Report
where
    R: Future<Output = ()> + Send + 'static,
{
    let controller = move |cx: Cx| async move {
        // There is no map yet when the first process of a scenario starts.
        let maps = Api::<ConfigMap>::namespaced(cx.client(), "default");
        let restarted = maps.get_opt("web").await.is_ok_and(|map| map.is_some());
        let (_open, ended) = oneshot::channel();
        tokio::spawn(extra(restarted, ended));
        keep_pages(cx.client(), watcher::Config::default()).await;
    };
    trial(folder, controller)
        .story(Story::new().apply(&web()))
        .only(&["crash-after"])
        .try_run()
}

/// Proves trials/panics.
#[test]
fn panic_after_a_restart_is_found() {
    let folder = tempdir().unwrap();
    let report = with_task(&folder, |restarted, _| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!restarted, "oops after a restart");
    });
    assert!(report.found(Oracle::NoPanic), "{report}");
    let text = report.to_string();
    assert!(text.contains("oops after a restart"), "{text}");
}

/// Proves trials/panics.
#[test]
fn panics_of_crashed_processes_do_not_count() {
    let folder = tempdir().unwrap();
    // A task outlives its process and panics while the next process runs.
    let report = with_task(&folder, |_, ended| async move {
        let _ = ended.await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        panic!("a task without its process");
    });
    assert!(
        report.is_ok() && report.families["crash-after"] > 0,
        "{report}"
    );
}
