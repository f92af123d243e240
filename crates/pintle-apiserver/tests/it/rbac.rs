//! RBAC: what users may do, what they may grant, and what reviews say about it.

use crate::support::{tls::config_of, *};
use http_body_util::{BodyExt as _, Full};
use pintle_apiserver::{ApiServer, Authorization, User};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROBOT: &str = "system:serviceaccount:default:robot";

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

/// A binding of a role (`Role/name` or `ClusterRole/name`) to a subject.
fn binding(name: &str, role: &str, subject: &Value) -> Value {
    let (kind, role) = role.split_once('/').unwrap();
    json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject]})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn robot() -> Value {
    json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
}

async fn created(http: &Http, path: &str, object: &Value) {
    let (code, status) = http.post(path, object).await;
    assert_eq!(code, 201, "{status}");
}

/// Gives a user a role of its own in a namespace, with these rules.
async fn grant(admin: &Http, name: &str, rules: &Value) {
    created(admin, ROLES, &role(name, rules)).await;
    let bound = binding(name, &format!("Role/{name}"), &user(name));
    created(admin, BINDINGS, &bound).await;
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// Proves rbac/enforced.
#[tokio::test]
async fn user_without_rights_is_refused_in_upstreams_words() {
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
async fn body_of_a_refused_request_is_not_read() {
    let jane = http_as(&server(), "jane");
    let body = "x".repeat(4 * 1024 * 1024);
    let (code, _) = jane
        .raw("POST", CONFIG_MAPS, "application/json", body)
        .await;
    assert_eq!(code, 403, "not 413");
}

/// Proves rbac/immediate.
#[tokio::test]
async fn rights_follow_roles_and_bindings() {
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
async fn names_subresources_and_groups_are_separate_rights() {
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
    let mine = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dmine");
    assert_eq!(jane.get(&mine).await.0, 200);

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
    for (name, subject) in [
        ("u", user("jane")),
        ("g", group),
        ("s", robot()),
        ("l", local),
    ] {
        let bound = binding(name, "ClusterRole/reader", &subject);
        created(&admin, BINDINGS, &bound).await;
    }
    for (who, code) in [
        (User::new("jane"), 200),
        (User::new("joe"), 403),
        (User::new("joe").group("red"), 200),
        (User::new(ROBOT), 200),
        (User::new("system:serviceaccount:default:local"), 200),
        (User::new("system:serviceaccount:other:local"), 403),
    ] {
        let name = format!("{who:?}");
        let http = http_as(&server, who);
        assert_eq!(http.get(CONFIG_MAPS).await.0, code, "{name}");
        // A RoleBinding grants a ClusterRole in its own namespace only.
        assert_eq!(http.get("/api/v1/configmaps").await.0, 403, "{name}");
    }
    let everywhere = binding("e", "ClusterRole/reader", &user("joe"));
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

/// Proves rbac/modes.
#[tokio::test]
async fn always_allow_asks_no_roles() {
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

/// What a user may hold before it tries to grant rights.
fn escalation_rules(more: &[Value]) -> Value {
    let mut rules = vec![
        json!({"apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
            "verbs": ["create", "update", "patch", "get"]}),
        rule(&["get", "list"], &["pods"]),
    ];
    rules.extend_from_slice(more);
    Value::Array(rules)
}

/// Gives a user rights in the whole cluster.
async fn grant_cluster(admin: &Http, name: &str, rules: &Value) {
    created(admin, CLUSTER_ROLES, &role(name, rules)).await;
    let bound = binding(name, &format!("ClusterRole/{name}"), &user(name));
    created(admin, CLUSTER_BINDINGS, &bound).await;
}

/// Proves rbac/escalation.
#[tokio::test]
async fn roles_cannot_grant_what_their_writer_lacks() {
    let server = server();
    let admin = http(&server);
    grant_cluster(&admin, "jane", &escalation_rules(&[])).await;
    let escalate = json!({"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["escalate"],
        "resources": ["roles"]});
    grant_cluster(&admin, "boss", &escalation_rules(&[escalate])).await;
    let (jane, boss) = (http_as(&server, "jane"), http_as(&server, "boss"));
    let held = json!([rule(&["get"], &["pods"])]);
    let more = json!([rule(&["delete", "get"], &["pods"]), rule(&["get"], &["secrets", "pods/log"]),
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"], "resourceNames": ["p"]}]);
    let missing = "user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"p\"], Verbs:[\"watch\"]}\n\
        {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n\
        {APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"get\"]}\n\
        {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    for (path, plural) in [(ROLES, "roles"), (CLUSTER_ROLES, "clusterroles")] {
        created(&jane, path, &role("held", &held)).await;
        let (code, status) = jane.post(path, &role("more", &more)).await;
        let expected =
            format!("{plural}.rbac.authorization.k8s.io \"more\" is forbidden: {missing}");
        assert_eq!((code, message(&status)), (403, expected.as_str()));
        let (code, status) = jane
            .merge(&format!("{path}/held"), &json!({"rules": more}))
            .await;
        assert_eq!(code, 403, "{status}");
        // Changes for the garbage collector grant nothing.
        created(&admin, path, &role("more", &more)).await;
        let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, status) = jane.merge(&format!("{path}/more"), &finalizer).await;
        assert_eq!(code, 200, "{status}");
        assert_eq!(jane.merge(&format!("{path}/more"), &label).await.0, 403);
    }
    created(&boss, ROLES, &role("any", &more)).await;
    assert_eq!(boss.post(CLUSTER_ROLES, &role("any", &more)).await.0, 403);
}

/// Proves rbac/escalation.
#[tokio::test]
async fn bindings_cannot_grant_what_their_writer_lacks() {
    let server = server();
    let admin = http(&server);
    grant_cluster(&admin, "jane", &escalation_rules(&[])).await;
    let bind = json!({"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["bind"],
        "resources": ["clusterroles"], "resourceNames": ["strong"]});
    grant_cluster(&admin, "boss", &escalation_rules(&[bind])).await;
    let weak = json!([rule(&["get"], &["pods"])]);
    let strong = json!([rule(&["get"], &["secrets"])]);
    created(&admin, CLUSTER_ROLES, &role("weak", &weak)).await;
    created(&admin, CLUSTER_ROLES, &role("strong", &strong)).await;
    created(&admin, CLUSTER_ROLES, &role("stronger", &strong)).await;
    let (jane, boss) = (http_as(&server, "jane"), http_as(&server, "boss"));
    for (path, plural) in [
        (BINDINGS, "rolebindings"),
        (CLUSTER_BINDINGS, "clusterrolebindings"),
    ] {
        created(
            &jane,
            path,
            &binding("weak", "ClusterRole/weak", &user("x")),
        )
        .await;
        let body = binding("strong", "ClusterRole/strong", &user("x"));
        let (code, status) = jane.post(path, &body).await;
        let expected = format!(
            "{plural}.rbac.authorization.k8s.io \"strong\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}}"
        );
        assert_eq!((code, message(&status)), (403, expected.as_str()));
        created(&boss, path, &body).await;
        let other = binding("stronger", "ClusterRole/stronger", &user("x"));
        assert_eq!(boss.post(path, &other).await.0, 403);
        let (code, status) = jane
            .post(path, &binding("none", "ClusterRole/missing", &user("x")))
            .await;
        let expected = format!("{plural}.rbac.authorization.k8s.io \"missing\" not found");
        assert_eq!((code, message(&status)), (404, expected.as_str()));
        // An administrator may bind a role that does not exist yet.
        created(
            &admin,
            path,
            &binding("none", "ClusterRole/none", &user("x")),
        )
        .await;
        // More subjects are more rights.
        let subjects = json!({"subjects": [user("x"), user("jane")]});
        let (code, _) = jane.merge(&format!("{path}/strong"), &subjects).await;
        assert_eq!(code, 403);
    }
}

/// Proves rbac/escalation.
#[tokio::test]
async fn aggregation_needs_cluster_admin() {
    let server = server();
    let admin = http(&server);
    grant_cluster(&admin, "jane", &escalation_rules(&[])).await;
    let jane = http_as(&server, "jane");
    let mut aggregated = role("all", &json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let (code, status) = jane.post(CLUSTER_ROLES, &aggregated).await;
    assert_eq!(
        (code, message(&status)),
        (
            403,
            "clusterroles.rbac.authorization.k8s.io \"all\" is forbidden: must have cluster-admin privileges to use the aggregationRule"
        )
    );
    let owner = binding("owner", "ClusterRole/cluster-admin", &user("owner"));
    created(&admin, CLUSTER_BINDINGS, &owner).await;
    created(&http_as(&server, "owner"), CLUSTER_ROLES, &aggregated).await;
}

/// Proves objects/validation.
#[tokio::test]
async fn roles_and_bindings_are_validated() {
    let server = server();
    let http = http(&server);
    let invalid = |status: &Value| causes(status);
    let (code, status) = http
        .post(
            ROLES,
            &role(
                "r",
                &json!([{"apiGroups": [""], "resources": ["pods"], "verbs": []},
            {"verbs": ["get"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]),
            ),
        )
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        invalid(&status),
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[1].resources: Required value: resource rules must supply at least one resource",
            "rules[2].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ]
    );
    let mut aggregated = role("r", &json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": []});
    let (_, status) = http.post(CLUSTER_ROLES, &aggregated).await;
    assert_eq!(
        invalid(&status),
        [
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        ]
    );
    created(&http, BINDINGS, &binding("b", "Role/one", &user("x"))).await;
    let other = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "two"}});
    let (code, status) = http.merge(&format!("{BINDINGS}/b"), &other).await;
    assert_eq!(code, 422);
    assert_eq!(
        invalid(&status),
        [
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"two\"}: cannot change roleRef"
        ]
    );
    let (code, status) = http
        .post(
            CLUSTER_BINDINGS,
            &binding(
                "b",
                "Role/one",
                &json!({"kind": "ServiceAccount", "name": "a"}),
            ),
        )
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        invalid(&status),
        [
            "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            "subjects[0].namespace: Required value",
        ]
    );
}

/// Proves reviews/answered.
#[tokio::test]
async fn access_reviews_answer_from_rbac() {
    let server = server();
    let admin = http(&server);
    let reviews = "/apis/authorization.k8s.io/v1";
    created(
        &admin,
        ROLES,
        &role("r", &json!([rule(&["get"], &["pods"])])),
    )
    .await;
    created(&admin, BINDINGS, &binding("b", "Role/r", &robot())).await;
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let everywhere = json!({"verb": "get", "resource": "pods"});
    let reason = "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to ServiceAccount \"robot/default\"";
    let me = http_as(&server, ROBOT);
    let own = format!("{reviews}/selfsubjectaccessreviews");
    let (_, review) = me
        .post(&own, &json!({"spec": {"resourceAttributes": pods}}))
        .await;
    assert_eq!(review["status"], json!({"allowed": true, "reason": reason}));
    let (_, review) = me
        .post(&own, &json!({"spec": {"resourceAttributes": everywhere}}))
        .await;
    assert_eq!(review["status"], json!({"allowed": false}));
    for (path, code) in [
        (format!("{reviews}/subjectaccessreviews"), 201),
        (
            format!("{reviews}/namespaces/default/localsubjectaccessreviews"),
            201,
        ),
    ] {
        let spec = json!({"spec": {"user": ROBOT, "resourceAttributes": pods}});
        let (found, review) = admin.post(&path, &spec).await;
        assert_eq!((found, &review["status"]["reason"]), (code, &json!(reason)));
        let spec = json!({"spec": {"user": "jane", "groups": ["system:masters"],
            "resourceAttributes": pods}});
        let (_, review) = admin.post(&path, &spec).await;
        assert_eq!(review["status"], json!({"allowed": true}));
    }
    admin.delete(&format!("{ROLES}/r")).await;
    let (_, review) = me
        .post(&own, &json!({"spec": {"resourceAttributes": pods}}))
        .await;
    assert_eq!(
        review["status"],
        json!({"allowed": false,
            "reason": "RBAC: role.rbac.authorization.k8s.io \"r\" not found"})
    );
}

/// Proves reviews/answered.
#[tokio::test]
async fn rules_review_lists_the_rights_of_a_user() {
    let server = server();
    let admin = http(&server);
    grant(&admin, "jane", &json!([rule(&["get"], &["pods"])])).await;
    created(
        &admin,
        BINDINGS,
        &binding("lost", "Role/lost", &user("jane")),
    )
    .await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let spec = json!({"spec": {"namespace": "default"}});
    let (code, review) = http_as(&server, "jane").post(path, &spec).await;
    assert_eq!(code, 201);
    let status = &review["status"];
    assert_eq!(
        status["resourceRules"],
        json!([
            {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
            {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ])
    );
    assert_eq!(status["nonResourceRules"].as_array().unwrap().len(), 2);
    assert_eq!(status["incomplete"], false);
    assert_eq!(
        status["evaluationError"],
        "role.rbac.authorization.k8s.io \"lost\" not found"
    );
}

async fn who(http: &Http, headers: &[(&str, &str)]) -> (u16, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut request = http::Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = http
        .send(request.body(Full::new("{}".into())).unwrap())
        .await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

/// Proves rbac/impersonation.
#[tokio::test]
async fn impersonation_needs_rights_to_every_attribute() {
    let server = server();
    let admin = http(&server);
    let impersonate = |group: &str, resource: &str, names: &[&str]| {
        json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"],
            "resourceNames": names})
    };
    let authentication = "authentication.k8s.io";
    let rules = json!([
        impersonate("", "users", &["bob"]),
        impersonate("", "groups", &["red"]),
        impersonate("", "serviceaccounts", &["robot"]),
        impersonate(authentication, "uids", &["7"]),
        impersonate(authentication, "userextras/example.com/team", &["a"]),
    ]);
    grant_cluster(&admin, "jane", &rules).await;
    let jane = http_as(&server, "jane");
    let bob = ("impersonate-user", "bob");
    let team = "impersonate-extra-example.com%2fteam";
    let good = [
        bob,
        ("impersonate-group", "red"),
        ("impersonate-uid", "7"),
        (team, "a"),
    ];
    let (code, review) = who(&jane, &good).await;
    assert_eq!(code, 201, "{review}");
    assert_eq!(
        review["status"]["userInfo"],
        json!({"username": "bob", "uid": "7", "groups": ["red", "system:authenticated"],
            "extra": {"example.com/team": ["a"]}})
    );
    assert_eq!(who(&jane, &[("impersonate-user", ROBOT)]).await.0, 201);
    for bad in [
        ("impersonate-group", "blue"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "8"),
        (team, "b"),
        ("impersonate-extra-other", "a"),
    ] {
        let (code, status) = who(&jane, &[bob, bad]).await;
        assert_eq!(code, 403, "{bad:?}: {status}");
    }
    assert_eq!(who(&jane, &[("impersonate-user", "joe")]).await.0, 403);
    let other = "system:serviceaccount:default:other";
    assert_eq!(who(&jane, &[("impersonate-user", other)]).await.0, 403);
}

/// Proves rbac/impersonation.
#[tokio::test]
async fn constrained_impersonation_allows_single_requests() {
    let server = server();
    let admin = http(&server);
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"],
            "verbs": ["impersonate:user-info"], "resourceNames": ["bob"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"],
            "verbs": ["impersonate-on:user-info:create"]},
    ]);
    grant_cluster(&admin, "jane", &rules).await;
    grant(&admin, "bob", &json!([rule(&["list"], &["configmaps"])])).await;
    let jane = http_as(&server, "jane");
    let (code, review) = who(&jane, &[("impersonate-user", "bob")]).await;
    assert_eq!(
        (code, &review["status"]["userInfo"]["username"]),
        (201, &json!("bob"))
    );
    let request = http::Request::get(CONFIG_MAPS).header("impersonate-user", "bob");
    let response = jane.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(response.status(), 403);
    let (_, status) = who(&jane, &[("impersonate-user", "joe")]).await;
    assert_eq!(
        message(&status),
        "users.authentication.k8s.io \"joe\" is forbidden: User \"jane\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
    // A node has fixed groups.
    let (_, review) = who(&admin, &[("impersonate-user", "system:node:n1")]).await;
    assert_eq!(
        review["status"]["userInfo"]["groups"],
        json!(["system:nodes", "system:authenticated"])
    );
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
async fn service_account_token_has_its_rights_over_tls() {
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
    created(&admin, BINDINGS, &binding("b", "Role/r", &robot())).await;
    assert_eq!(status_of(&robot_client, CONFIG_MAPS).await.0, 200);

    let alice = bound.user_kubeconfig("alice", Some("red")).unwrap();
    let alice = kube::Client::try_from(config_of(&alice).await).unwrap();
    assert_eq!(status_of(&alice, CONFIG_MAPS).await.0, 403);
    let red = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "red"});
    created(&admin, BINDINGS, &binding("red", "Role/r", &red)).await;
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

/// Proves rbac/escalation.
#[tokio::test]
async fn refusal_of_a_large_role_lists_every_right() {
    let server = server();
    let admin = http(&server);
    grant_cluster(&admin, "jane", &escalation_rules(&[])).await;
    let jane = http_as(&server, "jane");
    let names = |start: &str, count: usize| -> Vec<String> {
        (0..count).map(|i| format!("{start}{i}")).collect()
    };
    let large = |count: usize| {
        let rules = json!([{"apiGroups": names("g", count), "resources": names("r", count),
            "verbs": ["get", "list", "watch", "update"]}]);
        role("large", &rules)
    };
    let (code, status) = jane.post(ROLES, &large(150)).await;
    assert_eq!(code, 403);
    let lines: Vec<&str> = message(&status).lines().skip(1).collect();
    assert_eq!(lines.len(), 150 * 150);
    let line =
        "{APIGroups:[\"g0\"], Resources:[\"r0\"], Verbs:[\"get\" \"list\" \"watch\" \"update\"]}";
    assert_eq!(lines[0], line);
    // Beyond a bound they are neither compared nor listed.
    let (code, status) = jane.post(ROLES, &large(400)).await;
    assert_eq!(code, 403);
    assert!(message(&status).contains("too many RBAC permissions to check"));
    // A rule that one of the user's covers needs no comparison of its parts.
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    grant_cluster(&admin, "boss", &everything).await;
    let (code, status) = http_as(&server, "boss").post(ROLES, &large(400)).await;
    assert_eq!(code, 201, "{}", message(&status));
}

/// Proves rbac/escalation.
#[tokio::test]
async fn escalate_can_be_limited_to_a_name() {
    let server = server();
    let admin = http(&server);
    let escalate = json!({"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["escalate"],
        "resources": ["roles"], "resourceNames": ["x", "y"]});
    grant_cluster(&admin, "boss", &escalation_rules(&[escalate])).await;
    let boss = http_as(&server, "boss");
    let rules = json!([rule(&["get"], &["secrets"])]);
    let apply = |name: &'static str| {
        let mut role = role(name, &rules);
        role["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        role["kind"] = "Role".into();
        (format!("{ROLES}/{name}?fieldManager=m"), role.to_string())
    };
    for (name, expected) in [("x", 201), ("z", 403)] {
        let (path, body) = apply(name);
        let (code, status) = boss
            .raw("PATCH", &path, "application/apply-patch+yaml", body)
            .await;
        assert_eq!(code, expected, "{status}");
    }
    let (code, status) = boss.put(&format!("{ROLES}/y"), &role("y", &rules)).await;
    assert_eq!(code, 201, "{status}");
    // A POST names nothing in its path.
    admin.delete(&format!("{ROLES}/x")).await;
    assert_eq!(boss.post(ROLES, &role("x", &rules)).await.0, 403);
}

/// Proves rbac/escalation.
#[tokio::test]
async fn selectors_of_aggregated_roles_are_validated() {
    let server = server();
    let admin = http(&server);
    let mut aggregated = role("sum", &json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchExpressions": [
        {"key": "a", "operator": "Bogus"}, {"key": "b", "operator": "In"}]}]});
    let (code, status) = admin.post(CLUSTER_ROLES, &aggregated).await;
    assert_eq!(code, 422, "{status}");
    let at = "aggregationRule.clusterRoleSelectors[0].matchExpressions";
    assert_eq!(
        causes(&status),
        [
            format!("{at}[0].operator: Invalid value: \"Bogus\": not a valid selector operator"),
            format!(
                "{at}[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
        ]
    );
}

/// Proves reviews/answered.
#[tokio::test]
async fn selectors_in_access_reviews_are_validated() {
    let server = server();
    let http = http(&server);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = |which: &str, selector: Value| json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", which: selector}}});
    let requirement = json!({"key": "a", "operator": "In", "values": ["b"]});
    let at = "spec.resourceAttributes";
    for (which, selector, expected) in [
        (
            "fieldSelector",
            json!({"rawSelector": "a=b", "requirements": [requirement]}),
            format!(
                "{at}.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"
            ),
        ),
        (
            "labelSelector",
            json!({}),
            format!(
                "{at}.labelSelector.requirements: Required value: when {at}.labelSelector is specified, requirements or rawSelector is required"
            ),
        ),
        (
            "labelSelector",
            json!({"requirements": [{"key": "a", "operator": "In"}]}),
            format!(
                "{at}.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
        ),
        (
            "fieldSelector",
            json!({"requirements": [{"operator": "Exists"}]}),
            format!("{at}.fieldSelector.requirements[0].key: Required value: must be specified"),
        ),
    ] {
        let (code, status) = http.post(path, &asked(which, selector)).await;
        assert_eq!(code, 422, "{status}");
        assert_eq!(causes(&status), [expected]);
    }
    for which in ["fieldSelector", "labelSelector"] {
        let valid = json!({"requirements": [requirement]});
        let (code, status) = http.post(path, &asked(which, valid)).await;
        assert_eq!(code, 201, "{status}");
    }
}
