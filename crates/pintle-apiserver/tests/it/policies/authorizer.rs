//! The `authorizer` variable in CEL expressions.

use pintle_apiserver::{AdmissionResponse, Webhook};
use serde_json::{Value, json};

use super::{create, enforce, message};
use crate::support::{CONFIG_MAPS, config_map, http, http_as, server};

/// Proves policies/authorizer.
#[tokio::test]
async fn authorizer_checks_rbac_of_requesting_user() {
    let server = server();
    let admin = http(&server);
    let spec = json!({"validations": [
        {"expression": "authorizer.requestResource.check('delete').allowed()",
            "message": "must be able to delete"},
        {"expression": "authorizer.group('').resource('secrets').namespace('default').check('get')\
            .allowed()", "message": "must be able to read secrets"},
        {"expression": "!authorizer.serviceAccount('default', 'none').path('/metrics')\
            .check('get').allowed()", "message": "metrics are secret"}]});
    enforce(&admin, spec).await;
    let role = |verbs: Value, resource: &str| {
        json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": [resource],
            "verbs": verbs}]})
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    create(&admin, roles, &role(json!(["create"]), "configmaps")).await;
    let bound = json!({"metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    create(&admin, bindings, &bound).await;
    let jo = http_as(&server, "jo");
    let (_, why) = message(&jo, &config_map("a")).await;
    assert!(why.ends_with("must be able to delete"), "{why}");
    let path = format!("{roles}/r");
    let both = role(json!(["create", "delete"]), "configmaps");
    assert_eq!(admin.put(&path, &both).await.0, 200);
    let (_, why) = message(&jo, &config_map("a")).await;
    assert!(why.ends_with("must be able to read secrets"), "{why}");
    let mut all = both;
    all["rules"]
        .as_array_mut()
        .unwrap()
        .push(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}));
    assert_eq!(admin.put(&path, &all).await.0, 200);
    assert_eq!(jo.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}

/// Proves policies/authorizer.
#[tokio::test]
async fn webhook_match_condition_can_use_authorizer() {
    let server = server();
    let webhook = Webhook::validating("deny.example.com", |_| async {
        AdmissionResponse::deny("refused")
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .field(
        "matchConditions",
        json!([{"name": "not-breakglass", "expression":
            "!authorizer.group('example.com').resource('walls').check('break').allowed()"}]),
    );
    let _registration = server.register_webhook(&webhook).unwrap();
    let admin = http(&server);
    assert_eq!(admin.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
    let bound = json!({"metadata": {"name": "jo"}, "roleRef":
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    create(&admin, bindings, &bound).await;
    let role = json!({"metadata": {"name": "edit"}, "rules": [{"apiGroups": [""],
        "resources": ["configmaps"], "verbs": ["create"]}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit";
    assert!(admin.put(path, &role).await.0 < 300);
    let jo = http_as(&server, "jo");
    let (_, why) = message(&jo, &config_map("b")).await;
    assert!(why.ends_with("refused"), "{why}");
    let untyped = Webhook::validating("odd.example.com", |_| async { AdmissionResponse::allow() })
        .rule(["CREATE"], [""], ["v1"], ["configmaps"])
        .field(
            "matchConditions",
            json!([{"name": "typo", "expression": "request.userInfo.usrname == 'jo'"}]),
        );
    let error = server.register_webhook(&untyped).unwrap_err().to_string();
    assert!(error.contains("undefined field 'usrname'"), "{error}");
}

/// Proves policies/authorizer.
#[tokio::test]
async fn authorizer_service_account_lacks_system_authenticated() {
    let server = server();
    let admin = http(&server);
    let role = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""],
        "resources": ["secrets"], "verbs": ["get"]}]});
    create(
        &admin,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &role,
    )
    .await;
    let bound = |name: &str, group: &str| {
        json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]})
    };
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    create(&admin, bindings, &bound("all", "system:authenticated")).await;
    let spec = json!({"validations": [{"message": "cannot read secrets",
        "expression": "authorizer.serviceAccount('default', 'x').group('').resource('secrets')\
            .namespace('default').check('get').allowed()"}]});
    enforce(&admin, spec).await;
    let (_, why) = message(&admin, &config_map("a")).await;
    assert!(why.ends_with("cannot read secrets"), "{why}");
    let own = bound("own", "system:serviceaccounts:default");
    create(&admin, bindings, &own).await;
    assert_eq!(admin.post(CONFIG_MAPS, &config_map("a")).await.0, 201);
}
