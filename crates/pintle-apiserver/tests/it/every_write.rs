//! Every write that discovery offers: as a dry run, against a webhook that denies everything, and
//! by a user without permissions. None of them may change anything.

use pintle_apiserver::{AdmissionResponse, ApiServer, Webhook};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, FOOS, Http, PODS, RBAC, binding, config_map, created,
    deployment, foo, foo_definition, http, http_as, pod, role, server, subject,
};

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";

/// The error message of a write that the webhook in these tests denies.
const REFUSED: &str = "admission webhook \"refuses.example.com\" denied the request: never";

#[derive(Debug)]
struct Write {
    method: &'static str,
    path: String,
    media: &'static str,
    body: Value,
    /// Whether the write opens a stream, for which there is no dry run.
    connects: bool,
}

impl Write {
    async fn send(&self, http: &Http, query: &str) -> (u16, Value) {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        let path = match query {
            "" => self.path.clone(),
            query => format!("{}{mark}{query}", self.path),
        };
        // The body of a delete would replace its query.
        let body = match &self.body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        http.raw(self.method, &path, self.media, body).await
    }

    /// Returns true if the write concerns the configuration of admission, which no webhook may
    /// block.
    fn configures_admission(&self) -> bool {
        self.path.starts_with("/apis/admissionregistration.k8s.io/")
    }
}

/// Creates objects of kinds that the server does not create itself.
async fn prepare(http: &Http) {
    let core = "/api/v1/namespaces/default";
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let set = json!({"metadata": {"name": "a"},
        "spec": {"selector": selector, "template": template, "serviceName": "a"}});
    let mut job = json!({"metadata": {"name": "a"}, "spec": {"template": template}});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    let scheduled = json!({"metadata": {"name": "a"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}});
    let claim = json!({"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 2,
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let hook = json!({"metadata": {"name": "a"}, "webhooks": []});
    created(http, DEFINITIONS, &foo_definition()).await;
    for (path, object) in [
        (CONFIG_MAPS.to_owned(), config_map("a")),
        (PODS.to_owned(), pod("p")),
        (DEPLOYMENTS.to_owned(), deployment("d")),
        (FOOS.to_owned(), foo("f")),
        (
            format!("{core}/secrets"),
            json!({"metadata": {"name": "a"}}),
        ),
        (
            format!("{core}/serviceaccounts"),
            json!({"metadata": {"name": "a"}}),
        ),
        (
            format!("{core}/services"),
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
        ),
        (format!("{core}/persistentvolumeclaims"), claim),
        (
            "/api/v1/nodes".to_owned(),
            json!({"metadata": {"name": "n"}}),
        ),
        ("/apis/apps/v1/namespaces/default/replicasets".to_owned(), {
            let mut set = set.clone();
            set["spec"].as_object_mut().unwrap().remove("serviceName");
            set
        }),
        (
            "/apis/apps/v1/namespaces/default/statefulsets".to_owned(),
            set,
        ),
        ("/apis/batch/v1/namespaces/default/jobs".to_owned(), job),
        (
            "/apis/batch/v1/namespaces/default/cronjobs".to_owned(),
            scheduled,
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers".to_owned(),
            scaler,
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"metadata": {"name": "a"}, "spec": {"selector": {}}}),
        ),
        (
            format!("{RBAC}/namespaces/default/roles"),
            role("a", &rules),
        ),
        (
            format!("{RBAC}/namespaces/default/rolebindings"),
            binding("a", "Role/a", &[subject("User", "eve")]),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            json!({"metadata": {"name": "a"}, "spec": {}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".to_owned(),
            hook,
        ),
    ] {
        created(http, &path, &object).await;
    }
}

/// Returns the versions of all API groups, as paths.
async fn versions(http: &Http) -> Vec<String> {
    let (_, groups) = http.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap().iter();
    let versions = groups.flat_map(|group| group["versions"].as_array().unwrap());
    let paths = versions.map(|v| format!("/apis/{}", v["groupVersion"].as_str().unwrap()));
    std::iter::once("/api/v1".to_owned()).chain(paths).collect()
}

/// Returns every write of every resource that discovery offers.
async fn writes(http: &Http) -> Vec<Write> {
    let mut writes = Vec::new();
    for base in versions(http).await {
        let (_, found) = http.get(&base).await;
        let resources = found["resources"].as_array().unwrap();
        for resource in resources {
            let name = resource["name"].as_str().unwrap();
            let (plural, sub) = name.split_once('/').unwrap_or((name, ""));
            let scope = match resource["namespaced"].as_bool() {
                Some(true) => "/namespaces/default",
                _ => "",
            };
            let verbs = resource["verbs"].as_array().unwrap();
            let has = |verb: &str| verbs.iter().any(|other| other == verb);
            let all = format!("{base}{scope}/{plural}");
            let (_, list) = http.get(&all).await;
            let item = list["items"][0].clone();
            let (mut version, kind) = (list["apiVersion"].clone(), resource["kind"].clone());
            if version != json!(base.trim_start_matches("/apis/")) && base != "/api/v1" {
                version = json!(base.trim_start_matches("/apis/"));
            }
            let one = format!("{all}/{}", item["metadata"]["name"].as_str().unwrap_or("a"));
            if sub.is_empty() {
                whole(&mut writes, &all, &one, item, (&version, &kind), has);
            } else {
                part(&mut writes, http, &format!("{one}/{sub}"), sub, has).await;
            }
        }
    }
    writes
}

/// Adds the writes of an object and its collection.
fn whole(
    writes: &mut Vec<Write>,
    all: &str,
    one: &str,
    item: Value,
    (version, kind): (&Value, &Value),
    has: impl Fn(&str) -> bool,
) {
    let mut add = |method, path: &str, media, body: Value| {
        writes.push(Write {
            method,
            path: path.to_owned(),
            media,
            body,
            connects: false,
        });
    };
    let label = json!({"metadata": {"labels": {"touched": "yes"}}});
    let mut copy = item.clone();
    if copy.is_null() {
        copy = json!({});
    }
    copy["metadata"] = json!({"name": "copy"});
    copy["apiVersion"] = version.clone();
    copy["kind"] = kind.clone();
    if let Some(spec) = copy["spec"].as_object_mut() {
        for taken in ["clusterIP", "clusterIPs", "nodeName"] {
            spec.remove(taken);
        }
    }
    if has("create") {
        add("POST", all, JSON, copy.clone());
    }
    if has("patch") && has("create") {
        let path = format!("{all}/copy?fieldManager=m&force=true");
        add("PATCH", &path, APPLY, copy);
    }
    if item.is_object() {
        let mut labelled = item;
        labelled["metadata"]["labels"]["touched"] = "yes".into();
        if has("update") {
            add("PUT", one, JSON, labelled);
        }
        if has("patch") {
            add("PATCH", one, "application/merge-patch+json", label.clone());
            let strategic = "application/strategic-merge-patch+json";
            add("PATCH", one, strategic, label.clone());
            let annotate = json!([{"op": "add", "path": "/metadata/annotations",
                "value": {"touched": "yes"}}]);
            add("PATCH", one, "application/json-patch+json", annotate);
            let name = one.rsplit('/').next().unwrap();
            let applied = json!({"apiVersion": version, "kind": kind,
                "metadata": {"name": name, "labels": {"touched": "yes"}}});
            let path = format!("{one}?fieldManager=m&force=true");
            add("PATCH", &path, APPLY, applied);
        }
        if has("delete") {
            add("DELETE", one, JSON, Value::Null);
        }
        if has("deletecollection") {
            add("DELETE", all, JSON, Value::Null);
        }
    }
}

/// Adds the writes of a subresource.
async fn part(
    writes: &mut Vec<Write>,
    http: &Http,
    path: &str,
    sub: &str,
    has: impl Fn(&str) -> bool,
) {
    let connects = ["attach", "exec", "portforward", "proxy"].contains(&sub);
    let mut add = |method, media, body: Value| {
        writes.push(Write {
            method,
            path: path.to_owned(),
            media,
            body,
            connects,
        });
    };
    if connects {
        add("GET", JSON, json!({}));
        add("POST", JSON, json!({}));
        if sub == "proxy" {
            add("DELETE", JSON, json!({}));
        }
        return;
    }
    if has("create") {
        let name = path.split('/').rev().nth(1).unwrap();
        let body = match sub {
            "token" => json!({"spec": {}}),
            _ => json!({"metadata": {"name": name}, "target": {"name": "n"}}),
        };
        add("POST", JSON, body);
    }
    let (_, mut shown) = http.get(path).await;
    shown["metadata"]["labels"]["touched"] = "yes".into();
    let change = match sub {
        "scale" => json!({"spec": {"replicas": 3}}),
        "status" => json!({"metadata": {"labels": {"touched": "yes"}},
            "status": {"replicas": 7, "reason": "x"}}),
        _ => json!({"metadata": {"labels": {"touched": "yes"}}}),
    };
    if sub == "scale" {
        shown["spec"]["replicas"] = 3.into();
    }
    if has("update") {
        add("PUT", JSON, shown);
    }
    if has("patch") {
        add("PATCH", "application/merge-patch+json", change);
    }
}

/// Returns the revision of the whole store.
async fn revision(http: &Http) -> String {
    let (_, list) = http.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let version = &list["metadata"]["resourceVersion"];
    version.as_str().unwrap().to_owned()
}

/// Returns a server with objects, the writes to try, and whether each would succeed.
async fn prepared() -> (ApiServer, Http, Vec<(Write, bool)>) {
    let server = server();
    let http = http(&server);
    prepare(&http).await;
    let before = revision(&http).await;
    let mut tried = Vec::new();
    for write in writes(&http).await {
        if write.connects {
            tried.push((write, true));
            continue;
        }
        let (code, _) = write.send(&http, "dryRun=All").await;
        assert_eq!(revision(&http).await, before, "{write:?}");
        tried.push((write, code < 300));
    }
    (server, http, tried)
}

/// Proves objects/dry-run.
#[tokio::test(start_paused = true)]
async fn no_dry_run_of_any_write_changes_anything() {
    let (_server, _http, tried) = prepared().await;
    let fine = tried.iter().filter(|(_, fine)| *fine).count();
    // Otherwise these tests would check little.
    assert!(fine > 250, "{fine} of {} writes succeed", tried.len());
}

/// Proves admission/every-write, admission/exempt.
#[tokio::test(start_paused = true)]
async fn webhook_that_denies_everything_blocks_all_writes() {
    let (server, http, tried) = prepared().await;
    for webhook in [Webhook::validating, Webhook::mutating] {
        let webhook = webhook("refuses.example.com", |_| async {
            AdmissionResponse::deny("never")
        });
        let webhook = webhook.rule(["*"], ["*"], ["*"], ["*/*"]);
        let _registration = server.register_webhook(&webhook).unwrap();
        let before = revision(&http).await;
        for (write, fine) in &tried {
            if write.configures_admission() {
                let (code, status) = write.send(&http, "dryRun=All").await;
                assert_eq!(code < 300, *fine, "{write:?}: {status}");
                continue;
            }
            let (code, status) = write.send(&http, "").await;
            assert_eq!(revision(&http).await, before, "{write:?}: {code} {status}");
            if *fine {
                let message = status["message"].as_str().unwrap_or_default();
                assert_eq!((code, message), (400, REFUSED), "{write:?}");
            }
        }
    }
}

/// Proves rbac/enforced.
#[tokio::test(start_paused = true)]
async fn user_without_permissions_can_write_nothing() {
    let (server, http, tried) = prepared().await;
    let nobody = http_as(&server, "nobody");
    let before = revision(&http).await;
    for (write, _) in &tried {
        let own = write.path.ends_with("/selfsubjectaccessreviews")
            || write.path.ends_with("/selfsubjectrulesreviews")
            || write.path.ends_with("/selfsubjectreviews");
        let (code, status) = write.send(&nobody, "").await;
        assert!(code == 403 || own, "{write:?}: {code} {status}");
        assert_eq!(revision(&http).await, before, "{write:?}");
    }
}
