//! Patches of webhooks, and how often webhooks are called.

use super::*;

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn patched_object_is_decoded_and_validated() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    let patch = Arc::new(Mutex::new(json!([])));
    let current = Arc::clone(&patch);
    let webhook = Webhook::mutating("patch.example.com", move |_| {
        let patch = current.lock().unwrap().clone();
        async { AdmissionResponse::allow().patch(patch) }
    })
    .rule(["CREATE"], ["*"], ["*"], ["foos", "pods"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let set = |value: Value| *patch.lock().unwrap() = value;

    set(json!([label("webhook"), {"op": "add", "path": "/spec/unknown", "value": 1}]));
    let (code, created) = http.post(FOOS, &foo("a")).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["labels"], json!({"by": "webhook"}));
    assert_eq!(
        created["spec"],
        json!({"deploymentName": "a", "replicas": 1})
    );
    // The patched object is pruned and defaulted by the schema.
    set(json!([{"op": "replace", "path": "/spec/replicas", "value": 11}]));
    let (code, status) = http.post(FOOS, &foo("b")).await;
    assert_eq!(code, 422, "{status}");
    // Built-in kinds get the defaults of added fields.
    set(json!([{"op": "add", "path": "/spec/containers/-",
        "value": {"name": "sidecar", "image": "proxy:1"}}]));
    let (code, created) = http.post(PODS, &pod("p")).await;
    assert_eq!(code, 201, "{created}");
    let sidecar = &created["spec"]["containers"][1];
    assert_eq!(sidecar["imagePullPolicy"], "IfNotPresent");
    set(json!([{"op": "replace", "path": "/spec/missing/path", "value": 1}]));
    let (code, status) = http.post(PODS, &pod("q")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    set(json!([{"op": "add", "path": "/spec/containers", "value": "none"}]));
    assert_eq!(http.post(PODS, &pod("q")).await.0, 500);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn mutated_scale_changes_the_object_behind_it() {
    let server = server();
    let http = http(&server);
    http.post(DEPLOYMENTS, &deployment("d")).await;
    let webhook = Webhook::mutating("scale.example.com", |_| async {
        let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]);
        AdmissionResponse::allow().patch(patch)
    })
    .rule(["UPDATE"], ["apps"], ["v1"], ["deployments/scale"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    let path = format!("{DEPLOYMENTS}/d");
    let (_, scale) = http
        .merge(
            &format!("{path}/scale"),
            &json!({"spec": {"replicas": 100}}),
        )
        .await;
    assert_eq!(scale["spec"]["replicas"], 2);
    assert_eq!(http.get(&path).await.1["spec"]["replicas"], 2);
}

/// Returns a mutating webhook that appends its name to an annotation, and counts its calls.
fn appending(name: &'static str, calls: &Arc<AtomicUsize>) -> Webhook {
    let calls = Arc::clone(calls);
    Webhook::mutating(format!("{name}.example.com"), move |request| {
        calls.fetch_add(1, Ordering::SeqCst);
        let before = request.object()["metadata"]["annotations"]["trace"].as_str();
        let trace = format!("{}{name}", before.unwrap_or_default());
        async move {
            let patch = json!([{"op": "add", "path": "/metadata/annotations",
                "value": {"trace": trace}}]);
            AdmissionResponse::allow().patch(patch)
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
}

/// Proves admission/mutating-order.
#[tokio::test(start_paused = true)]
async fn webhook_is_reinvoked_once_after_a_later_change() {
    let server = server();
    let http = http(&server);
    let (first, second, third) = (Arc::default(), Arc::default(), Arc::default());
    let if_needed = || json!("IfNeeded");
    let _a =
        server.register_webhook(&appending("a", &first).field("reinvocationPolicy", if_needed()));
    let _b = server.register_webhook(&appending("b", &second));
    let _c =
        server.register_webhook(&appending("c", &third).field("reinvocationPolicy", if_needed()));
    let (_, created) = http.post(CONFIG_MAPS, &config_map("m")).await;
    // `a` runs again after `b` and `c`; `c` after the second run of `a`; `b` is never reinvoked.
    assert_eq!(created["metadata"]["annotations"]["trace"], "abcac");
    let calls = [&first, &second, &third].map(|calls| calls.load(Ordering::SeqCst));
    assert_eq!(calls, [2, 1, 2]);
}

/// Proves admission/mutating-order, admission/mutation.
#[tokio::test(start_paused = true)]
async fn webhook_can_deny_a_later_webhooks_mutation() {
    let server = server();
    let http = http(&server);
    let picky = Webhook::mutating("a.example.com", |request| async move {
        match request.object()["metadata"]["labels"]["by"].as_str() {
            Some("b") => AdmissionResponse::deny("not by b"),
            _ => AdmissionResponse::allow(),
        }
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"])
    .field("reinvocationPolicy", json!("IfNeeded"));
    let labels = Webhook::mutating("b.example.com", |_| async {
        AdmissionResponse::allow().patch(json!([label("b")]))
    })
    .rule(["CREATE"], [""], ["v1"], ["configmaps"]);
    let _a = server.register_webhook(&picky).unwrap();
    let _b = server.register_webhook(&labels).unwrap();
    let (code, status) = http.post(CONFIG_MAPS, &config_map("m")).await;
    let message = "admission webhook \"a.example.com\" denied the request: not by b";
    assert_eq!((code, &status["message"]), (400, &json!(message)));
    assert_eq!(http.get(&format!("{CONFIG_MAPS}/m")).await.0, 404);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn subresources_are_stored_as_webhooks_patch_them() {
    let server = server();
    let http = http(&server);
    let created = async |path: &str, object: &Value| {
        let (code, created) = http.post(path, object).await;
        assert_eq!(code, 201, "{created}");
    };
    created(PODS, &pod("p")).await;
    created(DEFINITIONS, &foo_definition()).await;
    created(FOOS, &foo("f")).await;
    let replace = |name: &str, resource: &'static str, path: &'static str, value: Value| {
        let webhook = Webhook::mutating(name, move |_| {
            let operations = json!([{"op": "replace", "path": path, "value": value.clone()}]);
            async { AdmissionResponse::allow().patch(operations) }
        })
        .rule(["*"], ["*"], ["*"], [resource]);
        server.register_webhook(&webhook).unwrap()
    };
    let _webhooks = [
        replace(
            "a.example.com",
            "pods/binding",
            "/target/name",
            json!("other"),
        ),
        replace(
            "b.example.com",
            "pods/status",
            "/status/reason",
            json!("patched"),
        ),
        replace(
            "c.example.com",
            "foos/status",
            "/status/availableReplicas",
            json!(7),
        ),
    ];
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    created(&format!("{PODS}/p/binding"), &binding).await;
    let status = json!({"status": {"reason": "sent"}});
    http.merge(&format!("{PODS}/p/status"), &status).await;
    let (_, pod) = http.get(&format!("{PODS}/p")).await;
    assert_eq!(pod["spec"]["nodeName"], "other");
    assert_eq!(pod["status"]["reason"], "patched");
    let status = json!({"status": {"availableReplicas": 1}});
    http.merge(&format!("{FOOS}/f/status"), &status).await;
    let (_, foo) = http.get(&format!("{FOOS}/f")).await;
    assert_eq!(foo["status"]["availableReplicas"], 7);
}

/// Proves admission/mutation.
#[tokio::test(start_paused = true)]
async fn delete_accepts_only_an_empty_patch() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::mutating("a.example.com", |request| async move {
        let patch = match request.name() {
            "patched" => json!([{"op": "add", "path": "/data", "value": {}}]),
            _ => json!([]),
        };
        AdmissionResponse::allow().patch(patch)
    })
    .rule(["DELETE"], [""], ["v1"], ["configmaps"]);
    let _webhook = server.register_webhook(&webhook).unwrap();
    for (name, expected) in [("empty", 200), ("patched", 500)] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
        let (code, status) = http.delete(&format!("{CONFIG_MAPS}/{name}")).await;
        assert_eq!(code, expected, "{status}");
    }
}
