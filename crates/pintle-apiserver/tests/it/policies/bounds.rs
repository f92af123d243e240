//! Policies that try to exhaust the stack, the budget or the time of other requests.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{BINDINGS, POLICIES, binding, config_maps, create, enforce, message, policy};
use crate::support::{CONFIG_MAPS, config_map, http, labelled, server};

/// Proves policies/matching.
#[tokio::test]
async fn many_nested_variables_do_not_overflow_the_stack() {
    let server = server();
    let http = http(&server);
    let nested = |count: usize| {
        let each = (0..count).map(|i| {
            let expression = match i {
                0 => "1".to_owned(),
                i => format!("variables.v{} + 1", i - 1),
            };
            json!({"name": format!("v{i}"), "expression": expression})
        });
        let last = count - 1;
        let expression = format!("variables.v{last} == {count}");
        json!({"variables": each.collect::<Vec<_>>(),
            "validations": [{"expression": expression}]})
    };
    enforce(&http, nested(400)).await;
    assert_eq!(http.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
    let path = format!("{POLICIES}/p");
    assert_eq!(http.delete(&path).await.0, 200);
    create(&http, POLICIES, &policy("p", nested(2_000))).await;
    let (code, why) = message(&http, &config_map("b")).await;
    assert_eq!(code, 422);
    assert!(why.contains("is nested too deeply"), "{why}");
}

/// Proves cel/budget.
#[tokio::test]
async fn expensive_validations_exhaust_the_budget() {
    let server = server();
    let http = http(&server);
    // Each check costs 350,000 of the 10,000,000 that all validations may cost together.
    let check = "authorizer.path('/a').check('get').allowed()";
    let expression = format!("{check} && {check}");
    let validations: Vec<Value> = (0..15).map(|_| json!({"expression": expression})).collect();
    enforce(&http, json!({"validations": validations})).await;
    let (code, why) = message(&http, &config_map("a")).await;
    assert_eq!(code, 422);
    assert!(
        why.ends_with(
            "denied request: validation failed due to running out of cost budget, no further \
             validation rules will be run"
        ),
        "{why}"
    );
}

/// Everything runs on one thread, so a write that did not yield would complete first.
///
/// Proves policies/bounds.
#[tokio::test(flavor = "current_thread")]
async fn write_with_many_parameters_delays_no_other_request() {
    let server = server();
    let http = http(&server);
    for i in 0..200 {
        create(
            &http,
            CONFIG_MAPS,
            &labelled(&format!("p{i}"), "role", "param"),
        )
        .await;
    }
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.metadata.name != object.metadata.name"}]});
    let by = json!({"selector": {"matchLabels": {"role": "param"}},
        "parameterNotFoundAction": "Deny"});
    create(&http, POLICIES, &policy("p", spec.clone())).await;
    let mut bound = binding("b", "p");
    bound["spec"]["paramRef"] = by.clone();
    create(&http, BINDINGS, &bound).await;
    let order = Mutex::new(Vec::new());
    let write = async |path: &str| {
        let (code, status) = http.post(path, &config_map("x")).await;
        order.lock().unwrap().push("write");
        assert_eq!(code, 201, "{status}");
    };
    let others = async || {
        for i in 0..100 {
            let (code, _) = http.get(&format!("{CONFIG_MAPS}/p{i}")).await;
            assert_eq!(code, 200);
            tokio::task::yield_now().await;
        }
        order.lock().unwrap().push("others");
    };
    tokio::join!(write(CONFIG_MAPS), others());
    assert_eq!(*order.lock().unwrap(), ["others", "write"]);

    // The same applies to policies that change objects.
    assert_eq!(http.delete(&format!("{BINDINGS}/b")).await.0, 200);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "reinvocationPolicy": "Never", "matchConstraints": config_maps(),
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            "Object{data: {'last': params.metadata.name}}"}}]});
    let mutating = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    create(&http, mutating, &policy("m", spec)).await;
    let bound = json!({"metadata": {"name": "m"}, "spec": {"policyName": "m", "paramRef": by}});
    let bindings = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
    create(&http, bindings, &bound).await;
    order.lock().unwrap().clear();
    let dry_run = format!("{CONFIG_MAPS}?dryRun=All&fieldManager=y");
    let write = async {
        let (code, status) = http.post(&dry_run, &config_map("y")).await;
        order.lock().unwrap().push("write");
        assert_eq!((code, &status["data"]["last"]), (201, &json!("p99")));
    };
    tokio::join!(write, others());
    assert_eq!(*order.lock().unwrap(), ["others", "write"]);
}
