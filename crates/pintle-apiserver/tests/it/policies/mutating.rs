//! Mutating admission policies.

use pintle_apiserver::{AdmissionResponse, Webhook};
use serde_json::{Value, json};

use super::{config_maps, create};
use crate::support::{self, CONFIG_MAPS, DEPLOYMENTS, Http, causes, config_map, http, server};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn policy(name: &str, mutations: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"matchConstraints": config_maps(),
        "mutations": mutations, "reinvocationPolicy": "Never"}})
}

async fn bind(http: &Http, policy: &Value) {
    create(http, POLICIES, policy).await;
    let name = policy["metadata"]["name"].as_str().unwrap();
    let binding = json!({"metadata": {"name": format!("{name}-binding")},
        "spec": {"policyName": name}});
    create(http, BINDINGS, &binding).await;
}

fn deployment() -> Value {
    let mut deployment = support::deployment("d");
    let container = json!({"name": "main", "image": "one"});
    deployment["spec"]["template"]["spec"]["containers"][0] = container;
    deployment
}

fn for_deployments(mutations: &Value) -> Value {
    let mut policy = policy("d", mutations);
    policy["spec"]["matchConstraints"]["resourceRules"][0] = json!({"operations": ["CREATE"],
        "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    policy
}

/// Proves mutating-policies/mutations.
#[tokio::test]
async fn match_conditions_decide_whether_a_policy_mutates() {
    let server = server();
    let http = http(&server);
    let label = apply("Object{metadata: Object.metadata{labels: {'by': 'policy'}}}");
    let mut policy = policy("c", &json!([label]));
    policy["spec"]["matchConditions"] =
        json!([{"name": "c", "expression": "object.metadata.name == 'wanted'"}]);
    bind(&http, &policy).await;
    for (name, expected) in [("wanted", json!("policy")), ("other", Value::Null)] {
        let (code, stored) = http.post(CONFIG_MAPS, &config_map(name)).await;
        assert_eq!(code, 201, "{stored}");
        assert_eq!(stored["metadata"]["labels"]["by"], expected, "{name}");
    }
}

/// Proves mutating-policies/mutations.
#[tokio::test]
async fn apply_configuration_merges_lists_by_key() {
    let server = server();
    let http = http(&server);
    let expression = "Object{
        metadata: Object.metadata{labels: {'added': object.metadata.name}},
        spec: Object.spec{
            ?paused: optional.none(),
            template: Object.spec.template{spec: Object.spec.template.spec{
                containers: [
                    Object.spec.template.spec.containers{name: 'side', image: 'two'},
                    Object.spec.template.spec.containers{name: 'main', tty: true}]}}}}";
    bind(&http, &for_deployments(&json!([apply(expression)]))).await;
    let (code, created) = http.post(DEPLOYMENTS, &deployment()).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["labels"], json!({"added": "d"}));
    let containers = created["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    let shown: Vec<Value> = containers
        .iter()
        .map(|c| json!([c["name"], c["image"], c["tty"], c["imagePullPolicy"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["side", "two", null, "Always"]),
            json!(["main", "one", true, "Always"])
        ]
    );
}

/// Proves mutating-policies/mutations.
#[tokio::test]
async fn apply_configuration_must_fit_the_schema() {
    let server = server();
    let http = http(&server);
    let cases = [
        (
            "Object{spec: Object.spec{template: Object.spec.wrong{}}}",
            "type mismatch: unexpected type name \"Object.spec.wrong\", expected \
             \"Object.spec.template\", which matches field name path from root Object type",
        ),
        (
            "Object{spec: Object.spec{replica: 1}}",
            "error applying patch: failed to convert patch object to typed object: .spec.replica: \
             field not declared in schema",
        ),
        (
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'c': 'd'}}}}",
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps \
             or structs: .spec.selector",
        ),
    ];
    for (expression, why) in cases {
        bind(&http, &for_deployments(&json!([apply(expression)]))).await;
        let (code, status) = http.post(DEPLOYMENTS, &deployment()).await;
        assert_eq!(
            (code, &status["reason"]),
            (403, &json!("Invalid")),
            "{status}"
        );
        let message = format!("policy 'd' with binding 'd-binding' denied request: {why}");
        assert_eq!(status["message"], message);
        assert_eq!(causes(&status), [format!(": {message}")]);
        assert_eq!(http.delete(&format!("{POLICIES}/d")).await.0, 200);
        assert_eq!(http.delete(&format!("{BINDINGS}/d-binding")).await.0, 200);
    }
}

/// Proves mutating-policies/mutations.
#[tokio::test]
async fn json_patch_changes_the_object() {
    let server = server();
    let http = http(&server);
    let mutations = json!([
        json_patch(
            "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'b'}},
              JSONPatch{op: 'add', value: 'x',
                path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/c')},
              JSONPatch{op: 'copy', from: '/data/k', path: '/data/copied'}]"
        ),
        // If a `test` operation fails, the whole patch is skipped.
        json_patch(
            "[JSONPatch{op: 'test', path: '/data/k', value: 'other'},
              JSONPatch{op: 'remove', path: '/data/k'}]"
        ),
        // The next mutation sees the result.
        json_patch(
            "'copied' in object.data ?
              [JSONPatch{op: 'add', path: '/metadata/labels', value: {'seen': 'yes'}}] :
              [JSONPatch{op: 'remove', path: '/data'}]"
        ),
    ]);
    bind(&http, &policy("p", &mutations)).await;
    let (code, created) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["data"], json!({"k": "v", "copied": "v"}));
    let annotations = json!({"a": "b", "example.com/c": "x"});
    assert_eq!(created["metadata"]["annotations"], annotations);
    assert_eq!(created["metadata"]["labels"], json!({"seen": "yes"}));
}

/// Proves admission/mutating-order.
#[tokio::test]
async fn policies_see_each_other_and_run_again_if_needed() {
    let server = server();
    let http = http(&server);
    let trace = |step: &str| {
        json_patch(&format!(
            "[JSONPatch{{op: 'add', path: '/data/trace',
                value: object.data[?'trace'].orValue('') + '{step}'}}]"
        ))
    };
    let mut first = policy("a", &json!([trace("a")]));
    first["spec"]["reinvocationPolicy"] = "IfNeeded".into();
    bind(&http, &first).await;
    bind(&http, &policy("b", &json!([trace("b")]))).await;
    let (code, created) = http.post(CONFIG_MAPS, &config_map("m")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["data"]["trace"], "aba");
    // Webhooks run later, and their changes make `IfNeeded` policies run again.
    let webhook = Webhook::mutating("w.example.com", |request| async move {
        let before = request.object()["data"]["trace"]
            .as_str()
            .unwrap()
            .to_owned();
        let patch = json!([{"op": "add", "path": "/data/trace", "value": before + "w"}]);
        AdmissionResponse::allow().patch(patch)
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _registration = server.register_webhook(&webhook).unwrap();
    let (code, created) = http.post(CONFIG_MAPS, &config_map("n")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["data"]["trace"], "abwa");
}

/// Proves admission/failure-policy.
#[tokio::test]
async fn failing_mutation_rejects_the_write_or_is_ignored() {
    let server = server();
    let http = http(&server);
    let broken = json!([json_patch(
        "[JSONPatch{op: 'remove', path: '/data/missing'}]"
    )]);
    bind(&http, &policy("p", &broken)).await;
    let (code, status) = http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(code, 403, "{status}");
    let message = status["message"].as_str().unwrap();
    let start = "policy 'p' with binding 'p-binding' denied request: JSON Patch: ";
    assert!(message.starts_with(start), "{message}");
    let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
    assert_eq!(http.merge(&format!("{POLICIES}/p"), &ignore).await.0, 200);
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves admission/configuration.
#[tokio::test]
async fn mutations_are_type_checked_when_stored() {
    let server = server();
    let http = http(&server);
    let mutations = json!([
        apply("'text'"),
        json_patch("[]"),
        json_patch("[JSONPatch{op: 1}]"),
        {"patchType": "JSONPatch"},
        apply("Unknown{}")
    ]);
    let mut refused = policy("p", &mutations);
    refused["spec"]["reinvocationPolicy"] = "Sometimes".into();
    refused["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
    let (code, status) = http.post(POLICIES, &refused).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": \
             supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"'text'\": must \
             evaluate to Object but got string",
            "spec.mutations[1].jsonPatch.expression: Invalid value: \"[]\": must evaluate to \
             list(JSONPatch) but got list(dyn)",
            "spec.mutations[2].jsonPatch.expression: Invalid value: \"[JSONPatch{op: 1}]\": \
             compilation failed: ERROR: <input>:1:14: expected type of field 'op' is 'string' but \
             provided type is 'int'\n | [JSONPatch{op: 1}]\n | .............^",
            "spec.mutations[3].jsonPatch: Required value: must be specified when patchType is \
             JSONPatch",
            "spec.mutations[4].applyConfiguration.expression: Invalid value: \"Unknown{}\": \
             compilation failed: ERROR: <input>:1:8: undeclared reference to 'Unknown' (in \
             container '')\n | Unknown{}\n | .......^",
            "spec.reinvocationPolicy: Unsupported value: \"Sometimes\": supported values: \
             \"IfNeeded\", \"Never\"",
        ]
    );
}
