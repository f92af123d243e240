//! Measures scenarios per second on one core, for a controller with two child kinds.
//!
//! ```text
//! cargo bench -p pintle-trials
//! cargo bench -p pintle-trials -- crash-after
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "prints results for people"
)]
#![allow(clippy::cast_precision_loss, reason = "approximate results are fine")]

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{CustomResource, ResourceExt};
use pintle::{
    controller::{Action, Context, Controller, ReconcileError},
    informer::InformerFactory,
};
use pintle_trials::{Cx, check};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Web", namespaced)]
struct WebSpec {
    page: String,
    port: i32,
}

async fn controller(cx: Cx) {
    let informers = InformerFactory::new(cx.client()).rng(cx.rng());
    let reconcile = |web: Arc<Web>, cx: Context| async move {
        let map = json!({"metadata": {"name": web.name_any()}, "data": {"page": web.spec.page}});
        cx.apply_owned(serde_json::from_value::<ConfigMap>(map)?)
            .await?;
        let service = json!({
            "metadata": {"name": web.name_any()},
            "spec": {"ports": [{"port": web.spec.port}], "selector": {"app": web.name_any()}},
        });
        cx.apply_owned(serde_json::from_value::<Service>(service)?)
            .await?;
        Ok::<_, ReconcileError>(Action::await_change())
    };
    let _ = Controller::<Web>::new("webs", &informers)
        .owns::<ConfigMap>()
        .owns::<Service>()
        .run(reconcile, cx.shutdown())
        .await;
}

/// Returns the CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}

fn main() {
    let web = || {
        let page = "hello".to_owned();
        Web::new("web", WebSpec { page, port: 80 })
    };
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with('-'))
        .collect();
    let all = [
        "nothing",
        "crash-after",
        "delay",
        "error",
        "user-recreate",
        "unobserved",
        "",
    ];
    let families = if chosen.is_empty() {
        all.to_vec()
    } else {
        chosen.iter().map(String::as_str).collect()
    };
    for family in families {
        let mut trial = check(controller).walk(&web()).name("bench");
        trial = trial
            .folder(std::env::temp_dir())
            .budget(Duration::from_secs(600));
        if !family.is_empty() {
            trial = trial.only(&[family]);
        }
        let before = cpu();
        let report = trial.try_run();
        let spent = cpu().saturating_sub(before).as_secs_f64();
        assert!(report.is_ok(), "{report}");
        let name = if family.is_empty() { "all" } else { family };
        println!(
            "{name:>14}: {:5} scenarios, {:7.3} s CPU, {:7.0} per second and core",
            report.scenarios,
            spent,
            report.scenarios as f64 / spent
        );
    }
}
