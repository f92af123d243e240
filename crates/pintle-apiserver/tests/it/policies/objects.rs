//! Validating admission policies as objects: which writes of them are rejected.

use serde_json::json;

use super::{BINDINGS, POLICIES, binding, create, policy};
use crate::support::{causes, http, http_as, server};

/// Proves admission/configuration.
#[tokio::test]
async fn policy_that_does_not_compile_is_rejected() {
    let server = server();
    let http = http(&server);
    let spec = json!({
        "variables": [{"name": "a-b", "expression": "1"}, {"name": "n", "expression": "request.nme"}],
        "matchConditions": [{"name": "c", "expression": "variables.n == 1"}],
        "validations": [{"expression": "object.x"}, {"expression": "1 == 'a'", "reason": "Odd"},
            {"expression": "true", "messageExpression": "1"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "1"}]});
    let (code, status) = http.post(POLICIES, &policy("p", spec)).await;
    assert_eq!(code, 422);
    let shown = |source: &str, why: &str| format!("Invalid value: {source:?}: {why}");
    let expected = [
        (
            "spec.matchConditions[0].expression",
            shown(
                "variables.n == 1",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in \
                 container '')\n | variables.n == 1\n | ^",
            ),
        ),
        (
            "spec.variables[0].name",
            shown("a-b", "must be a valid CEL identifier"),
        ),
        (
            "spec.variables[1].expression",
            shown(
                "request.nme",
                "compilation failed: ERROR: <input>:1:8: undefined field 'nme'\n | request.nme\n \
                 | .......^",
            ),
        ),
        (
            "spec.validations[0].expression",
            shown("object.x", "must evaluate to bool but got dyn"),
        ),
        (
            "spec.validations[1].expression",
            shown(
                "1 == 'a'",
                "compilation failed: ERROR: <input>:1:3: found no matching overload for '_==_' \
                 applied to '(int, string)'\n | 1 == 'a'\n | ..^",
            ),
        ),
        (
            "spec.validations[1].reason",
            "Unsupported value: \"Odd\": supported values: \"Forbidden\", \"Invalid\", \
             \"RequestEntityTooLarge\""
                .to_owned(),
        ),
        (
            "spec.validations[2].messageExpression",
            shown("1", "must evaluate to string but got int"),
        ),
        (
            "spec.auditAnnotations[0].valueExpression",
            shown(
                "1",
                "must evaluate to one of [string null_type] but got int",
            ),
        ),
    ];
    let expected: Vec<String> = expected
        .into_iter()
        .map(|(field, why)| format!("{field}: {why}"))
        .collect();
    assert_eq!(causes(&status), expected);
    let mut bound = binding("b", "p");
    bound["spec"] = json!({"policyName": "P", "validationActions": ["Deny", "Warn"],
        "paramRef": {}});
    let (_, status) = http.post(BINDINGS, &bound).await;
    let fields: Vec<String> = causes(&status)
        .iter()
        .map(|cause| cause.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.policyName",
            "spec.paramRef",
            "spec.paramRef.parameterNotFoundAction",
            "spec.validationActions"
        ]
    );
}

/// Proves policies/permissions.
#[tokio::test]
async fn user_must_be_able_to_read_the_parameters() {
    let server = server();
    let admin = http(&server);
    let role = json!({"metadata": {"name": "policies"}, "rules": [{"apiGroups": ["*"],
        "resources": ["validatingadmissionpolicies", "validatingadmissionpolicies/status"],
        "verbs": ["*"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    create(&admin, roles, &role).await;
    let bound = json!({"metadata": {"name": "policies"}, "roleRef":
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    create(&admin, bindings, &bound).await;
    let jo = http_as(&server, "jo");
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "validations": [{"expression": "true"}]});
    let (code, status) = jo.post(POLICIES, &policy("p", spec.clone())).await;
    assert_eq!(code, 422);
    let cause = causes(&status).remove(0);
    assert!(
        cause.starts_with("spec.paramKind: Forbidden: user "),
        "{cause}"
    );
    assert!(
        cause.ends_with(
            "must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, \
             apiVersion=v1)"
        ),
        "{cause}"
    );
    create(&admin, POLICIES, &policy("p", spec)).await;
    // A write of the status keeps the stored spec, so other parameters in it do not matter.
    let (_, mut reported) = jo.get(&format!("{POLICIES}/p")).await;
    reported["spec"]["paramKind"]["kind"] = json!("ConfigMap");
    reported["status"] = json!({"observedGeneration": 1});
    let (code, stored) = jo.put(&format!("{POLICIES}/p/status"), &reported).await;
    assert_eq!(code, 200, "{stored}");
    assert_eq!(stored["spec"]["paramKind"]["kind"], "Secret");
}
