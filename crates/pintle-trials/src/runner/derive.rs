//! Derives the story of a check from one object.

use futures::FutureExt;
use http::Method;
use serde_json::Value;
use tokio::{runtime::Builder, sync::mpsc};

use crate::{Check, hub::Hub, plan::Plan, story::walk};

/// Derives the story of a check that has none. Returns an error if there is nothing to derive from.
pub(super) fn derive(check: &mut Check) -> Result<(), String> {
    if !check.story.is_empty() {
        return Ok(());
    }
    let Some(base) = check.walk.clone() else {
        return Err("the check has no story: call walk or story".to_owned());
    };
    let crd = check.setup.crds.iter().find(|crd| {
        crd["spec"]["group"] == base.kind.resource.group.as_str()
            && crd["spec"]["names"]["plural"] == base.kind.resource.plural.as_str()
    });
    let changes = walk::changes(&base, crd);
    let prepared = check.setup.prepared().map_err(String::clone)?;
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    let setup = &check.setup;
    check.story = runtime.block_on(async {
        let (signals, _ignored) = mpsc::unbounded_channel();
        let (plan, limit) = (Plan::default(), usize::MAX);
        let hub = Hub::new(&plan, Vec::new(), limit, setup, prepared, signals);
        let json = "application/json";
        let path = format!("{}?dryRun=All", base.kind.path(&base.namespace));
        let accepts = |value: &Value| {
            // The server is in this process and responds immediately.
            let response = hub
                .call(Method::POST, &path, json, Some(value))
                .now_or_never();
            response.is_some_and(|(status, _)| status.is_success())
        };
        walk::story(&base, changes, accepts)
    });
    Ok(())
}
