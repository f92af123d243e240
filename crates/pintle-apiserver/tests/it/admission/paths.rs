//! Which writes are admitted, and with which kind.

use super::*;

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
