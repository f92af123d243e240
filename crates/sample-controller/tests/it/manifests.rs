//! The output of `sample-controller manifests`: it applies, and grants exactly what is needed.

use std::collections::BTreeSet;

use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use pintle::rbac::Manifests;
use pintle_apiserver::ApiServer;
use sample_controller::manifests::{self, Placement};
use sample_scenarios::{Crd, InProcess, Permission, Scene, scenarios};
use serde_json::Value;

/// Collects the permissions that controllers need in the scenarios, on servers with and without
/// streaming lists.
async fn needed() -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    macro_rules! play {
        ($($scenario:ident),*) => {$(
            let scene = Scene::new(InProcess::new(Crd::Own).await).await;
            scenarios::$scenario(&scene).await;
            permissions.extend(scene.gate.permissions());
        )*};
    }
    play!(
        create,
        scale,
        foreign_deployment,
        deleted_deployment,
        deleted_foo,
        renamed_deployment,
        controller_down,
        missing_name
    );
    let older = Scene::new(InProcess::new(Crd::Own).await).await;
    older.gate.refuse_streaming_lists();
    scenarios::create(&older).await;
    permissions.extend(older.gate.permissions());
    // Not a request: OwnerReferencesPermissionEnforcement requires it for `blockOwnerDeletion`.
    permissions.insert(Permission {
        group: "samplecontroller.k8s.io".into(),
        resource: "foos/finalizers".into(),
        verb: "update".into(),
    });
    permissions
}

/// Returns the permissions of the `ClusterRole`, which must be the only role.
fn allowed(manifests: Manifests) -> BTreeSet<Permission> {
    assert!(manifests.roles.is_empty());
    let role = manifests.cluster_role.unwrap_or_default();
    let mut permissions = BTreeSet::new();
    for rule in role.rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                permissions.extend(rule.verbs.iter().map(|verb| Permission {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    permissions
}

fn compare(needed: &BTreeSet<Permission>, allowed: &BTreeSet<Permission>) {
    let names = |permissions: Vec<&Permission>| {
        permissions
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let missing = names(needed.difference(allowed).collect());
    let superfluous = names(allowed.difference(needed).collect());
    assert!(missing.is_empty(), "the role lacks {missing:?}");
    assert!(
        superfluous.is_empty(),
        "the role need not allow {superfluous:?}"
    );
}

/// Proves sample/least-privilege.
#[tokio::test(start_paused = true)]
async fn role_allows_exactly_the_controllers_requests() {
    compare(&needed().await, &allowed(manifests::rbac("shop")));
}

/// Creates `object` like `kubectl create --validate=strict`.
async fn create(client: &Client, object: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = object["metadata"]["namespace"].as_str();
    let scope = namespace.map(|namespace| format!("namespaces/{namespace}/"));
    let resource = format!("{}s", text(&object["kind"]).to_lowercase());
    let path = format!(
        "/{root}/{version}/{}{resource}?fieldValidation=Strict",
        scope.unwrap_or_default()
    );
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request(request).await.unwrap()
}

/// Proves sample/least-privilege.
#[tokio::test]
async fn manifests_apply_under_strict_validation() {
    let placement = Placement {
        namespace: "shop".into(),
        ..Placement::default()
    };
    let yaml = manifests::yaml(&placement).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    let kinds: Vec<&str> = objects.iter().filter_map(|o| o["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "Namespace",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Deployment"
        ]
    );
    let client = ApiServer::builder().build().client();
    let mut stored = Vec::new();
    for object in &objects {
        stored.push(create(&client, object).await);
    }
    assert_eq!(stored[3]["roleRef"]["name"], stored[2]["metadata"]["name"]);
    let subject = &stored[3]["subjects"][0];
    assert_eq!(subject["name"], stored[1]["metadata"]["name"]);
    assert_eq!(subject["namespace"], stored[1]["metadata"]["namespace"]);

    let deployment: Deployment = serde_json::from_value(stored[4].clone()).unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.replicas, Some(1));
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("Recreate"));
    let pod = spec.template.spec.unwrap();
    assert_eq!(
        pod.service_account_name.as_deref(),
        stored[1]["metadata"]["name"].as_str()
    );
    assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));
    let container = &pod.containers[0];
    let confined = container.security_context.as_ref().unwrap();
    assert_eq!(confined.read_only_root_filesystem, Some(true));
    assert_eq!(confined.allow_privilege_escalation, Some(false));
    let bind = format!(
        "--bind=0.0.0.0:{}",
        container.ports.as_ref().unwrap()[0].container_port
    );
    assert!(container.args.as_ref().unwrap().contains(&bind));
    for (probe, path) in [
        (&container.liveness_probe, "/healthz"),
        (&container.readiness_probe, "/readyz"),
    ] {
        let get = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!(get.path.as_deref(), Some(path));
    }
}
