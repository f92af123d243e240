//! What users may grant: roles, bindings and aggregation.

use super::*;

/// Returns the rules of a user who tries to grant permissions: writing RBAC objects, reading Pods,
/// and `more`.
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

/// Proves rbac/escalation.
#[tokio::test]
async fn roles_cannot_grant_permissions_their_writer_lacks() {
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
        // Changes to finalizers, which the garbage collector makes, are not checked.
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
async fn bindings_cannot_grant_permissions_their_writer_lacks() {
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
            &binding("weak", "ClusterRole/weak", &[user("x")]),
        )
        .await;
        let body = binding("strong", "ClusterRole/strong", &[user("x")]);
        let (code, status) = jane.post(path, &body).await;
        let expected = format!(
            "{plural}.rbac.authorization.k8s.io \"strong\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}}"
        );
        assert_eq!((code, message(&status)), (403, expected.as_str()));
        created(&boss, path, &body).await;
        let other = binding("stronger", "ClusterRole/stronger", &[user("x")]);
        assert_eq!(boss.post(path, &other).await.0, 403);
        let (code, status) = jane
            .post(path, &binding("none", "ClusterRole/missing", &[user("x")]))
            .await;
        let expected = format!("{plural}.rbac.authorization.k8s.io \"missing\" not found");
        assert_eq!((code, message(&status)), (404, expected.as_str()));
        // An administrator may bind a role that does not exist yet.
        created(
            &admin,
            path,
            &binding("none", "ClusterRole/none", &[user("x")]),
        )
        .await;
        // Adding subjects also grants permissions.
        let subjects = json!({"subjects": [user("x"), user("jane")]});
        let (code, _) = jane.merge(&format!("{path}/strong"), &subjects).await;
        assert_eq!(code, 403);
    }
}

/// Proves rbac/escalation.
#[tokio::test]
async fn bind_in_a_namespace_applies_to_its_bindings_only() {
    let server = server();
    let admin = http(&server);
    grant_cluster(&admin, "boss", &escalation_rules(&[])).await;
    let strong = json!([rule(&["get"], &["secrets"])]);
    created(&admin, CLUSTER_ROLES, &role("strong", &strong)).await;
    let bind = json!({"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["bind"],
        "resources": ["clusterroles"]});
    created(&admin, ROLES, &role("bind", &json!([bind]))).await;
    created(
        &admin,
        BINDINGS,
        &binding("bind", "Role/bind", &[user("boss")]),
    )
    .await;
    let boss = http_as(&server, "boss");
    let body = binding("strong", "ClusterRole/strong", &[user("x")]);
    created(&boss, BINDINGS, &body).await;
    assert_eq!(boss.post(CLUSTER_BINDINGS, &body).await.0, 403);
    let elsewhere = BINDINGS.replace("/default/", "/kube-system/");
    assert_eq!(boss.post(&elsewhere, &body).await.0, 403);
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
    let owner = binding("owner", "ClusterRole/cluster-admin", &[user("owner")]);
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
    created(&http, BINDINGS, &binding("b", "Role/one", &[user("x")])).await;
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
                &[json!({"kind": "ServiceAccount", "name": "a"})],
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

/// Proves rbac/escalation.
#[tokio::test]
async fn denial_of_a_large_role_lists_every_permission() {
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
    let too_many = "roles.rbac.authorization.k8s.io \"large\" is forbidden: user \"jane\" is \
        attempting to grant too many RBAC permissions to check: the limits are 200000 combinations \
        of API groups, resources, names and verbs, and 10000000 comparisons with the rules of the \
        user; use smaller roles, or a user that may escalate or bind them";
    assert_eq!(message(&status), too_many);
    // The same applies if the user has many rules.
    let own: Vec<Value> = (0..3000)
        .map(|i| json!({"apiGroups": ["*"], "resources": [format!("own{i}")], "verbs": ["*"]}))
        .collect();
    grant_cluster(&admin, "owner", &Value::Array(own)).await;
    grant_cluster(&admin, "joe", &escalation_rules(&[])).await;
    let bound = binding("owner", "ClusterRole/owner", &[user("joe")]);
    created(&admin, BINDINGS, &bound).await;
    let joe = http_as(&server, "joe");
    let (code, status) = joe.post(ROLES, &large(60)).await;
    assert_eq!(code, 403);
    assert_eq!(message(&status), too_many.replace("jane", "joe"));
    // A rule that a single rule of the user covers is not compared part by part.
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
    // The path of a POST contains no name.
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
