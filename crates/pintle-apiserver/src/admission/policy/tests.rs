use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::ServiceExt;

use super::*;
use crate::{ApiServer, ApiService, Body};

async fn send(service: &ApiService, method: &str, path: &str, body: &Value) -> Response<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    service.clone().oneshot(request).await.unwrap()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Stores a policy with its binding.
async fn enforce(service: &ApiService, spec: Value) {
    let spec = {
        let mut spec = spec;
        spec["matchConstraints"] = json!({"resourceRules": [{"operations": ["CREATE"],
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
        spec
    };
    let bound = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (plural, spec) in [
        ("validatingadmissionpolicies", spec),
        ("validatingadmissionpolicybindings", bound),
    ] {
        let path = format!("/apis/{GROUP}/v1/{plural}");
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        let response = send(service, "POST", &path, &object).await;
        assert_eq!(response.status(), 201);
    }
}

/// Proves policies/bounds.
#[tokio::test]
async fn number_of_stacks_for_variables_is_limited() {
    let service = ApiServer::builder().build().service();
    let variables = json!([{"name": "v", "expression": "true"}]);
    let validations = json!([{"expression": "variables.v"}]);
    enforce(
        &service,
        json!({"variables": variables, "validations": validations}),
    )
    .await;
    let stacks = &service.api().policies.stacks;
    let all = u32::try_from(MAX_STACKS).unwrap();
    let taken = stacks.acquire_many(all).await.unwrap();
    let object = json!({"metadata": {"name": "a"}});
    let write = send(&service, "POST", CONFIG_MAPS, &object);
    tokio::pin!(write);
    assert!(futures::poll!(&mut write).is_pending());
    // Requests that evaluate no variables do not wait.
    let other = send(&service, "GET", CONFIG_MAPS, &Value::Null).await;
    assert_eq!(other.status(), 200);
    assert!(futures::poll!(&mut write).is_pending());
    drop(taken);
    assert_eq!(write.await.status(), 201);
    assert_eq!(stacks.available_permits(), MAX_STACKS);
}

/// Proves policies/deny.
#[test]
fn policy_changed_while_compiling_is_recompiled() {
    let spec = |expression: &str| json!({"validations": [{"expression": expression}]});
    let phase = Phase::new(false);
    phase.replace(true, "b", || Some(json!({"policyName": "p"})));
    let mut reads = ["1 > 0", "2 > 0", "2 > 0"].iter();
    phase.replace(false, "p", || {
        assert!(
            phase.sources.is_locked(),
            "state is read outside the lock, so an older one may be published last"
        );
        reads.next().map(|expression| spec(expression))
    });
    assert_eq!(phase.current()[0].policy.spec, spec("2 > 0"));
    assert!(reads.next().is_none());
    // A policy that is already compiled is not compiled again.
    let compiled = Arc::clone(&phase.current()[0].policy);
    phase.replace(false, "p", || Some(spec("2 > 0")));
    assert!(Arc::ptr_eq(&compiled, &phase.current()[0].policy));
    // It may also be deleted in the meantime.
    let mut reads = [Some(spec("3 > 0")), None].into_iter();
    phase.replace(false, "p", || reads.next().flatten());
    assert!(phase.is_empty());
}
