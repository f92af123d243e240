//! Reporting readiness: one call sets consistent conditions that tools understand.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, ResourceExt, api::PostParams};
use pintle::{
    clock::Clock,
    conditions::{Readiness, find_condition},
    controller::{Action, Context, Controller},
    informer::InformerFactory,
    kstatus::{self, Status},
};
use pintle_apiserver::ApiServer;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::patch;

type Budgets = Api<PodDisruptionBudget>;

/// Reports the readiness named by the annotation `state`.
async fn reconcile(budget: Arc<PodDisruptionBudget>, cx: Context) -> Result<Action, kube::Error> {
    let readiness = match budget.annotations()["state"].as_str() {
        "ready" => Readiness::ready("Up", "all is well"),
        "waiting" => Readiness::in_progress("Waiting", "1 of 2"),
        problem => Readiness::stalled("Invalid", problem),
    };
    cx.report(&*budget, readiness).await?;
    Ok(Action::await_change())
}

/// Returns the types of the conditions that are true, and the object's kstatus.
async fn found(budgets: &Budgets) -> (Vec<String>, Status) {
    sleep(Duration::from_secs(1)).await;
    let budget = budgets.get("web").await.unwrap();
    let status = kstatus::of(&budget, Clock::system().now()).status;
    let conditions = budget.status.unwrap_or_default().conditions;
    let mut hold: Vec<String> = conditions
        .into_iter()
        .flatten()
        .filter(|one| one.status == "True")
        .map(|one| one.type_)
        .collect();
    hold.sort();
    (hold, status)
}

/// Proves conditions/readiness, kstatus/rules.
#[tokio::test(start_paused = true)]
async fn reported_readiness_matches_kstatus() {
    let client = ApiServer::builder().build().client();
    let budgets = Budgets::namespaced(client.clone(), "default");
    let budget = json!({
        "metadata": {"name": "web", "annotations": {"state": "waiting"}},
        "spec": {"minAvailable": 1},
    });
    let budget = serde_json::from_value(budget).unwrap();
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    let controller =
        Controller::<PodDisruptionBudget>::new("budgets", &InformerFactory::new(client));
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });

    let expected = (vec!["Reconciling".to_owned()], Status::InProgress);
    assert_eq!(found(&budgets).await, expected);
    let written = budgets.get("web").await.unwrap();
    let status = written.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, Some(1));
    let ready = find_condition(status.conditions.as_deref().unwrap(), "Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), &*ready.message),
        ("False", "1 of 2")
    );

    // A reconcile with the same result writes nothing.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    patch(&budgets, "web", label).await;
    sleep(Duration::from_secs(1)).await;
    let versions = |budget: &PodDisruptionBudget| budget.resource_version().unwrap();
    let labelled = budgets.get("web").await.unwrap();
    assert_eq!(
        versions(&labelled).parse::<u64>().unwrap(),
        versions(&written).parse::<u64>().unwrap() + 1
    );

    let state = |state: &str| json!({"metadata": {"annotations": {"state": state}}});
    patch(&budgets, "web", state("no Pods match")).await;
    let expected = (vec!["Stalled".to_owned()], Status::Failed);
    assert_eq!(found(&budgets).await, expected);
    patch(&budgets, "web", state("ready")).await;
    let expected = (vec!["Ready".to_owned()], Status::Current);
    assert_eq!(found(&budgets).await, expected);

    // The same report for a new generation updates `observedGeneration`.
    patch(&budgets, "web", json!({"spec": {"minAvailable": 2}})).await;
    assert_eq!(found(&budgets).await, expected);
    let budget = budgets.get("web").await.unwrap();
    assert_eq!(budget.metadata.generation, Some(2));
    assert_eq!(budget.status.unwrap().observed_generation, Some(2));
}
