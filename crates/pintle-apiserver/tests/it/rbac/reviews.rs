//! Access reviews and impersonation.

use super::*;

/// Proves reviews/answered.
#[tokio::test]
async fn access_reviews_reflect_rbac() {
    let server = server();
    let admin = http(&server);
    let reviews = "/apis/authorization.k8s.io/v1";
    created(
        &admin,
        ROLES,
        &role("r", &json!([rule(&["get"], &["pods"])])),
    )
    .await;
    created(&admin, BINDINGS, &binding("b", "Role/r", &[robot()])).await;
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
async fn rules_review_lists_the_permissions_of_a_user() {
    let server = server();
    let admin = http(&server);
    grant(&admin, "jane", &json!([rule(&["get"], &["pods"])])).await;
    created(
        &admin,
        BINDINGS,
        &binding("lost", "Role/lost", &[user("jane")]),
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
async fn impersonation_needs_permission_for_every_attribute() {
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

/// Proves rbac/impersonation.
#[tokio::test]
async fn last_successful_mode_of_impersonation_is_tried_first() {
    let server = server();
    let admin = http(&server);
    let groups = async |lines: &[(&str, &str)]| {
        let (_, review) = who(&admin, lines).await;
        review["status"]["userInfo"]["groups"].clone()
    };
    let node = [("impersonate-user", "system:node:n1")];
    let masters = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "system:masters"),
    ];
    let in_group = json!(["system:nodes", "system:authenticated"]);
    assert_eq!(groups(&node).await, in_group);
    // Only the verb `impersonate` grants this group.
    groups(&masters).await;
    assert_eq!(groups(&node).await, json!(["system:authenticated"]));
    groups(&[("impersonate-user", "system:serviceaccount:ns:robot")]).await;
    assert_eq!(groups(&node).await, json!(["system:authenticated"]));

    let rule = json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
        "resourceNames": ["bob"]});
    grant_cluster(&admin, "jane", &json!([rule])).await;
    let jane = http_as(&server, "jane");
    let why = async || message(&who(&jane, &[("impersonate-user", "joe")]).await.1).to_owned();
    assert!(
        why()
            .await
            .contains("cannot impersonate-on:user-info:create resource")
    );
    assert_eq!(who(&jane, &[("impersonate-user", "bob")]).await.0, 201);
    assert!(why().await.contains("cannot impersonate resource"));
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
