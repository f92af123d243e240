//! Which writes are admitted, and with which kind.

use super::*;
use crate::support::{grant_cluster, http_as};

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn every_write_of_an_object_is_admitted() {
    let server = server();
    let http = http(&server);
    let (seen, _webhook) = observe(&server, "*/*");

    http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(lines(&seen), ["CREATE configmaps ConfigMap a"]);
    let one = format!("{CONFIG_MAPS}/a");
    http.put(
        &one,
        &json!({"metadata": {"name": "a"}, "data": {"k": "2"}}),
    )
    .await;
    http.merge(&one, &json!({"data": {"k": "3"}})).await;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
        "data": {"other": "x"}});
    let apply = "application/apply-patch+yaml";
    http.raw(
        "PATCH",
        &format!("{one}?fieldManager=m"),
        apply,
        applied.to_string(),
    )
    .await;
    assert_eq!(lines(&seen), ["UPDATE configmaps ConfigMap a"; 3]);
    let fresh = applied.to_string().replace("\"a\"", "\"b\"");
    let path = format!("{CONFIG_MAPS}/b?fieldManager=m");
    assert_eq!(http.raw("PATCH", &path, apply, fresh).await.0, 201);
    assert_eq!(lines(&seen), ["CREATE configmaps ConfigMap b"]);
    http.delete(&one).await;
    assert_eq!(lines(&seen), ["DELETE configmaps ConfigMap a"]);
    http.post(CONFIG_MAPS, &config_map("c")).await;
    lines(&seen);
    http.delete(CONFIG_MAPS).await;
    assert_eq!(
        lines(&seen),
        ["DELETE configmaps ConfigMap "; 2],
        "the review of a collection names no object"
    );
    let generated = json!({"metadata": {"generateName": "g-"}});
    let (_, created) = http.post(CONFIG_MAPS, &generated).await;
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        lines(&seen),
        [format!("CREATE configmaps ConfigMap {name}")]
    );
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn reviews_are_admitted_under_their_names() {
    let server = server();
    let http = http(&server);
    let (seen, _webhook) = observe(&server, "*/*");
    for (name, line) in [
        ("t", "CREATE tokenreviews TokenReview t"),
        ("", "CREATE tokenreviews TokenReview "),
    ] {
        let review = json!({"metadata": {"name": name}, "spec": {"token": "x"}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        assert_eq!(http.post(path, &review).await.0, 201);
        assert_eq!(lines(&seen), [line]);
    }
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn subresources_are_admitted_with_their_own_kind() {
    let server = server();
    let http = http(&server);
    http.post(PODS, &pod("p")).await;
    http.post(DEPLOYMENTS, &deployment("d")).await;
    http.post(
        "/api/v1/namespaces/default/serviceaccounts",
        &json!({"metadata": {"name": "s"}}),
    )
    .await;
    let (seen, _webhook) = observe(&server, "*/*");

    http.merge(
        &format!("{PODS}/p/status"),
        &json!({"status": {"reason": "x"}}),
    )
    .await;
    assert_eq!(lines(&seen), ["UPDATE pods/status Pod p"]);
    let (code, _) = http
        .merge(
            &format!("{DEPLOYMENTS}/d/scale"),
            &json!({"spec": {"replicas": 3}}),
        )
        .await;
    assert_eq!(code, 200);
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].object()["spec"], json!({"replicas": 3}));
        assert_eq!(seen[0].old_object()["spec"], json!({"replicas": 1}));
        assert_eq!(seen[0].object()["apiVersion"], "autoscaling/v1");
        assert_eq!(seen[0].as_value()["requestSubResource"], "scale");
    }
    assert_eq!(lines(&seen), ["UPDATE deployments/scale Scale d"]);
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/binding"), &binding).await.0,
        201
    );
    assert_eq!(lines(&seen), ["CREATE pods/binding Binding p"]);
    let token = "/api/v1/namespaces/default/serviceaccounts/s/token";
    assert_eq!(http.post(token, &json!({"spec": {}})).await.0, 201);
    assert_eq!(
        lines(&seen),
        ["CREATE serviceaccounts/token TokenRequest s"]
    );
    // The connection is not served, but webhooks for it are called.
    let exec = format!("{PODS}/p/exec?command=ls&stdout=true");
    assert_eq!(http.post(&exec, &json!({})).await.0, 501);
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].object()["command"], json!(["ls"]));
    }
    assert_eq!(lines(&seen), ["CONNECT pods/exec PodExecOptions p"]);
    // The deletion behind an eviction is not admitted again.
    let eviction = json!({"metadata": {"name": "p"}});
    assert_eq!(
        http.post(&format!("{PODS}/p/eviction"), &eviction).await.0,
        201
    );
    assert_eq!(lines(&seen), ["CREATE pods/eviction Eviction p"]);
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
}

/// Creates a Pod, a Service and a Node, and returns their paths.
async fn connectable(http: &Http) -> [(&'static str, String); 3] {
    http.post(PODS, &pod("p")).await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    http.post(services, &service).await;
    let nodes = "/api/v1/nodes";
    http.post(nodes, &json!({"metadata": {"name": "n"}})).await;
    [
        ("pods/proxy PodProxyOptions", format!("{PODS}/p")),
        (
            "services/proxy ServiceProxyOptions",
            format!("{services}/s"),
        ),
        ("nodes/proxy NodeProxyOptions", format!("{nodes}/n")),
    ]
}

/// Proves admission/every-write, subresources/connect.
#[tokio::test(start_paused = true)]
async fn proxies_are_admitted_with_every_method_and_path() {
    let server = server();
    let http = http(&server);
    let objects = connectable(&http).await;
    let (seen, _webhook) = observe(&server, "*/*");
    for (line, object) in objects {
        let name = object.rsplit('/').next().unwrap();
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            for (below, path) in [
                ("", Value::Null),
                ("/", json!("/")),
                ("/a/b%20c/", json!("/a/b c/")),
                ("//x?fieldManager=%00&timeout=never", json!("/x")),
            ] {
                let request = Request::builder()
                    .method(method)
                    .uri(format!("{object}/proxy{below}"))
                    // These are for the other end.
                    .header("accept", "image/png")
                    .header("content-type", "application/octet-stream")
                    .body(Full::new(Bytes::from_static(b"\x00")));
                let response = http.send(request.unwrap()).await;
                assert_eq!(response.status(), 501, "{method} {object}/proxy{below}");
                {
                    let seen = seen.lock().unwrap();
                    let request = seen.last().unwrap();
                    assert_eq!(request.object()["path"], path, "{method} {below}");
                    assert_eq!(request.as_value()["options"], Value::Null);
                }
                assert_eq!(lines(&seen), [format!("CONNECT {line} {name}")]);
            }
        }
    }
}

/// Proves admission/every-write, subresources/connect.
#[tokio::test(start_paused = true)]
async fn refused_connects_go_no_further() {
    let server = server();
    let http = http(&server);
    let objects = connectable(&http).await;
    let refuses = Webhook::validating("refuses.example.com", |_| async {
        AdmissionResponse::deny("no connections")
    })
    .rule(["CONNECT"], [""], ["v1"], ["*/*"]);
    let registration = server.register_webhook(&refuses).unwrap();
    let missing = [
        format!("{PODS}/missing/proxy"),
        format!("{PODS}/missing/exec"),
    ];
    let proxies = objects
        .iter()
        .map(|(_, object)| format!("{object}/proxy/x"));
    for path in proxies.chain(missing) {
        for method in ["GET", "POST"] {
            let (code, status) = http.raw(method, &path, "text/plain", "").await;
            assert_eq!(code, 400, "{method} {path}: {status}");
            let message = status["message"].as_str().unwrap();
            assert!(
                message.ends_with("denied the request: no connections"),
                "{message}"
            );
        }
    }
    drop(registration);
    let status =
        |code: u16, reason: &str, message: &str| (code, reason.to_owned(), message.to_owned());
    let not_served = |what: &str| {
        status(
            501,
            "NotImplemented",
            &format!("this server does not implement {what}"),
        )
    };
    let (pods, proxy) = ("the proxy subresource of pods", "p/proxy");
    for (method, below, expected) in [
        ("GET", proxy, not_served(pods)),
        ("GET", "p:80/proxy", not_served(pods)),
        ("GET", "https:p:web/proxy/x", not_served(pods)),
        (
            "GET",
            "ftp:p:1/proxy",
            status(400, "BadRequest", "invalid pod request \"ftp:p:1\""),
        ),
        (
            "GET",
            "missing:80/proxy",
            status(404, "NotFound", "pods \"missing\" not found"),
        ),
        (
            "GET",
            "p/proxy?dryRun=All",
            status(400, "BadRequest", "dryRun is not supported"),
        ),
        (
            "GET",
            "p/portforward?ports=1,99999",
            status(
                400,
                "BadRequest",
                "cannot convert to []int32: strconv.ParseUint: parsing \"99999\": value out of range",
            ),
        ),
        ("GET", "p/exec", not_served("the exec subresource of pods")),
    ] {
        let (code, got) = http
            .raw(method, &format!("{PODS}/{below}"), "text/plain", "")
            .await;
        let text = |field: &str| got[field].as_str().unwrap_or_default().to_owned();
        assert_eq!((code, text("reason"), text("message")), expected, "{below}");
    }
    for method in ["PUT", "OPTIONS", "DELETE"] {
        let path = format!("{PODS}/p/exec");
        assert_eq!(
            http.raw(method, &path, "text/plain", "").await.0,
            405,
            "{method}"
        );
    }
    // Only a proxy has a path below it.
    assert_eq!(http.get(&format!("{PODS}/p/exec/x")).await.0, 404);
    assert_eq!(
        http.get("/api/v1/namespaces/default/configmaps/c/proxy")
            .await
            .0,
        404
    );
}

/// Proves admission/every-write, subresources/connect.
#[tokio::test(start_paused = true)]
async fn proxy_needs_permission_for_its_method() {
    let server = server();
    let admin = http(&server);
    admin.post(PODS, &pod("p")).await;
    let (seen, _webhook) = observe(&server, "*/*");
    let rule = json!({"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]});
    grant_cluster(&admin, "jane", &json!([rule])).await;
    lines(&seen);
    let jane = http_as(&server, "jane");
    let path = format!("{PODS}/p/proxy/x/y");
    for (method, code) in [
        ("GET", 501),
        ("HEAD", 501),
        ("POST", 403),
        ("DELETE", 403),
        // Only a rule for all verbs allows a method without a verb.
        ("OPTIONS", 403),
    ] {
        assert_eq!(
            jane.raw(method, &path, "text/plain", "").await.0,
            code,
            "{method}"
        );
        assert_eq!(lines(&seen).len(), usize::from(code == 501), "{method}");
    }
}

/// Proves admission/every-write.
#[tokio::test(start_paused = true)]
async fn mutating_and_validating_webhooks_see_the_same_write() {
    let server = server();
    let http = http(&server);
    http.post(PODS, &pod("p")).await;
    http.post(DEPLOYMENTS, &deployment("d")).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    http.post(accounts, &json!({"metadata": {"name": "s"}}))
        .await;
    http.post(DEFINITIONS, &foo_definition()).await;
    let (validated, _validating) = observe(&server, "*/*");
    let mutated = Seen::default();
    let record = Arc::clone(&mutated);
    let webhook = Webhook::mutating("mutating.example.com", move |request| {
        record.lock().unwrap().push(request);
        async { AdmissionResponse::allow() }
    })
    .rule(["*"], ["*"], ["*"], ["*/*"]);
    let _mutating = server.register_webhook(&webhook).unwrap();

    let map = format!("{CONFIG_MAPS}/a");
    let applied = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"applied": "yes"}});
        (format!("{CONFIG_MAPS}/{name}?fieldManager=m"), object)
    };
    let (update, create) = (applied("a"), applied("b"));
    let strategic = "application/strategic-merge-patch+json";
    let (json_patch, merge) = (
        "application/json-patch+json",
        "application/merge-patch+json",
    );
    let (apply, json) = ("application/apply-patch+yaml", "application/json");
    let writes = [
        ("POST", CONFIG_MAPS, json, config_map("a")),
        ("PUT", &map, json, config_map("a")),
        ("PATCH", &map, merge, json!({"data": {"k": "2"}})),
        ("PATCH", &map, strategic, json!({"data": {"k": "3"}})),
        (
            "PATCH",
            &map,
            json_patch,
            json!([{"op": "replace", "path": "/data/k", "value": "4"}]),
        ),
        ("PATCH", &update.0, apply, update.1),
        ("PATCH", &create.0, apply, create.1),
        ("POST", FOOS, json, foo("f")),
        (
            "PATCH",
            &format!("{FOOS}/f/status"),
            merge,
            json!({"status": {"availableReplicas": 1}}),
        ),
        (
            "PATCH",
            &format!("{PODS}/p/status"),
            merge,
            json!({"status": {"reason": "x"}}),
        ),
        (
            "PATCH",
            &format!("{DEPLOYMENTS}/d/scale"),
            merge,
            json!({"spec": {"replicas": 3}}),
        ),
        (
            "POST",
            &format!("{PODS}/p/binding"),
            json,
            json!({"metadata": {"name": "p"}, "target": {"name": "node"}}),
        ),
        (
            "POST",
            &format!("{accounts}/s/token"),
            json,
            json!({"spec": {}}),
        ),
        (
            "POST",
            &format!("{PODS}/p/eviction"),
            json,
            json!({"metadata": {"name": "p"}}),
        ),
        ("DELETE", &map, json, json!({})),
        ("DELETE", CONFIG_MAPS, json, json!({})),
    ];
    for (method, path, media, body) in writes {
        let (code, status) = http.raw(method, path, media, body.to_string()).await;
        assert!(code < 300, "{method} {path}: {status}");
        let seen = lines(&mutated);
        assert!(!seen.is_empty(), "{method} {path}");
        assert_eq!(seen, lines(&validated), "{method} {path}");
    }
    http.post(PODS, &pod("q")).await;
    let (_, _) = (lines(&mutated), lines(&validated));
    for connect in ["exec?command=ls", "attach?stdin=true", "portforward"] {
        http.post(&format!("{PODS}/q/{connect}"), &json!({})).await;
        let seen = lines(&mutated);
        assert!(seen[0].starts_with("CONNECT pods/"), "{seen:?}");
        assert_eq!(seen, lines(&validated));
    }
}
