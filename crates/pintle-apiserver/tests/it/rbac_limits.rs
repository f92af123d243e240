//! Edge cases of permissions: scopes, escalation and impersonation.

use crate::support::*;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

fn rbac(verbs: &[&str], resources: &[&str], names: &[&str]) -> Value {
    json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": resources, "verbs": verbs,
        "resourceNames": names})
}

/// Proves rbac/enforced.
#[tokio::test]
async fn role_applies_in_its_own_namespace() {
    let server = server();
    let admin = http(&server);
    created(
        &admin,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await;
    let list =
        |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]);
    // Roles of the same name in both namespaces.
    let roles = |namespace: &str| format!("{RBAC}/namespaces/{namespace}/roles");
    let bindings = |namespace: &str| format!("{RBAC}/namespaces/{namespace}/rolebindings");
    created(&admin, &roles("default"), &role("r", &list("configmaps"))).await;
    created(&admin, &roles("other"), &role("r", &list("secrets"))).await;
    let subjects = [subject("User", "joe"), subject("User", "jane")];
    created(
        &admin,
        &bindings("other"),
        &binding("b", "Role/r", &subjects),
    )
    .await;
    let jane = http_as(&server, "jane");
    for (path, code) in [
        ("/api/v1/namespaces/other/secrets", 200),
        ("/api/v1/namespaces/other/configmaps", 403),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/api/v1/namespaces/default/configmaps", 403),
    ] {
        assert_eq!(jane.get(path).await.0, code, "{path}");
    }
    // The reason names the subject that matched, not the first.
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let spec = json!({"spec": {"resourceAttributes":
        {"verb": "list", "resource": "secrets", "namespace": "other"}}});
    let (_, review) = jane.post(review, &spec).await;
    let reason = "RBAC: allowed by RoleBinding \"b/other\" of Role \"r\" to User \"jane\"";
    assert_eq!(review["status"]["reason"], reason);
    // A subject that is removed loses its permissions, and the others keep theirs.
    let fewer = json!({"subjects": [subject("User", "joe")]});
    admin
        .merge(&format!("{}/b", bindings("other")), &fewer)
        .await;
    let secrets = "/api/v1/namespaces/other/secrets";
    assert_eq!(jane.get(secrets).await.0, 403);
    assert_eq!(http_as(&server, "joe").get(secrets).await.0, 200);
}

/// Proves rbac/enforced.
#[tokio::test]
async fn namespace_subresources_belong_to_the_namespace() {
    let server = server();
    let admin = http(&server);
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces/status"],
        "verbs": ["get"], "resourceNames": ["default"]}]);
    grant_cluster(&admin, "jane", &rules).await;
    let jane = http_as(&server, "jane");
    assert_eq!(jane.get("/api/v1/namespaces/default/status").await.0, 200);
    assert_eq!(jane.get("/api/v1/namespaces/default").await.0, 403);
    assert_eq!(
        jane.get("/api/v1/namespaces/kube-system/status").await.0,
        403
    );
}

/// Proves rbac/escalation.
#[tokio::test]
async fn escalate_can_be_limited_to_one_role() {
    let server = server();
    let admin = http(&server);
    let all = json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}]);
    let rules = json!([rbac(&["create", "update", "patch", "get"], &["clusterroles"], &[]),
        rbac(&["escalate"], &["clusterroles"], &["mine"]),
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    grant_cluster(&admin, "jane", &rules).await;
    let roles = format!("{RBAC}/clusterroles");
    created(&admin, &roles, &role("mine", &json!([]))).await;
    created(&admin, &roles, &role("yours", &json!([]))).await;
    let jane = http_as(&server, "jane");
    let wider = json!({"rules": all});
    assert_eq!(jane.merge(&format!("{roles}/mine"), &wider).await.0, 200);
    assert_eq!(jane.merge(&format!("{roles}/yours"), &wider).await.0, 403);
    // Permissions do not extend to a resource of the same name in another group.
    let pods = json!([{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["get"]}]);
    assert_eq!(jane.post(&roles, &role("pods", &pods)).await.0, 403);
}

/// Proves rbac/escalation.
#[tokio::test]
async fn permissions_in_one_namespace_grant_nothing_in_another() {
    let server = server();
    let admin = http(&server);
    created(
        &admin,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await;
    grant_cluster(&admin, "jane", &json!([rbac(&["create"], &["roles"], &[])])).await;
    let get = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let local = |namespace: &str, plural: &str| format!("{RBAC}/namespaces/{namespace}/{plural}");
    created(&admin, &local("default", "roles"), &role("get", &get)).await;
    let subjects = [subject("User", "jane")];
    let bound = binding("get", "Role/get", &subjects);
    created(&admin, &local("default", "rolebindings"), &bound).await;
    let lost = binding("lost", "Role/lost", &subjects);
    created(&admin, &local("other", "rolebindings"), &lost).await;
    let jane = http_as(&server, "jane");
    created(&jane, &local("default", "roles"), &role("new", &get)).await;
    let (code, status) = jane
        .post(&local("other", "roles"), &role("new", &get))
        .await;
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap();
    let end = "; resolution errors: [roles.rbac.authorization.k8s.io \"lost\" not found]";
    assert!(message.ends_with(end), "{message}");
}

/// Proves rbac/escalation.
#[tokio::test]
async fn removing_an_aggregation_rule_needs_permission() {
    let server = server();
    let admin = http(&server);
    grant_cluster(
        &admin,
        "jane",
        &json!([rbac(&["update", "patch", "get"], &["clusterroles"], &[])]),
    )
    .await;
    let roles = format!("{RBAC}/clusterroles");
    let mut aggregated = role("all", &json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    created(&admin, &roles, &aggregated).await;
    let jane = http_as(&server, "jane");
    let plain = json!({"aggregationRule": null, "rules": []});
    let (code, status) = jane.merge(&format!("{roles}/all"), &plain).await;
    assert_eq!(code, 403, "{status}");
}

/// Returns the code and the user that a request acts as, or the message.
async fn who(http: &Http, headers: &[(&str, &str)]) -> (u16, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut request = http::Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new("{}".into())).unwrap();
    let response = http.send(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    match code {
        201 => (code, body["status"]["userInfo"].clone()),
        _ => (code, body["message"].clone()),
    }
}

fn authentication(verb: &str, resources: &[&str], names: &[&str]) -> Value {
    json!({"apiGroups": ["authentication.k8s.io"], "resources": resources, "verbs": [verb],
        "resourceNames": names})
}

/// Proves rbac/impersonation.
#[tokio::test]
async fn constrained_impersonation_of_attributes_is_limited() {
    let server = server();
    let admin = http(&server);
    let verb = "impersonate:user-info";
    let rules = json!([
        authentication(
            "impersonate-on:user-info:create",
            &["selfsubjectreviews"],
            &[]
        ),
        authentication(verb, &["users"], &["bob"]),
        authentication(verb, &["groups", "userextras/*"], &["*"]),
        authentication(verb, &["groups"], &["red", "system:masters", ""]),
        authentication(
            verb,
            &[
                "userextras/example.com/a",
                "userextras/Example.com/A",
                "userextras/plain"
            ],
            &["x", ""]
        ),
    ]);
    grant_cluster(&admin, "jane", &rules).await;
    let jane = http_as(&server, "jane");
    let bob = ("impersonate-user", "bob");
    let group = |name| ("impersonate-group", name);
    assert_eq!(who(&jane, &[bob, group("red")]).await.0, 201);
    let extra = ("impersonate-extra-example.com%2fa", "x");
    assert_eq!(who(&jane, &[bob, extra]).await.0, 201);
    for (headers, why) in [
        (
            vec![bob, group("system:masters")],
            "impersonating the system:masters group is not allowed",
        ),
        (
            vec![bob, group("")],
            "impersonating the empty string group is not allowed",
        ),
        (
            vec![bob, ("impersonate-extra-plain", "x")],
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \
             \"plain\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            vec![bob, ("impersonate-extra-example.com%2f%41", "x")],
            "impersonating a non-lowercase key in extra is not allowed: \"example.com/A\"",
        ),
        (
            vec![bob, ("impersonate-extra-example.com%2fa", "")],
            "impersonating the empty string value in extra is not allowed",
        ),
    ] {
        let (code, message) = who(&jane, &headers).await;
        let message = message.as_str().unwrap();
        assert_eq!(code, 403, "{message}");
        assert!(message.ends_with(why), "{message}");
    }
    // A permission for all groups or values suffices for many of them, but not for a few.
    let few = ["g1", "g2", "g3"].map(group);
    let many = ["g1", "g2", "g3", "g4"].map(group);
    assert_eq!(who(&jane, &[&[bob], few.as_slice()].concat()).await.0, 403);
    assert_eq!(who(&jane, &[&[bob], many.as_slice()].concat()).await.0, 201);
    let values = ["1", "2", "3", "4"].map(|value| ("impersonate-extra-example.com%2fb", value));
    assert_eq!(who(&jane, &[&[bob], &values[..3]].concat()).await.0, 403);
    assert_eq!(
        who(&jane, &[&[bob], values.as_slice()].concat()).await.0,
        201
    );
}

/// Proves rbac/impersonation.
#[tokio::test]
async fn each_kind_of_user_has_its_own_mode() {
    let server = server();
    let admin = http(&server);
    let on = |mode: &str| {
        let verb = format!("impersonate-on:{mode}:create");
        authentication(&verb, &["selfsubjectreviews"], &[])
    };
    let rules = json!([
        on("arbitrary-node"),
        on("serviceaccount"),
        on("user-info"),
        authentication("impersonate:arbitrary-node", &["nodes"], &["n1"]),
        authentication(
            "impersonate:serviceaccount",
            &["serviceaccounts"],
            &["robot"]
        ),
        authentication("impersonate:user-info", &["users"], &[]),
    ]);
    grant_cluster(&admin, "jane", &rules).await;
    let robot = "system:serviceaccount:default:robot";
    let jane = http_as(&server, "jane");
    let account = ("impersonate-user", robot);
    let node = ("impersonate-user", "system:node:n1");
    assert_eq!(who(&jane, &[node]).await.0, 201);
    assert_eq!(who(&jane, &[account]).await.0, 201);
    assert_eq!(who(&jane, &[("impersonate-user", "anyone")]).await.0, 201);
    // Permission for any user includes neither nodes nor service accounts, and these can only be
    // impersonated by name, without further attributes.
    for headers in [
        vec![("impersonate-user", "system:node:n2")],
        vec![("impersonate-user", "system:serviceaccount:default:other")],
        vec![node, ("impersonate-group", "red")],
        vec![account, ("impersonate-uid", "1")],
    ] {
        let (code, message) = who(&jane, &headers).await;
        assert_eq!(code, 403, "{headers:?}: {message}");
    }
}

/// Proves rbac/impersonation.
#[tokio::test]
async fn service_account_permissions_are_namespaced() {
    let server = server();
    let admin = http(&server);
    let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"],
        "verbs": ["impersonate"]}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    created(&admin, &roles, &role("act", &rules)).await;
    let bound = binding("act", "Role/act", &[subject("User", "jane")]);
    created(
        &admin,
        &format!("{RBAC}/namespaces/default/rolebindings"),
        &bound,
    )
    .await;
    let jane = http_as(&server, "jane");
    let act = async |name: &str| who(&jane, &[("impersonate-user", name)]).await.0;
    assert_eq!(act("system:serviceaccount:default:a").await, 201);
    assert_eq!(act("system:serviceaccount:other:a").await, 403);
}
