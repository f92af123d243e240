//! Claims and their classes.

use bytes::Bytes;
use http_body_util::Full;

use super::*;

/// Proves objects/admission.
#[tokio::test]
async fn claims_and_ingresses_get_the_default_class() {
    let server = server();
    let http = http(&server);
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let first = created(&http, CLAIMS, &claim("a")).await;
    assert!(first["spec"]["storageClassName"].is_null());
    let class = |name: &str, default: &str| {
        json!({"metadata": {"name": name, "annotations":
            {"storageclass.kubernetes.io/is-default-class": default}}, "provisioner": "x"})
    };
    created(&http, STORAGE, &class("slow", "false")).await;
    created(&http, STORAGE, &class("fast", "true")).await;
    let second = created(&http, CLAIMS, &claim("b")).await;
    assert_eq!(second["spec"]["storageClassName"], "fast");
    let mut none = claim("c");
    none["spec"]["storageClassName"] = "".into();
    let none = created(&http, CLAIMS, &none).await;
    assert_eq!(
        none["spec"]["storageClassName"], "",
        "a claim can opt out of a class"
    );

    let mut legacy = claim("d");
    legacy["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    let legacy = created(&http, CLAIMS, &legacy).await;
    assert!(
        legacy["spec"]["storageClassName"].is_null(),
        "it has a class"
    );

    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = json!({"metadata": {"name": "web", "annotations":
        {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "example.com/c"}});
    created(&http, classes, &class).await;
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend":
        {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let ingress = created(&http, ingresses, &ingress).await;
    assert_eq!(ingress["spec"]["ingressClassName"], "web");
}

/// Proves objects/admission.
#[tokio::test]
async fn newest_default_class_applies() {
    let now = Arc::new(AtomicI64::new(1_767_225_600));
    let clock = Arc::clone(&now);
    let server = ApiServer::builder()
        .clock(Clock::from_fn(move || {
            jiff::Timestamp::from_second(clock.load(Ordering::SeqCst)).unwrap()
        }))
        .build();
    let http = http(&server);
    let class = |name: &str, mark: &str| json!({"metadata": {"name": name, "annotations": {mark: "true"}}, "provisioner": "x"});
    let mark = "storageclass.kubernetes.io/is-default-class";
    created(&http, STORAGE, &class("a-old", mark)).await;
    now.fetch_add(60, Ordering::SeqCst);
    let beta = "storageclass.beta.kubernetes.io/is-default-class";
    created(&http, STORAGE, &class("b-new", beta)).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let stored = created(&http, CLAIMS, &claim).await;
    assert_eq!(stored["spec"]["storageClassName"], "b-new");
}

/// Proves objects/admission.
#[tokio::test]
async fn claims_grow_only_if_their_class_allows_it() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "fixed"}, "provisioner": "x"});
    created(&http, STORAGE, &class).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "fixed", "resources": {"requests": {"storage": "1Gi"}}}});
    created(&http, CLAIMS, &claim).await;
    let path = format!("{CLAIMS}/c");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        causes(&status),
        [
            "spec: Forbidden: spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims"
        ]
    );
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{path}/status"), &bound).await;
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            403,
            "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        )
    );
    let grows = json!({"allowVolumeExpansion": true});
    http.merge(&format!("{STORAGE}/fixed"), &grows).await;
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 200, "{status}");
}

/// Proves objects/admission.
#[tokio::test]
async fn claim_that_names_its_class_in_an_annotation_can_grow() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "grows"}, "provisioner": "x",
        "allowVolumeExpansion": true});
    created(&http, STORAGE, &class).await;
    let claim = json!({"metadata": {"name": "c", "annotations":
            {"volume.beta.kubernetes.io/storage-class": "grows"}},
        "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
    created(&http, CLAIMS, &claim).await;
    let path = format!("{CLAIMS}/c");
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{path}/status"), &bound).await;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = http.merge(&path, &larger).await;
    assert_eq!(code, 200, "{status}");
}

/// Proves objects/admission.
#[tokio::test]
async fn claim_without_a_class_gets_one_but_does_not_grow_with_it() {
    let server = server();
    let http = http(&server);
    let claim = |name: &str, annotations: Value| {
        json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    created(&http, CLAIMS, &claim("c", json!({}))).await;
    let class = json!({"metadata": {"name": "grows"}, "provisioner": "x",
        "allowVolumeExpansion": true});
    created(&http, STORAGE, &class).await;
    let path = format!("{CLAIMS}/c");
    let bound = json!({"status": {"phase": "Bound"}});
    http.merge(&format!("{path}/status"), &bound).await;
    // The class that provisioned the volume is unknown.
    let both = json!({"spec": {"storageClassName": "grows",
        "resources": {"requests": {"storage": "2Gi"}}}});
    let (code, status) = http.merge(&path, &both).await;
    assert_eq!(code, 403, "{status}");
    let class = |name: &str| json!({"spec": {"storageClassName": name}});
    assert_eq!(http.merge(&path, &class("grows")).await.0, 200);
    let (code, status) = http.merge(&path, &class("other")).await;
    assert_eq!(code, 422, "{status}");

    // A class in the annotation can move to the field, but cannot change.
    let legacy = "volume.beta.kubernetes.io/storage-class";
    created(&http, CLAIMS, &claim("d", json!({legacy: "grows"}))).await;
    let path = format!("{CLAIMS}/d");
    let moved = |name: &str| json!({"metadata": {"annotations": {legacy: null}}, "spec": {"storageClassName": name}});
    let (code, status) = http.merge(&path, &moved("other")).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        [
            format!("metadata.annotations.{legacy}: Invalid value: \"\": field is immutable"),
            "spec: Forbidden: spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims"
                .to_owned()
        ]
    );
    assert_eq!(http.merge(&path, &moved("grows")).await.0, 200);
}

/// Proves objects/admission.
#[tokio::test]
async fn claim_shrinks_no_further_than_its_volume() {
    let server = server();
    let http = http(&server);
    let class = json!({"metadata": {"name": "grows"}, "provisioner": "x",
        "allowVolumeExpansion": true});
    created(&http, STORAGE, &class).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "grows", "resources": {"requests": {"storage": "3Gi"}}}});
    created(&http, CLAIMS, &claim).await;
    let path = format!("{CLAIMS}/c");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    http.merge(&format!("{path}/status"), &bound).await;
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    assert_eq!(http.merge(&path, &size("2Gi")).await.0, 200);
    let (code, status) = http.merge(&path, &size("1Gi")).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&status),
        ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
    );
}

/// Proves objects/admission.
#[tokio::test]
async fn claims_with_deprecated_or_fractional_values_warn() {
    let server = server();
    let mut claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1500m"}, "limits": {"storage": "2"}}}});
    let annotation = "volume.beta.kubernetes.io/storage-class";
    claim["metadata"]["annotations"] = json!({annotation: "gold"});
    let request = http::Request::post(CLAIMS)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(claim.to_string())))
        .unwrap();
    let response = http(&server).send(request).await;
    assert_eq!(response.status(), 201);
    let warnings = response.headers().get_all("warning").iter();
    let warnings: Vec<&str> = warnings.map(|text| text.to_str().unwrap()).collect();
    assert_eq!(
        warnings[..2],
        [
            "299 - \"metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since \
             v1.8; use \\\"storageClassName\\\" attribute instead\"",
            "299 - \"spec.resources.requests[storage]: fractional byte value \\\"1500m\\\" is \
             invalid, must be an integer\"",
        ]
    );
    assert!(warnings[2].contains("pintle: "), "{warnings:?}");
}

/// Proves objects/admission, admission/mutating-order.
#[tokio::test]
async fn webhooks_see_the_protection_of_volumes() {
    let server = server();
    let http = http(&server);
    let webhook = Webhook::mutating("observer.example.com", |request| async move {
        let finalizers = request.object()["metadata"]["finalizers"].to_string();
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"saw": "it"}}]);
        if finalizers.contains("-protection") {
            AdmissionResponse::allow().patch(patch)
        } else {
            AdmissionResponse::allow()
        }
    });
    let volumes = "/api/v1/persistentvolumes";
    let kinds = ["persistentvolumeclaims", "persistentvolumes"];
    let _webhook = server
        .register_webhook(&webhook.rule(["CREATE"], [""], ["v1"], kinds))
        .unwrap();
    let claim = json!({"metadata": {"name": "c", "finalizers": ["example.com/own"]}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp"}}});
    for (path, object, expected) in [
        (
            CLAIMS,
            claim,
            json!(["example.com/own", "kubernetes.io/pvc-protection"]),
        ),
        (volumes, volume, json!(["kubernetes.io/pv-protection"])),
    ] {
        let stored = created(&http, path, &object).await;
        assert_eq!(stored["metadata"]["finalizers"], expected);
        assert_eq!(
            stored["metadata"]["labels"],
            json!({"saw": "it"}),
            "{stored}"
        );
        // Adding the finalizer does not make the client its owner.
        let managers = stored["metadata"]["managedFields"].to_string();
        assert!(!managers.contains("-protection"), "{managers}");
    }
}
