//! The type checks of admission policies.

use crate::support::{start, virtual_cluster, wait_for};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Proves policies/type-checking.
#[tokio::test(start_paused = true)]
async fn status_has_the_warnings_of_the_type_checker() {
    let (cluster, _) = start(virtual_cluster()).await;
    let policies = Api::<ValidatingAdmissionPolicy>::all(cluster.client());
    let policy = json!({ "metadata": { "name": "p" }, "spec": {
        "matchConstraints": { "resourceRules": [{ "operations": ["CREATE"], "apiGroups": ["apps"],
            "apiVersions": ["v1"], "resources": ["deployments"] }] },
        "validations": [
            { "expression": "object.spec.replicas > 1" },
            { "expression": "object.spec.replicas == 'one'",
                "messageExpression": "string(object.metadata.nam)" }],
    }});
    let policy = serde_json::from_value(policy).unwrap();
    policies
        .create(&PostParams::default(), &policy)
        .await
        .unwrap();
    let status = async |generation: i64| {
        wait_for("the type check", async || {
            let status = policies.get("p").await.unwrap().status?;
            (status.observed_generation == Some(generation)).then_some(status)
        })
        .await
    };
    let warnings = status(1)
        .await
        .type_checking
        .unwrap()
        .expression_warnings
        .unwrap();
    let shown: Vec<(&str, &str)> = warnings
        .iter()
        .map(|warning| (warning.field_ref.as_str(), warning.warning.as_str()))
        .collect();
    assert_eq!(
        shown[0],
        (
            "spec.validations[1].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_==_' \
             applied to '(int, string)'\n | object.spec.replicas == 'one'\n \
             | .....................^\n"
        )
    );
    assert_eq!(shown[1].0, "spec.validations[1].messageExpression");
    assert!(
        shown[1].1.contains("undefined field 'nam'"),
        "{}",
        shown[1].1
    );
    assert_eq!(shown.len(), 2);
    let fixed =
        json!({ "spec": { "validations": [{ "expression": "object.spec.replicas > 2" }] } });
    let params = PatchParams::default();
    policies
        .patch("p", &params, &Patch::Merge(&fixed))
        .await
        .unwrap();
    let checked = status(2).await.type_checking;
    assert!(
        checked
            .and_then(|checked| checked.expression_warnings)
            .is_none_or(|w| w.is_empty())
    );
    cluster.stop().await;
}
