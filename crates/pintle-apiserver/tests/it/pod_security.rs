//! Pod Security: namespace labels that deny Pods, warn and audit.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, AuditEvent};
use serde_json::{Value, json};

use crate::support::{Http, causes, deployment, http, pod, server};

const PODS: &str = "/api/v1/namespaces/n/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/n/deployments";
const ESCALATION: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" \
    must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \
    \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must \
    set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

fn namespace(labels: &Value) -> Value {
    json!({"metadata": {"name": "n", "labels": labels}})
}

fn labels(pairs: &[(&str, &str)]) -> Value {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), *value))
        .collect()
}

/// Sends a write; returns the code, the body and Kubernetes' own warnings.
async fn send(http: &Http, method: &str, path: &str, body: &Value) -> (u16, Value, Vec<String>) {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = http.send(request).await;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings = warnings.map(|value| {
        let text = value.to_str().unwrap().strip_prefix("299 - \"").unwrap();
        text.strip_suffix('"').unwrap().replace("\\\"", "\"")
    });
    let warnings = warnings
        .filter(|text| !text.starts_with("pintle: "))
        .collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap(), warnings)
}

/// Proves pod-security/enforce.
#[tokio::test(start_paused = true)]
async fn pod_that_violates_the_standard_is_denied() {
    let server = server();
    let http = http(&server);
    let enforced = labels(&[("enforce", "restricted")]);
    send(&http, "POST", "/api/v1/namespaces", &namespace(&enforced)).await;
    let (code, status, warnings) = send(&http, "POST", PODS, &pod("p")).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        format!(
            "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": {ESCALATION}"
        )
    );
    assert_eq!(warnings, Vec::<String>::new(), "a denial needs no warning");
    assert_eq!(http.get(&format!("{PODS}/p")).await.0, 404);
    let mut good = pod("p");
    good["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    good["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let (code, created, warnings) = send(&http, "POST", PODS, &good).await;
    assert_eq!((code, warnings.len()), (201, 0), "{created}");
    // Other namespaces are not affected.
    let elsewhere = "/api/v1/namespaces/default/pods";
    assert_eq!(http.post(elsewhere, &pod("p")).await.0, 201);
}

/// Proves pod-security/enforce.
#[tokio::test(start_paused = true)]
async fn workload_is_stored_with_a_warning() {
    let server = server();
    let http = http(&server);
    let enforced = labels(&[("enforce", "restricted"), ("enforce-version", "v1.30")]);
    send(&http, "POST", "/api/v1/namespaces", &namespace(&enforced)).await;
    let would = format!("would violate PodSecurity \"restricted:v1.30\": {ESCALATION}");
    let (code, _, warnings) = send(&http, "POST", DEPLOYMENTS, &deployment("d")).await;
    assert_eq!((code, warnings), (201, vec![would.clone()]));
    let job = json!({"metadata": {"name": "j"}, "spec": {"schedule": "* * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}}}});
    let jobs = "/apis/batch/v1/namespaces/n/cronjobs";
    let (code, created, warnings) = send(&http, "POST", jobs, &job).await;
    assert_eq!((code, warnings), (201, vec![would]), "{created}");
    // With `warn` alone, Pods are stored as well.
    let warned = labels(&[("enforce", "privileged"), ("warn", "baseline")]);
    let path = "/api/v1/namespaces/n";
    let relabel = json!({"metadata": {"labels": warned}});
    assert_eq!(send(&http, "PATCH", path, &relabel).await.0, 200);
    let mut host = pod("h");
    host["spec"]["hostNetwork"] = true.into();
    let (code, _, warnings) = send(&http, "POST", PODS, &host).await;
    assert_eq!(code, 201);
    assert_eq!(
        warnings,
        ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]
    );
}

/// Proves pod-security/enforce.
#[tokio::test(start_paused = true)]
async fn only_significant_updates_are_checked() {
    let server = server();
    let http = http(&server);
    send(&http, "POST", "/api/v1/namespaces", &namespace(&json!({}))).await;
    assert_eq!(send(&http, "POST", PODS, &pod("p")).await.0, 201);
    let tighten = json!({"metadata": {"labels": labels(&[("enforce", "restricted")])}});
    send(&http, "PATCH", "/api/v1/namespaces/n", &tighten).await;
    let path = format!("{PODS}/p");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&http, "PATCH", &path, &label).await.0, 200);
    let ready = json!({"status": {"phase": "Running"}});
    assert_eq!(
        send(&http, "PATCH", &format!("{path}/status"), &ready)
            .await
            .0,
        200
    );
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let (code, status, _) = send(&http, "PATCH", &path, &image).await;
    assert_eq!(code, 403, "{status}");
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}});
    let debugger = format!("{path}/ephemeralcontainers");
    let (code, status, _) = send(&http, "PATCH", &debugger, &debug).await;
    assert_eq!(code, 403, "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("containers \"c\", \"e\" must set"),
        "{message}"
    );
}

/// Proves pod-security/labels.
#[tokio::test(start_paused = true)]
async fn invalid_namespace_label_is_reported_once() {
    let server = server();
    let http = http(&server);
    let bad = labels(&[("enforce", "strict")]);
    let (code, status, _) = send(&http, "POST", "/api/v1/namespaces", &namespace(&bad)).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be \
            one of privileged, baseline, restricted"
        ]
    );
    send(&http, "POST", "/api/v1/namespaces", &namespace(&json!({}))).await;
    let bad = json!({"metadata": {"labels": labels(&[("audit-version", "1.30")])}});
    let (code, status, _) = send(&http, "PATCH", "/api/v1/namespaces/n", &bad).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Namespace \"n\" is invalid: metadata.labels[pod-security.kubernetes.io/audit-version]: \
         Invalid value: \"1.30\": must be \"latest\" or \"v1.x\""
    );
}

/// Proves pod-security/labels.
#[tokio::test(start_paused = true)]
async fn stricter_namespace_warns_about_existing_pods() {
    let server = server();
    let http = http(&server);
    send(&http, "POST", "/api/v1/namespaces", &namespace(&json!({}))).await;
    for name in ["b", "a", "c"] {
        send(&http, "POST", PODS, &pod(name)).await;
    }
    let mut host = pod("h");
    host["spec"]["hostPID"] = true.into();
    send(&http, "POST", PODS, &host).await;
    let path = "/api/v1/namespaces/n";
    let enforce = |level: &str| json!({"metadata": {"labels": labels(&[("enforce", level)])}});
    let missing = "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != \
        true, seccompProfile";
    let (code, _, warnings) = send(&http, "PATCH", path, &enforce("restricted")).await;
    assert_eq!(code, 200);
    assert_eq!(
        warnings,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \
             \"restricted:latest\""
                .to_owned(),
            format!("a (and 2 other pods): {missing}"),
            format!("h: host namespaces, {missing}"),
        ]
    );
    let (_, _, relaxed) = send(&http, "PATCH", path, &enforce("baseline")).await;
    assert_eq!(
        relaxed,
        Vec::<String>::new(),
        "a relaxed level checks nothing"
    );
}

/// Proves audit/annotations.
#[tokio::test(start_paused = true)]
async fn violations_are_audited() {
    let events = Arc::new(Mutex::new(Vec::<AuditEvent>::new()));
    let seen = Arc::clone(&events);
    let builder = ApiServer::builder().seed(1);
    let server = builder.audit(move |event| seen.lock().unwrap().push(event));
    let server = server.build();
    let http = http(&server);
    let audited = labels(&[("enforce", "baseline"), ("audit", "restricted")]);
    send(&http, "POST", "/api/v1/namespaces", &namespace(&audited)).await;
    send(&http, "POST", PODS, &pod("p")).await;
    send(&http, "POST", DEPLOYMENTS, &deployment("d")).await;
    send(&http, "POST", "/api/v1/namespaces/default/pods", &pod("q")).await;
    let would = format!("would violate PodSecurity \"restricted:latest\": {ESCALATION}");
    let noted: Vec<Value> = std::mem::take(&mut *events.lock().unwrap())
        .into_iter()
        .map(|event| json!(event.annotations))
        .collect();
    assert_eq!(
        noted[1..],
        [
            json!({"pod-security.kubernetes.io/enforce-policy": "baseline:latest",
                "pod-security.kubernetes.io/audit-violations": would}),
            json!({"pod-security.kubernetes.io/audit-violations": would}),
            json!({"pod-security.kubernetes.io/enforce-policy": "privileged:latest"}),
        ]
    );
}
