//! Resource claims: which parts of the status a user may write, and admin access to devices.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::support::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const GROUP: &str = "resource.k8s.io";

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}})
}

/// Returns the result of an allocation.
fn result(device: &str) -> Value {
    json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": device})
}

fn allocation(devices: &[&str]) -> Value {
    let results: Vec<Value> = devices.iter().map(|device| result(device)).collect();
    json!({"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}})
}

fn report(driver: &str, device: &str, text: &str) -> Value {
    json!({"driver": driver, "pool": "p", "device": device, "data": {"text": text}})
}

fn rule(resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({"apiGroups": [GROUP], "resources": resources, "verbs": verbs, "resourceNames": names})
}

/// Proves rbac/resource-claims.
#[tokio::test]
async fn status_of_a_claim_needs_permission_for_what_it_changes() {
    let server = server();
    let admin = http(&server);
    created(&admin, CLAIMS, &claim("c")).await;
    let status = rule(&["resourceclaims/status"], &["patch", "update"], &[]);
    let binds = rule(&["resourceclaims/binding"], &["patch"], &[]);
    grant_cluster(&admin, "jane", &json!([status])).await;
    grant_cluster(&admin, "scheduler", &json!([status, binds])).await;
    let (jane, scheduler) = (http_as(&server, "jane"), http_as(&server, "scheduler"));
    let path = format!("{CLAIMS}/c/status");

    let label = json!({"metadata": {"labels": {"a": "b"}}, "status": {"reservedFor": []}});
    let (code, found) = jane.merge(&path, &label).await;
    assert_eq!(code, 200, "an empty list is no change: {found}");
    let reserved = json!({"status": {"allocation": allocation(&["d"]), "reservedFor":
        [{"resource": "pods", "name": "p", "uid": "u"}]}});
    let (code, found) = jane.merge(&path, &reserved).await;
    assert_eq!(code, 422, "{found}");
    let forbidden = |verb: &str| {
        format!(
            "status.allocation: Forbidden: changing status.allocation or status.reservedFor \
             requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: \
             resourceclaims.resource.k8s.io is forbidden: User \"jane\" cannot {verb} resource \
             \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
        )
    };
    assert_eq!(causes(&found), [forbidden("patch")]);
    let (_, mut whole) = admin.get(&format!("{CLAIMS}/c")).await;
    whole["status"] = reserved["status"].clone();
    let (code, found) = jane.put(&path, &whole).await;
    assert_eq!((code, causes(&found)), (422, vec![forbidden("update")]));
    assert_eq!(scheduler.put(&path, &whole).await.0, 422);
    assert_eq!(scheduler.merge(&path, &reserved).await.0, 200);

    // A scheduler is not a driver.
    let reports = json!({"status": {"devices": [report("gpu.example.com", "d", "x")]}});
    let (code, found) = scheduler.merge(&path, &reports).await;
    assert_eq!(code, 422);
    assert_eq!(
        causes(&found),
        [
            "status.devices: Forbidden: changing status.devices requires \
             resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission: \
             resourceclaims.resource.k8s.io \"gpu.example.com\" is forbidden: User \"scheduler\" \
             cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \
             \"resource.k8s.io\" in the namespace \"default\""
        ]
    );
    assert_eq!(admin.merge(&path, &reports).await.0, 200);
    // Deallocation removes the reports, which needs no permission of a driver.
    let free = json!({"status": {"allocation": null, "reservedFor": null}});
    let (code, found) = scheduler.merge(&path, &free).await;
    assert_eq!(code, 200, "{found}");
    assert_eq!(found["status"], json!({}));
}

/// Proves rbac/resource-claims.
#[tokio::test]
async fn driver_reports_on_its_own_devices() {
    let server = server();
    let admin = http(&server);
    created(&admin, CLAIMS, &claim("c")).await;
    let path = format!("{CLAIMS}/c/status");
    let status = json!({"status": {"allocation": allocation(&["d", "e"]), "devices":
        [report("other.example.com", "d", "x")]}});
    let (code, found) = admin.merge(&path, &status).await;
    assert_eq!(code, 200, "{found}");
    let account = "system:serviceaccount:default:driver";
    let writes = rule(&["resourceclaims/status"], &["patch"], &[]);
    let own = rule(
        &["resourceclaims/driver"],
        &["associated-node:patch"],
        &["gpu.example.com"],
    );
    grant_cluster(&admin, account, &json!([writes, own])).await;
    let send = async |nodes: &[&str], devices: Value| {
        let mut request = http::Request::builder()
            .method("PATCH")
            .uri(&path)
            .header("content-type", "application/merge-patch+json")
            .header("impersonate-user", account);
        for node in nodes {
            let key = "impersonate-extra-authentication.kubernetes.io%2fnode-name";
            request = request.header(key, *node);
        }
        let body = json!({"status": {"devices": devices}}).to_string();
        let response = admin
            .send(request.body(Full::new(Bytes::from(body))).unwrap())
            .await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let found: Value = serde_json::from_slice(&body).unwrap();
        let count = causes(&found).len();
        (code, count)
    };
    let other = report("other.example.com", "d", "x");
    let mine = |text: &str| report("gpu.example.com", "d", text);
    // Its own device, from the node of the claim.
    assert_eq!(send(&["n"], json!([other, mine("x")])).await, (200, 0));
    assert_eq!(send(&["n"], json!([other, mine("y")])).await, (200, 0));
    // The same without a change, from anywhere.
    assert_eq!(send(&[], json!([mine("y"), other])).await, (200, 0));
    for nodes in [&[][..], &["m"], &["n", "n"]] {
        assert_eq!(
            send(nodes, json!([other, mine("z")])).await,
            (422, 1),
            "{nodes:?}"
        );
    }
    // A report of another driver, changed, removed, or under another share.
    let changed = report("other.example.com", "d", "y");
    assert_eq!(send(&["n"], json!([changed, mine("y")])).await, (422, 1));
    assert_eq!(send(&["n"], json!([mine("y")])).await, (422, 1));
    let mut share = other.clone();
    share["shareID"] = "0a1b2c3d-0000-4000-8000-000000000000".into();
    assert_eq!(
        send(&["n"], json!([other, share, mine("y")])).await,
        (422, 1)
    );
    // One refusal for each driver.
    assert_eq!(send(&[], json!([])).await, (422, 2));
}

/// Proves rbac/resource-claims.
#[tokio::test]
async fn admin_access_to_devices_needs_a_labelled_namespace() {
    let server = server();
    let http = http(&server);
    let mut wanted = claim("c");
    wanted["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = true.into();
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": wanted["spec"]}});
    let templates = CLAIMS.replace("claims", "claimtemplates");
    let why = |at: &str| {
        vec![format!(
            "{at}.adminAccess: Forbidden: admin access to devices requires the \
             `resource.kubernetes.io/admin-access: true` label on the containing namespace"
        )]
    };
    for (path, object) in [(CLAIMS, &wanted), (&templates, &template)] {
        let (code, found) = http.post(path, object).await;
        assert_eq!(
            (code, causes(&found)),
            (422, why("spec.devices.requests[0]"))
        );
    }
    created(&http, CLAIMS, &claim("plain")).await;
    let mut status = json!({"status": {"allocation": allocation(&["d", "e"])}});
    status["status"]["allocation"]["devices"]["results"][1]["adminAccess"] = true.into();
    let path = format!("{CLAIMS}/plain/status");
    let (code, found) = http.merge(&path, &status).await;
    let at = "status.allocation.devices.results[1]";
    assert_eq!((code, causes(&found)), (422, why(at)));

    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    http.merge("/api/v1/namespaces/default", &label).await;
    created(&http, CLAIMS, &wanted).await;
    created(&http, &templates, &template).await;
    let (code, found) = http.merge(&path, &status).await;
    assert_eq!(code, 200, "{found}");
}
