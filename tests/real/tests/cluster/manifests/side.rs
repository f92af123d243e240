//! One of the clusters, in the namespace of a case.

use std::collections::BTreeMap;

use kube::Client;
use regex::Regex;
use serde_json::{Value, json};

use super::super::mask::{generated_from, masked};
use super::case::{Accepted, Kubelet, Report};

/// The kinds of the manifests: name, path of group and version, plural, and whether namespaced.
const KINDS: [(&str, &str, &str, bool); 23] = [
    (
        "CertificateSigningRequest",
        "apis/certificates.k8s.io/v1",
        "certificatesigningrequests",
        false,
    ),
    ("ConfigMap", "api/v1", "configmaps", true),
    (
        "ControllerRevision",
        "apis/apps/v1",
        "controllerrevisions",
        true,
    ),
    ("CronJob", "apis/batch/v1", "cronjobs", true),
    ("DaemonSet", "apis/apps/v1", "daemonsets", true),
    ("Deployment", "apis/apps/v1", "deployments", true),
    (
        "EndpointSlice",
        "apis/discovery.k8s.io/v1",
        "endpointslices",
        true,
    ),
    ("Endpoints", "api/v1", "endpoints", true),
    (
        "HorizontalPodAutoscaler",
        "apis/autoscaling/v2",
        "horizontalpodautoscalers",
        true,
    ),
    ("Job", "apis/batch/v1", "jobs", true),
    ("Node", "api/v1", "nodes", false),
    ("PersistentVolume", "api/v1", "persistentvolumes", false),
    (
        "PersistentVolumeClaim",
        "api/v1",
        "persistentvolumeclaims",
        true,
    ),
    ("Pod", "api/v1", "pods", true),
    (
        "PodDisruptionBudget",
        "apis/policy/v1",
        "poddisruptionbudgets",
        true,
    ),
    ("ReplicaSet", "apis/apps/v1", "replicasets", true),
    (
        "ReplicationController",
        "api/v1",
        "replicationcontrollers",
        true,
    ),
    ("ResourceQuota", "api/v1", "resourcequotas", true),
    ("Secret", "api/v1", "secrets", true),
    ("Service", "api/v1", "services", true),
    ("ServiceAccount", "api/v1", "serviceaccounts", true),
    ("StatefulSet", "apis/apps/v1", "statefulsets", true),
    (
        "StorageClass",
        "apis/storage.k8s.io/v1",
        "storageclasses",
        false,
    ),
];

pub(super) struct Side {
    pub(super) client: Client,
    pub(super) namespace: String,
}

/// The objects of a case, by kind, as they are stored.
pub(super) type State = BTreeMap<String, Vec<Value>>;

impl Side {
    fn path(&self, kind: &str) -> String {
        let known = KINDS.iter().find(|known| known.0 == kind);
        let (_, group, plural, is_namespaced) = known.unwrap_or_else(|| panic!("kind {kind}"));
        if *is_namespaced {
            format!("/{group}/namespaces/{}/{plural}", self.namespace)
        } else {
            format!("/{group}/{plural}")
        }
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> kube::Result<Value> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(|body| body.to_string().into_bytes());
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(body.unwrap_or_default())
            .unwrap();
        self.client.request(request).await
    }

    pub(super) async fn create(&self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let known = KINDS.iter().find(|known| known.0 == kind).unwrap();
        let mut object = object.clone();
        let version = known
            .1
            .trim_start_matches("apis/")
            .trim_start_matches("api/");
        object["apiVersion"] = json!(version);
        let created = self.send("POST", &self.path(kind), Some(&object)).await;
        created.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    /// Patches an object, given its kind and name, or one of its subresources.
    pub(super) async fn patch(&self, id: &str, subresource: &str, patch: &Value) {
        let (kind, name) = id.split_once('/').unwrap();
        let path = format!("{}/{name}{subresource}", self.path(kind));
        let patched = self.send("PATCH", &path, Some(patch)).await;
        patched.unwrap_or_else(|error| panic!("{id}: {error}"));
    }

    pub(super) async fn delete(&self, id: &str, policy: &str) {
        let (kind, name) = id.split_once('/').unwrap();
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": policy });
        let path = format!("{}/{name}", self.path(kind));
        let deleted = self.send("DELETE", &path, Some(&options)).await;
        deleted.unwrap_or_else(|error| panic!("{id}: {error}"));
    }

    /// Requests the deletion of the case's cluster-scoped objects.
    pub(super) async fn delete_unscoped(&self) {
        let unscoped = KINDS.iter().filter(|kind| !kind.3);
        let kinds: Vec<String> = unscoped.map(|kind| kind.0.to_owned()).collect();
        for (kind, objects) in self.state(&kinds).await {
            for object in objects {
                let name = object["metadata"]["name"].as_str().unwrap();
                let path = format!("{}/{name}", self.path(&kind));
                // The object may already be gone.
                let _ = self.send("DELETE", &path, None).await;
            }
        }
    }

    /// Returns the case's objects of these kinds, except `kube-root-ca.crt`. Cluster-scoped objects
    /// belong to the case if their names start with its namespace.
    pub(super) async fn state(&self, kinds: &[String]) -> State {
        let mut state = State::new();
        let with_accounts = kinds.iter().any(|kind| kind == "ServiceAccount");
        for kind in kinds {
            let listed = self.send("GET", &self.path(kind), None).await.unwrap();
            let mut items = listed["items"].as_array().cloned().unwrap_or_default();
            items.retain(|item| {
                let metadata = &item["metadata"];
                let name = metadata["name"].as_str().unwrap();
                let is_ours =
                    metadata["namespace"].is_string() || name.starts_with(&self.namespace);
                // Most files count their own ConfigMaps.
                let is_counted = name != "kube-root-ca.crt" || with_accounts;
                is_ours && is_counted
            });
            state.insert(kind.clone(), items);
        }
        state
    }

    /// Binds a Pod to the node that its affinity names. Returns whether it has one.
    async fn bind(&self, pod: &Value) -> bool {
        let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                    /nodeSelectorTerms/0/matchFields/0/values/0";
        let (Some(node), None) = (pod.pointer(path), pod["spec"]["nodeName"].as_str()) else {
            return false;
        };
        let (name, target) = (
            &pod["metadata"]["name"],
            json!({ "kind": "Node", "name": node }),
        );
        let binding = json!({ "kind": "Binding", "apiVersion": "v1",
            "metadata": { "name": name }, "target": target });
        let path = format!("{}/{}/binding", self.path("Pod"), name.as_str().unwrap());
        // The Pod may have been deleted.
        let _ = self.send("POST", &path, Some(&binding)).await;
        true
    }

    /// Reports that a node is alive. Otherwise, kube-controller-manager taints it after 50 seconds.
    pub(super) async fn beat(&self, node: &str, now: &str) {
        let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": now });
        let patch = json!({ "status": { "conditions": [ready] } });
        self.patch(&format!("Node/{node}"), "/status", &patch).await;
    }

    /// Plays the scheduler of Pods that must be on a certain node, and the kubelet. Returns whether
    /// there was something to do.
    pub(super) async fn run_pods(&self, kubelet: &Kubelet, state: &State) -> bool {
        let mut reported = false;
        for pod in state.get("Pod").into_iter().flatten() {
            let (metadata, status) = (&pod["metadata"], &pod["status"]);
            let name = metadata["name"].as_str().unwrap();
            let path = format!("{}/{name}", self.path("Pod"));
            let deleted = metadata["deletionTimestamp"].is_string();
            if deleted && pod["spec"]["nodeName"].is_string() {
                // The kubelet has stopped it. Pods without a node are deleted immediately.
                let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1",
                    "gracePeriodSeconds": 0 });
                let _ = self.send("DELETE", &path, Some(&options)).await;
                reported = true;
                continue;
            }
            if !deleted && self.bind(pod).await {
                reported = true;
                continue;
            }
            let report = kubelet.report(&metadata["labels"]);
            let finished = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut ready = conditions.filter(|it| it["type"] == "Ready");
            let ready = ready.next().map(|it| it["status"] == "True");
            let known = match report {
                Report::Nothing => true,
                Report::Ready => ready == Some(true),
                Report::Unready => ready == Some(false),
                Report::Exit(_) => false,
            };
            if known || finished || deleted {
                continue;
            }
            let container = pod["spec"]["containers"][0]["name"].as_str().unwrap();
            let patch = json!({ "status": status_of(report, container, metadata) });
            let path = format!("{path}/status");
            // The Pod may have been deleted.
            let _ = self.send("PATCH", &path, Some(&patch)).await;
            reported = true;
        }
        reported
    }
}

/// The timestamp of everything that the kubelet reports.
const THEN: &str = "2026-01-01T00:00:00Z";

fn status_of(report: Report, container: &str, metadata: &Value) -> Value {
    let Report::Exit(code) = report else {
        let ready = if report == Report::Ready {
            "True"
        } else {
            "False"
        };
        let uid = metadata["uid"].as_str().unwrap().bytes();
        let number = uid.fold(7_u16, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let [high, low] = number.to_be_bytes();
        let address = format!("10.244.{high}.{low}");
        return json!({
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": THEN }],
        });
    };
    json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "containerStatuses": [{
            "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": {
                "exitCode": code, "startedAt": THEN, "finishedAt": THEN,
            }},
        }],
    })
}

/// Returns a state with everything masked that differs between runs: identities, times, addresses,
/// generated names and hashes.
pub(super) fn comparable(state: &State, accepted: &[Accepted]) -> Value {
    let mut names: Vec<(String, String)> = Vec::new();
    for (kind, objects) in state {
        for object in objects {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap();
            if let Some(prefix) = metadata.as_object().and_then(generated_from) {
                names.push((name.to_owned(), format!("{prefix}*")));
            }
            let hash = match kind.as_str() {
                "ReplicaSet" => metadata["labels"]["pod-template-hash"].as_str(),
                "ControllerRevision" => name.rsplit_once('-').map(|(_, hash)| hash),
                _ => None,
            };
            let annotations = &metadata["annotations"];
            let revision = annotations["deployment.kubernetes.io/revision"].as_str();
            let revision = revision.map_or_else(|| object["revision"].to_string(), str::to_owned);
            names.extend(hash.map(|hash| (hash.to_owned(), format!("HASH{revision}"))));
        }
    }
    // Longest first, because names may contain hashes.
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let kinds = state.iter().map(|(kind, objects)| {
        let objects = objects.iter().map(|object| {
            let mut object = object.clone();
            for accepted in accepted.iter().filter(|it| it.kind == *kind) {
                if let Some(field) = object.pointer_mut(&accepted.field) {
                    *field = json!("ACCEPTED");
                }
            }
            let mut text = masked(object, &[]).to_string();
            for (name, mask) in &names {
                text = text.replace(name, mask);
            }
            sorted(serde_json::from_str(&without_identities(&text)).unwrap())
        });
        (kind.clone(), sorted(objects.collect()))
    });
    Value::Object(kinds.collect())
}

fn without_identities(text: &str) -> String {
    let masks = [
        (
            r#""clusterIPs?":("\d[^"]*"|\["\d[^\]]*\])"#,
            r#""clusterIP":"IP""#,
        ),
        (r#""(healthCheckN|n)odePort":\d+"#, r#""nodePort":"PORT""#),
        // Ours writes a required list that is empty as such.
        (r#""(endpoints|ports)":null"#, r#""$1":[]"#),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "UID",
        ),
        (r"10\.244\.\d+\.\d+", "POD-IP"),
        // Documentation.
        (
            r#""kubernetes.io/description":"[^"]+""#,
            r#""kubernetes.io/description":"TEXT""#,
        ),
        // The scheduled minute in the name of a Job.
        (r"-2\d{7}\b", "-MINUTE"),
        (r#""(token|ca\.crt|certificate)":"[^"]+""#, r#""$1":"DATA""#),
    ];
    let mut text = text.to_owned();
    for (pattern, mask) in masks {
        let pattern = Regex::new(pattern).unwrap();
        text = pattern.replace_all(&text, mask).into_owned();
    }
    text
}

/// Sorts lists of objects, because their order is irrelevant to the loops.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(sorted).collect();
            if values.iter().all(Value::is_object) {
                values.sort_by_key(Value::to_string);
            }
            values.into()
        }
        Value::Object(map) => {
            let map = map.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(map.collect())
        }
        other => other,
    }
}
