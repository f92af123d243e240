//! The Pods of the benchmarks.
//!
//! Each is a Deployment's Pod as a current server returns it: one container, the token volume,
//! conditions, and `managedFields` of controller manager, scheduler and kubelet; about 6 KB of
//! JSON. Each Deployment has twenty Pods and each node runs twenty. Names, UIDs, addresses and
//! container ids are unique, as in a real cluster.

use std::fmt::Write;

/// Pods per Deployment, and per node.
pub(crate) const GROUP: usize = 20;

/// The first `resourceVersion`. All versions have the same width, so that an event differs from its
/// object only in these digits.
pub(crate) const FIRST_VERSION: u64 = 10_000_000;

/// The form of a Pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As an item of a list: without `kind` and `apiVersion`.
    Item,
    /// As the object of an event.
    Whole,
    /// As a client sends it in a create request.
    New,
}

/// Returns the namespace of Pod `i`; Deployments are spread over ten.
pub(crate) fn namespace(i: usize) -> String {
    format!("shop-{}", i / GROUP % 10)
}

/// Returns the node of Pod `i`.
pub(crate) fn node(i: usize) -> String {
    format!("worker-{:05}.eu-central.example.internal", i / GROUP)
}

/// Returns the label `app` of Pod `i`.
pub(crate) fn app(i: usize) -> String {
    format!("web-{}", i / GROUP)
}

/// A generator of pseudo-random numbers, the same in every run.
struct Digits(u64);

impl Digits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            let _ = write!(text, "{:016x}", self.next());
        }
        text.truncate(digits);
        text
    }

    fn uid(&mut self) -> String {
        let hex = self.hex(32);
        format!(
            "{}-{}-4{}-8{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..]
        )
    }

    /// The letters Kubernetes uses in generated names.
    fn suffix(&mut self, letters: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rest = self.next();
        let mut text = String::new();
        for _ in 0..letters {
            let letter = LETTERS[usize::try_from(rest % 27).unwrap_or_default()];
            text.push(char::from(letter));
            rest /= 27;
        }
        text
    }
}

/// Returns Pod `i` as JSON with this `resourceVersion`, under `name` or its default name.
pub(crate) fn pod(i: usize, name: Option<&str>, version: u64, form: Form) -> String {
    let mut group = Digits((i / GROUP) as u64);
    let (hash, set_uid) = (group.suffix(10), group.uid());
    let mut own = Digits(0x5eed_0000_0000 + i as u64);
    let (suffix, uid, container, volume) = (own.suffix(5), own.uid(), own.hex(64), own.suffix(5));
    let app = app(i);
    let usual = format!("{app}-{hash}-{suffix}");
    let name = name.unwrap_or(&usual);
    let namespace = namespace(i);
    let node = node(i);
    let (second, minute) = (i % 60, i / 60 % 60);
    let time = format!("2026-05-04T10:{minute:02}:{second:02}Z");
    let (pod_ip, host_ip) = (
        format!("10.{}.{}.{}", 64 + i / 65_536, i / 256 % 256, i % 256),
        format!("192.168.{}.{}", i / GROUP / 250 % 256, i / GROUP % 250 + 1),
    );

    let mut json = String::with_capacity(6800);
    let types = if form == Form::Item {
        "{"
    } else {
        r#"{"kind":"Pod","apiVersion":"v1","#
    };
    let _ = write!(
        json,
        r#"{types}"metadata":{{"name":"{name}","generateName":"{app}-{hash}-","namespace":"{namespace}""#
    );
    if form != Form::New {
        let _ = write!(
            json,
            r#","uid":"{uid}","resourceVersion":"{version}","generation":1,"creationTimestamp":"{time}""#
        );
    }
    let _ = write!(
        json,
        r#","labels":{{"app":"{app}","app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop","pod-template-hash":"{hash}","tier":"frontend"}},"annotations":{{"kubectl.kubernetes.io/restartedAt":"2026-05-04T09:58:11Z","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{app}-{hash}","uid":"{set_uid}","controller":true,"blockOwnerDeletion":true}}]"#
    );
    if form != Form::New {
        json += r#","managedFields":["#;
        manager(
            &mut json,
            "kube-controller-manager",
            &time,
            "",
            &controller_fields(&set_uid),
        );
        json.push(',');
        manager(
            &mut json,
            "kube-scheduler",
            &time,
            r#","subresource":"binding""#,
            r#"{"f:spec":{"f:nodeName":{}}}"#,
        );
        json.push(',');
        manager(
            &mut json,
            "kubelet",
            &time,
            r#","subresource":"status""#,
            &kubelet_fields(&pod_ip),
        );
        json.push(']');
    }
    let _ = write!(
        json,
        r#"}},"spec":{{"volumes":[{{"name":"kube-api-access-{volume}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"web","image":"registry.example.com/shop/web:1.27.3","ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"LOG_LEVEL","value":"info"}}],"resources":{{"limits":{{"cpu":"500m","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"kube-api-access-{volume}","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"readinessProbe":{{"httpGet":{{"path":"/readyz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{{"capabilities":{{"drop":["ALL"]}},"runAsNonRoot":true,"allowPrivilegeEscalation":false}}}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"{node}","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}}"#
    );
    json += r#","status":{"#;
    if form != Form::New {
        json += r#""observedGeneration":1,"#;
    }
    json += r#""phase":"Running","conditions":["#;
    for (n, condition) in [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .into_iter()
    .enumerate()
    {
        if n > 0 {
            json.push(',');
        }
        let _ = write!(
            json,
            r#"{{"type":"{condition}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"{time}"}}"#
        );
    }
    let _ = write!(
        json,
        r#"],"hostIP":"{host_ip}","hostIPs":[{{"ip":"{host_ip}"}}],"podIP":"{pod_ip}","podIPs":[{{"ip":"{pod_ip}"}}],"startTime":"{time}","containerStatuses":[{{"name":"web","state":{{"running":{{"startedAt":"{time}"}}}},"lastState":{{}},"ready":true,"restartCount":0,"image":"registry.example.com/shop/web:1.27.3","imageID":"registry.example.com/shop/web@sha256:6af79ae5de407283dcea8b00d5c37ace95441fd58a8b1d2aa1ed93f5511bb18c","containerID":"containerd://{container}","started":true}}],"qosClass":"Burstable"}}}}"#
    );
    json
}

fn manager(json: &mut String, name: &str, time: &str, subresource: &str, fields: &str) {
    let _ = write!(
        json,
        r#"{{"manager":"{name}","operation":"Update","apiVersion":"v1","time":"{time}","fieldsType":"FieldsV1","fieldsV1":{fields}{subresource}}}"#
    );
}

fn controller_fields(set_uid: &str) -> String {
    format!(
        r#"{{"f:metadata":{{"f:annotations":{{".":{{}},"f:kubectl.kubernetes.io/restartedAt":{{}},"f:prometheus.io/scrape":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:app.kubernetes.io/name":{{}},"f:app.kubernetes.io/part-of":{{}},"f:pod-template-hash":{{}},"f:tier":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{set_uid}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"web\"}}":{{".":{{}},"f:env":{{".":{{}},"k:{{\"name\":\"LOG_LEVEL\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}},"k:{{\"name\":\"POD_NAME\"}}":{{".":{{}},"f:name":{{}},"f:valueFrom":{{".":{{}},"f:fieldRef":{{}}}}}}}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:livenessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}},"f:name":{{}},"f:ports":{{".":{{}},"k:{{\"containerPort\":8080,\"protocol\":\"TCP\"}}":{{".":{{}},"f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}}},"f:readinessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{}},"f:periodSeconds":{{}},"f:timeoutSeconds":{{}}}},"f:resources":{{}},"f:securityContext":{{}},"f:terminationMessagePath":{{}},"f:terminationMessagePolicy":{{}}}}}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{}},"f:terminationGracePeriodSeconds":{{}}}}}}"#
    )
}

fn kubelet_fields(pod_ip: &str) -> String {
    let mut conditions = String::new();
    for condition in [
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "Ready",
    ] {
        if !conditions.is_empty() {
            conditions.push(',');
        }
        let _ = write!(
            conditions,
            r#""k:{{\"type\":\"{condition}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}"#
        );
    }
    format!(
        r#"{{"f:status":{{"f:conditions":{{{conditions}}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:hostIPs":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"{pod_ip}\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}}"#
    )
}

#[cfg(test)]
#[path = "pods/tests.rs"] // the gate includes this file by path
mod tests;
