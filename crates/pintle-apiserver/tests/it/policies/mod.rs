//! Admission policies: validations, matching and parameters. Submodules cover the rest.

mod authorizer;
mod bounds;
mod mutating;
mod objects;

use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::Full;
use pintle_apiserver::{ApiServer, AuditEvent, User};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, Http, config_map, http, http_as, labelled, server};

pub(crate) const POLICIES: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(crate) const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Constraints that match writes of config maps.
pub(crate) fn config_maps() -> Value {
    json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""],
        "apiVersions": ["v1"], "resources": ["configmaps"]}]})
}

/// Returns a policy for config maps with these fields of its spec.
pub(crate) fn policy(name: &str, spec: Value) -> Value {
    let mut policy = json!({"metadata": {"name": name}});
    policy["spec"] = spec;
    if policy["spec"]["matchConstraints"].is_null() {
        policy["spec"]["matchConstraints"] = config_maps();
    }
    policy
}

pub(crate) fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

pub(crate) async fn create(http: &Http, path: &str, object: &Value) {
    let (code, created) = http.post(path, object).await;
    assert_eq!(code, 201, "{created}");
}

/// Stores a policy with one binding.
async fn enforce(http: &Http, spec: Value) {
    create(http, POLICIES, &policy("p", spec)).await;
    create(http, BINDINGS, &binding("b", "p")).await;
}

async fn message(http: &Http, object: &Value) -> (u16, String) {
    let (code, answer) = http.post(CONFIG_MAPS, object).await;
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

/// Proves policies/deny.
#[tokio::test]
async fn failed_validation_denies_with_its_reason() {
    let server = server();
    let http = http(&server);
    let validations = json!([
        {"expression": "object.data.k != 'a'"},
        {"expression": "object.data.k != 'b'", "message": "b is taken", "reason": "Forbidden"},
        {"expression": "object.data.k != 'c'", "message": "unused",
            "messageExpression": "'no ' + object.data.k", "reason": "RequestEntityTooLarge"},
        {"expression": "object.data.k != 'd'", "message": "used",
            "messageExpression": "string(object.data.missing)"}]);
    create(
        &http,
        POLICIES,
        &policy("p", json!({"validations": validations})),
    )
    .await;
    let mut object = config_map("x");
    object["data"]["k"] = "a".into();
    // Without a binding a policy has no effect.
    assert_eq!(http.post(CONFIG_MAPS, &object).await.0, 201);
    create(&http, BINDINGS, &binding("b", "p")).await;
    object["metadata"]["name"] = "y".into();
    let denied = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    for (value, code, reason, why) in [
        (
            "a",
            422,
            "Invalid",
            "failed expression: object.data.k != 'a'",
        ),
        ("b", 403, "Forbidden", "b is taken"),
        ("c", 413, "RequestEntityTooLarge", "no c"),
        ("d", 422, "Invalid", "used"),
    ] {
        object["data"]["k"] = value.into();
        let (found, status) = http.post(CONFIG_MAPS, &object).await;
        assert_eq!((found, &status["reason"]), (code, &json!(reason)));
        let message = format!("configmaps \"y\" is forbidden: {denied}{why}");
        assert_eq!(status["message"], message);
        let details = json!({"name": "y", "kind": "configmaps",
            "causes": [{"message": format!("{denied}{why}")}]});
        assert_eq!(status["details"], details);
    }
    object["data"]["k"] = "e".into();
    assert_eq!(http.post(CONFIG_MAPS, &object).await.0, 201);
    // A deletion takes effect immediately.
    assert_eq!(http.delete(&format!("{BINDINGS}/b")).await.0, 200);
    object["data"]["k"] = "a".into();
    assert_eq!(http.put(&format!("{CONFIG_MAPS}/y"), &object).await.0, 200);
}

/// Proves policies/deny.
#[tokio::test]
async fn failure_policy_decides_about_errors() {
    let server = server();
    let http = http(&server);
    let spec = |policy: &str| {
        json!({"failurePolicy": policy,
            "validations": [{"expression": "object.data.missing == 'x'"}]})
    };
    enforce(&http, spec("Fail")).await;
    let (code, why) = message(&http, &config_map("a")).await;
    assert_eq!(code, 422);
    assert_eq!(
        why,
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
         request: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    );
    let path = format!("{POLICIES}/p");
    let changed = json!({"spec": {"failurePolicy": "Ignore"}});
    assert_eq!(http.merge(&path, &changed).await.0, 200);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves policies/deny.
#[tokio::test]
async fn binding_can_warn_instead_of_denying() {
    let server = server();
    let http = http(&server);
    let spec = json!({"validations": [{"expression": "false", "message": "never"}]});
    create(&http, POLICIES, &policy("p", spec)).await;
    let mut bound = binding("b", "p");
    bound["spec"]["validationActions"] = json!(["Warn", "Audit"]);
    create(&http, BINDINGS, &bound).await;
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .body(Full::new(config_map("a").to_string().into()))
        .unwrap();
    let response = http.send(request).await;
    assert_eq!(response.status(), 201);
    assert_eq!(
        response.headers()["warning"],
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never\""
    );
}

/// Proves audit/annotations.
#[tokio::test]
async fn audit_annotations_are_in_the_event() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let builder = ApiServer::builder().audit(move |event| seen.lock().unwrap().push(event));
    let server = builder.build();
    let http = http(&server);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
            "apiVersions": ["v1"], "resources": ["secrets"]}]},
        "validations": [{"expression": "true"}, {"expression": "false", "message": "no"}],
        "auditAnnotations": [
            {"key": "by", "valueExpression": "'limited by ' + params.metadata.name"},
            {"key": "none", "valueExpression": "null"}]});
    create(&http, POLICIES, &policy("p.example.com", spec)).await;
    for name in ["a", "b"] {
        create(&http, CONFIG_MAPS, &config_map(name)).await;
    }
    let mut bound = binding("b", "p.example.com");
    bound["spec"]["validationActions"] = json!(["Audit"]);
    bound["spec"]["paramRef"] = json!({"selector": {"matchExpressions": [{"key": "c",
        "operator": "DoesNotExist"}]}, "parameterNotFoundAction": "Deny"});
    create(&http, BINDINGS, &bound).await;
    let secret = json!({"metadata": {"name": "s"}});
    let (code, answer) = http
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await;
    assert_eq!(code, 201, "{answer}");
    let event: AuditEvent = events.lock().unwrap().pop().unwrap();
    let annotation = |key: &str| event.annotations.get(key).map(String::as_str);
    let by = annotation("p.example.com/by").unwrap();
    assert!(by.ends_with("limited by a, limited by b"), "{by}");
    assert_eq!(annotation("p.example.com/none"), None);
    assert_eq!(
        annotation("validation.policy.admission.k8s.io/validation_failure"),
        Some(
            r#"[{"message":"no","policy":"p.example.com","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]"#
        )
    );
}

/// Proves policies/matching.
#[tokio::test]
async fn constraints_of_policy_and_binding_must_both_match() {
    let server = server();
    let http = http(&server);
    let mut constraints = config_maps();
    constraints["objectSelector"] = json!({"matchLabels": {"team": "a"}});
    constraints["excludeResourceRules"] = json!([{"operations": ["*"], "apiGroups": [""],
        "apiVersions": ["*"], "resources": ["configmaps"], "resourceNames": ["free"]}]);
    let spec = json!({"matchConstraints": constraints, "validations": [{"expression": "false"}],
        "matchConditions": [{"name": "not-system", "expression":
            "!request.userInfo.username.startsWith('system:')"}]});
    create(&http, POLICIES, &policy("p", spec)).await;
    let mut bound = binding("b", "p");
    bound["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}});
    create(&http, BINDINGS, &bound).await;
    let elsewhere = "/api/v1/namespaces/kube-public/configmaps";
    for (path, name, team, code) in [
        (CONFIG_MAPS, "x", "a", 422),
        (CONFIG_MAPS, "x", "b", 201),
        (CONFIG_MAPS, "free", "a", 201),
        (elsewhere, "x", "a", 201),
    ] {
        let (found, answer) = http.post(path, &labelled(name, "team", team)).await;
        assert_eq!(found, code, "{path} {name} {team}: {answer}");
    }
    let system = http_as(&server, User::new("system:test").group("system:masters"));
    let free = labelled("y", "team", "a");
    assert_eq!(system.post(CONFIG_MAPS, &free).await.0, 201);
}

/// Proves policies/matching.
#[tokio::test]
async fn variables_are_evaluated_when_they_are_used() {
    let server = server();
    let http = http(&server);
    let spec = json!({
        "variables": [
            {"name": "value", "expression": "object.data.k"},
            {"name": "broken", "expression": "object.data.missing"},
            {"name": "long", "expression": "variables.value.size() > 3"}],
        "validations": [
            {"expression": "!variables.long || variables.broken == 'x'",
                "messageExpression": "'long: ' + variables.value"},
            {"expression": "namespaceObject.metadata.name == 'default'"}]});
    enforce(&http, spec).await;
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
    let mut long = config_map("b");
    long["data"]["k"] = "long enough".into();
    let (code, why) = message(&http, &long).await;
    assert_eq!(code, 422);
    assert!(
        why.ends_with(
            "resulted in error: composited variable \"broken\" fails to evaluate: no such key: \
             missing"
        ),
        "{why}"
    );
}

/// Proves policies/matching.
#[tokio::test]
async fn parameters_come_from_the_objects_a_binding_refers_to() {
    let server = server();
    let http = http(&server);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
            "apiVersions": ["v1"], "resources": ["secrets"]}]},
        "validations": [{"expression": "params == null || object.type != params.data.k",
            "messageExpression": "params.metadata.name + ' refuses'"}]});
    create(&http, POLICIES, &policy("p", spec)).await;
    let mut bound = binding("b", "p");
    bound["spec"]["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    create(&http, BINDINGS, &bound).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str| json!({"metadata": {"name": name}, "type": "v"});
    let denied = |why: &str| {
        format!(
            "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
             request: {why}"
        )
    };
    let (code, status) = http.post(secrets, &secret("s")).await;
    assert_eq!(code, 422);
    let missing = "failed to configure binding: no params found for policy binding with `Deny` \
                   parameterNotFoundAction";
    assert_eq!(status["message"], denied(missing));
    create(&http, CONFIG_MAPS, &config_map("limits")).await;
    let (_, status) = http.post(secrets, &secret("s")).await;
    assert_eq!(status["message"], denied("limits refuses"));
    // With a selector, the policy applies once per selected object, so not at all if there is none.
    let by_label = json!({"spec": {"paramRef": {"name": null, "parameterNotFoundAction": "Allow",
        "selector": {"matchLabels": {"limits": "yes"}}}}});
    let path = format!("{BINDINGS}/b");
    assert_eq!(http.merge(&path, &by_label).await.0, 200);
    assert_eq!(http.post(secrets, &secret("free")).await.0, 201);
    let mut selected = labelled("selected", "limits", "yes");
    selected["data"] = json!({"k": "v"});
    create(&http, CONFIG_MAPS, &selected).await;
    let (_, status) = http.post(secrets, &secret("s")).await;
    assert_eq!(status["message"], denied("selected refuses"));
}

/// Proves policies/matching.
#[tokio::test]
async fn unknown_parameter_kind_fails_the_policy() {
    let server = server();
    let http = http(&server);
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "true"}]});
    enforce(&http, spec).await;
    let (code, why) = message(&http, &config_map("a")).await;
    assert_eq!(code, 422);
    assert_eq!(
        why,
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to \
         configure policy: failed to find resource referenced by paramKind: 'example.com/v1, \
         Kind=Limit'"
    );
}

/// Proves policies/matching.
#[tokio::test]
async fn has_finds_only_declared_variables() {
    let server = server();
    let http = http(&server);
    let spec = json!({
        "variables": [{"name": "broken", "expression": "object.data.missing"}],
        "validations": [
            {"expression": "has(dyn(variables).broken) && !has(dyn(variables).other)"},
            {"expression": "!has(dyn(variables).other) || dyn(variables).other"}]});
    enforce(&http, spec).await;
    let (code, answer) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 201, "{answer}");
}

/// Proves admission/exempt.
#[tokio::test]
async fn no_policy_applies_to_reviews() {
    let server = server();
    let http = http(&server);
    let everything = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"],
        "apiVersions": ["*"], "resources": ["*"]}]});
    let spec = json!({"matchConstraints": everything,
        "validations": [{"expression": "false"}]});
    enforce(&http, spec).await;
    assert_eq!(message(&http, &config_map("a")).await.0, 422);
    let mutating = json!({"metadata": {"name": "m"}, "spec": {
        "matchConstraints": everything, "reinvocationPolicy": "Never", "mutations": [{
            "patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'replace', path: '/spec/user', value: 'other'}]"}}]}});
    let group = "/apis/admissionregistration.k8s.io/v1";
    create(
        &http,
        &format!("{group}/mutatingadmissionpolicies"),
        &mutating,
    )
    .await;
    let bound = json!({"metadata": {"name": "m"}, "spec": {"policyName": "m"}});
    let bindings = format!("{group}/mutatingadmissionpolicybindings");
    create(&http, &bindings, &bound).await;
    assert_eq!(message(&http, &config_map("a")).await.0, 403);
    for (path, spec) in [
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"user": "jo", "resourceAttributes": {"verb": "get", "resource": "pods"}}),
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"resourceAttributes": {"verb": "get", "resource": "pods"}}),
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({"token": "unknown"}),
        ),
    ] {
        let (code, answer) = http.post(path, &json!({"spec": spec})).await;
        assert_eq!(code, 201, "{path}: {answer}");
        if spec["user"] == "jo" {
            assert_eq!(answer["spec"]["user"], "jo");
        }
    }
}

/// Proves policies/deny, admission/failure-policy.
#[tokio::test(start_paused = true)]
async fn failed_conversion_follows_the_failure_policy() {
    let server = server();
    let http = http(&server);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://example.com"}}},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": schema},
            {"name": "v2", "served": true, "storage": false, "schema": schema}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&http, definitions, &definition).await;
    let broken = |_| async { Err("out of order".to_owned()) };
    let _converter = server.register_converter("widgets.example.com", broken);
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!({"matchPolicy": "Equivalent", "resourceRules": [{"operations": ["CREATE"],
        "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["widgets"]}]});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    for (kind, mut spec) in [
        (
            "validating",
            json!({"validations": [{"expression": "true"}]}),
        ),
        (
            "mutating",
            json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch",
                "jsonPatch": {"expression":
                    "[JSONPatch{op: 'test', path: '/kind', value: 'Widget'}]"}}]}),
        ),
    ] {
        spec["matchConstraints"] = rules.clone();
        for failure_policy in ["Fail", "Ignore"] {
            spec["failurePolicy"] = failure_policy.into();
            let name = format!("{kind}-{}", failure_policy.to_lowercase());
            let policies = format!("{group}/{kind}admissionpolicies");
            let policy = json!({"metadata": {"name": name}, "spec": spec});
            create(&http, &policies, &policy).await;
            let mut binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
            if kind == "validating" {
                binding["spec"]["validationActions"] = json!(["Deny"]);
            }
            let bindings = format!("{group}/{kind}admissionpolicybindings");
            create(&http, &bindings, &binding).await;
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": name}});
            let (code, answer) = http.post(widgets, &widget).await;
            let why = answer["message"].as_str().unwrap_or_default();
            if failure_policy == "Ignore" {
                assert_eq!(code, 201, "{answer}");
            } else {
                assert!(matches!(code, 403 | 422), "{answer}");
                assert!(why.contains("failed to configure"), "{why}");
                assert!(why.contains("out of order"), "{why}");
            }
            http.delete(&format!("{policies}/{name}")).await;
            http.delete(&format!("{bindings}/{name}")).await;
        }
    }
}
