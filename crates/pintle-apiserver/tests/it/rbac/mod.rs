//! RBAC: permissions, escalation and reviews.

mod escalation;
mod reviews;

use crate::support::{tls::config_of, *};
use http_body_util::{BodyExt as _, Full};
use pintle_apiserver::{ApiServer, Authorization, User};
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROBOT: &str = "system:serviceaccount:default:robot";

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn robot() -> Value {
    json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
}

/// Gives a user a role of the same name in the namespace `default`, with these rules.
async fn grant(admin: &Http, name: &str, rules: &Value) {
    created(admin, ROLES, &role(name, rules)).await;
    let bound = binding(name, &format!("Role/{name}"), &[user(name)]);
    created(admin, BINDINGS, &bound).await;
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// Proves rbac/enforced.
#[tokio::test]
async fn forbidden_request_gets_upstream_message() {
    let server = server();
    let jane = http_as(&server, "jane");
    let pods = "/api/v1/namespaces/default/pods";
    for (code, status, expected) in [
        {
            let (code, status) = jane.get(&format!("{pods}/p")).await;
            (
                code,
                status,
                "pods \"p\" is forbidden: User \"jane\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"",
            )
        },
        {
            let (code, status) = jane.get("/api/v1/pods").await;
            (
                code,
                status,
                "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
            )
        },
        {
            let (code, status) = jane.get("/apis/example.com/v1/namespaces/ns/foos/x").await;
            (
                code,
                status,
                "foos.example.com \"x\" is forbidden: User \"jane\" cannot get resource \"foos\" in API group \"example.com\" in the namespace \"ns\"",
            )
        },
        {
            let (code, status) = jane.post(&format!("{pods}/p/eviction"), &json!({})).await;
            (
                code,
                status,
                "pods \"p\" is forbidden: User \"jane\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"default\"",
            )
        },
        {
            let (code, status) = jane.delete(pods).await;
            (
                code,
                status,
                "pods is forbidden: User \"jane\" cannot deletecollection resource \"pods\" in API group \"\" in the namespace \"default\"",
            )
        },
        {
            let (code, status) = jane.get("/metrics").await;
            (
                code,
                status,
                "forbidden: User \"jane\" cannot get path \"/metrics\"",
            )
        },
    ] {
        assert_eq!((code, message(&status)), (403, expected));
        assert_eq!(status["reason"], "Forbidden");
    }
    let (_, status) = jane.get(&format!("{pods}/p")).await;
    assert_eq!(status["details"], json!({"name": "p", "kind": "pods"}));
    let (_, status) = jane.get("/metrics").await;
    assert_eq!(status["details"], json!({}));
}

/// Proves rbac/enforced.
#[tokio::test]
async fn body_of_a_forbidden_request_is_not_read() {
    let jane = http_as(&server(), "jane");
    let body = "x".repeat(4 * 1024 * 1024);
    let (code, _) = jane
        .raw("POST", CONFIG_MAPS, "application/json", body)
        .await;
    assert_eq!(code, 403, "not 413");
}

/// Proves rbac/immediate.
#[tokio::test]
async fn permissions_follow_roles_and_bindings() {
    let server = server();
    let (admin, jane) = (http(&server), http_as(&server, "jane"));
    assert_eq!(jane.get(CONFIG_MAPS).await.0, 403);
    grant(&admin, "jane", &json!([rule(&["list"], &["configmaps"])])).await;
    assert_eq!(jane.get(CONFIG_MAPS).await.0, 200);
    assert_eq!(jane.post(CONFIG_MAPS, &config_map("c")).await.0, 403);
    assert_eq!(jane.get("/api/v1/configmaps").await.0, 403);
    assert_eq!(
        jane.get("/api/v1/namespaces/kube-system/configmaps")
            .await
            .0,
        403
    );

    let wider = json!({"rules": [rule(&["list", "create"], &["configmaps"])]});
    admin.merge(&format!("{ROLES}/jane"), &wider).await;
    assert_eq!(jane.post(CONFIG_MAPS, &config_map("c")).await.0, 201);

    admin.delete(&format!("{ROLES}/jane")).await;
    let (code, status) = jane.get(CONFIG_MAPS).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\": RBAC: role.rbac.authorization.k8s.io \"jane\" not found"
        )
    );
    admin.delete(&format!("{BINDINGS}/jane")).await;
    let (_, status) = jane.get(CONFIG_MAPS).await;
    assert!(!message(&status).contains("RBAC"), "{status}");
}

/// Proves rbac/enforced.
#[tokio::test]
async fn names_subresources_and_groups_are_separate_permissions() {
    let server = server();
    let admin = http(&server);
    created(&admin, CONFIG_MAPS, &config_map("mine")).await;
    created(&admin, CONFIG_MAPS, &config_map("other")).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"],
        "resourceNames": ["mine"]}]);
    grant(&admin, "jane", &rules).await;
    let jane = http_as(&server, "jane");
    assert_eq!(jane.get(&format!("{CONFIG_MAPS}/mine")).await.0, 200);
    assert_eq!(jane.get(&format!("{CONFIG_MAPS}/other")).await.0, 403);
    assert_eq!(jane.get(CONFIG_MAPS).await.0, 403);
    for (selector, code) in [
        ("metadata.name%3Dmine", 200),
        ("metadata.name%3D%3Dmine,metadata.namespace%3Ddefault", 200),
        ("metadata.name!%3Dmine", 403),
        ("metadata.name%3Dother", 403),
        ("metadata.name%3D", 403),
        ("metadata.namespace%3Dmine", 403),
    ] {
        let path = format!("{CONFIG_MAPS}?fieldSelector={selector}");
        assert_eq!(jane.get(&path).await.0, code, "{selector}");
    }

    let deployments = json!([{"apiGroups": ["apps"], "resources": ["deployments"],
        "verbs": ["*"]}]);
    grant(&admin, "bob", &deployments).await;
    let bob = http_as(&server, "bob");
    let deployment = "/apis/apps/v1/namespaces/default/deployments/d";
    assert_eq!(bob.get(deployment).await.0, 404);
    assert_eq!(bob.get(&format!("{deployment}/scale")).await.0, 403);
}

/// Proves rbac/enforced.
#[tokio::test]
async fn bindings_apply_to_users_groups_and_service_accounts() {
    let server = server();
    let admin = http(&server);
    let rules = json!([rule(&["list"], &["configmaps"])]);
    created(&admin, CLUSTER_ROLES, &role("reader", &rules)).await;
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "red"});
    let local = json!({"kind": "ServiceAccount", "name": "local"});
    let foreign = json!({"kind": "ServiceAccount", "name": "foreign", "namespace": "other"});
    for (name, subject) in [
        ("u", user("jane")),
        ("g", group),
        ("s", robot()),
        ("l", local),
        ("f", foreign),
    ] {
        let bound = binding(name, "ClusterRole/reader", &[subject]);
        created(&admin, BINDINGS, &bound).await;
    }
    for (who, code) in [
        (User::new("jane"), 200),
        (User::new("joe"), 403),
        (User::new("joe").group("red"), 200),
        (User::new(ROBOT), 200),
        (User::new("system:serviceaccount:default:local"), 200),
        (User::new("system:serviceaccount:other:local"), 403),
        (User::new("system:serviceaccount:other:foreign"), 200),
        (User::new("system:serviceaccount:default:foreign"), 403),
    ] {
        let name = format!("{who:?}");
        let http = http_as(&server, who);
        assert_eq!(http.get(CONFIG_MAPS).await.0, code, "{name}");
        // A RoleBinding grants a ClusterRole in its own namespace only.
        assert_eq!(http.get("/api/v1/configmaps").await.0, 403, "{name}");
    }
    let everywhere = binding("e", "ClusterRole/reader", &[user("joe")]);
    created(&admin, CLUSTER_BINDINGS, &everywhere).await;
    let joe = http_as(&server, "joe");
    assert_eq!(joe.get("/api/v1/configmaps").await.0, 200);
    assert_eq!(joe.get(CONFIG_MAPS).await.0, 200);
}

/// Proves rbac/defaults.
#[tokio::test]
async fn default_roles_cover_discovery_and_self_reviews() {
    let server = server();
    let jane = http_as(&server, "jane");
    for path in [
        "/api",
        "/apis",
        "/version",
        "/healthz",
        "/openapi/v2",
        "/apis/apps/v1",
    ] {
        assert_eq!(jane.get(path).await.0, 200, "{path}");
    }
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let spec = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/livez"}}});
    let (code, review) = jane.post(review, &spec).await;
    assert_eq!(code, 201);
    assert_eq!(review["status"]["allowed"], true);
    assert_eq!(
        review["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\""
    );
    let other = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(jane.post(other, &json!({})).await.0, 403);

    let anonymous = http_as(&server, "system:anonymous");
    for (path, code) in [
        ("/version", 200),
        ("/healthz", 200),
        ("/api", 403),
        ("/apis", 403),
    ] {
        assert_eq!(anonymous.get(path).await.0, code, "{path}");
    }
}

/// Proves rbac/defaults.
#[tokio::test]
async fn masters_need_no_binding() {
    let server = server();
    let admin = http(&server);
    admin
        .delete(&format!("{CLUSTER_BINDINGS}/cluster-admin"))
        .await;
    admin
        .delete(&format!("{CLUSTER_ROLES}/cluster-admin"))
        .await;
    assert_eq!(admin.get("/api/v1/secrets").await.0, 200);
    let chief = http_as(&server, User::new("chief").group("system:masters"));
    assert_eq!(chief.get("/api/v1/secrets").await.0, 200);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    created(&chief, CLUSTER_ROLES, &role("all", &all)).await;
}

/// Proves rbac/defaults.
#[tokio::test]
async fn always_allow_ignores_roles() {
    let server = ApiServer::builder()
        .authorization(Authorization::AlwaysAllow)
        .build();
    let jane = http_as(&server, "jane");
    assert_eq!(jane.get("/api/v1/secrets").await.0, 200);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    created(&jane, CLUSTER_ROLES, &role("all", &all)).await;
}

/// Proves rbac/enforced.
#[tokio::test]
async fn put_and_apply_need_create_to_create() {
    let server = server();
    let admin = http(&server);
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update", "patch"]},
    ]);
    grant(&admin, "jane", &rules).await;
    let jane = http_as(&server, "jane");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let cannot = "leases.coordination.k8s.io \"l\" is forbidden: User \"jane\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\"";
    let (code, status) = jane.put(path, &lease).await;
    assert_eq!((code, message(&status)), (403, cannot));
    let apply = format!("{path}?fieldManager=m");
    let media = "application/apply-patch+yaml";
    let (code, status) = jane.raw("PATCH", &apply, media, lease.to_string()).await;
    assert_eq!((code, message(&status)), (403, cannot));
    assert_eq!(admin.put(path, &lease).await.0, 201);
    let (code, _) = jane.raw("PATCH", &apply, media, lease.to_string()).await;
    assert_eq!(code, 200);
}

async fn status_of(client: &kube::Client, path: &str) -> (u16, Value) {
    let request = http::Request::get(path)
        .body(kube::client::Body::empty())
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// Proves rbac/enforced, rbac/immediate.
#[tokio::test]
async fn service_account_token_has_its_permissions_over_tls() {
    let server = server();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let admin = http(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    created(&admin, accounts, &json!({"metadata": {"name": "robot"}})).await;
    let (_, token) = admin
        .post(&format!("{accounts}/robot/token"), &json!({}))
        .await;
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let mut config = config_of(&bound.kubeconfig()).await;
    config.auth_info.token = Some(token.into());
    let robot_client = kube::Client::try_from(config).unwrap();
    let (code, status) = status_of(&robot_client, CONFIG_MAPS).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "configmaps is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
        )
    );
    created(
        &admin,
        ROLES,
        &role("r", &json!([rule(&["list"], &["configmaps"])])),
    )
    .await;
    created(&admin, BINDINGS, &binding("b", "Role/r", &[robot()])).await;
    assert_eq!(status_of(&robot_client, CONFIG_MAPS).await.0, 200);

    let alice = bound.user_kubeconfig("alice", Some("red")).unwrap();
    let alice = kube::Client::try_from(config_of(&alice).await).unwrap();
    assert_eq!(status_of(&alice, CONFIG_MAPS).await.0, 403);
    let red = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "red"});
    created(&admin, BINDINGS, &binding("red", "Role/r", &[red])).await;
    assert_eq!(status_of(&alice, CONFIG_MAPS).await.0, 200);
    bound.shutdown().await;
}

/// Proves rbac/defaults.
#[tokio::test]
async fn every_default_binding_resolves() {
    let http = http(&server());
    let (_, roles) = http.get(CLUSTER_ROLES).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let roles = names(&roles);
    let (_, bindings) = http.get(CLUSTER_BINDINGS).await;
    for binding in bindings["items"].as_array().unwrap() {
        let role = binding["roleRef"]["name"].as_str().unwrap().to_owned();
        assert!(roles.contains(&role), "{role}");
    }
    let (_, local) = http.get(&format!("{RBAC}/roles")).await;
    assert_eq!(names(&local).len(), 7);
}
