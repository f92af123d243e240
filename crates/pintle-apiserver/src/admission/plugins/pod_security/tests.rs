use serde_json::{Value, json};

use super::{
    checks::Pod,
    described,
    policy::{Level, Policy, Standard, Version},
    standards::{BASELINE, RESTRICTED, violations},
};

/// Returns what a Pod violates, with details.
fn found(level: Level, version: Version, annotations: &Value, spec: &Value) -> String {
    let pod = Pod { annotations, spec };
    described(&violations(Standard { level, version }, &pod), true)
}

fn baseline(spec: &Value) -> String {
    found(Level::Baseline, Version::Latest, &Value::Null, spec)
}

/// A Pod that meets every standard.
fn good() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "a", "image": "i", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

/// Returns what [`good`] violates at `restricted` after setting one field.
fn restricted(pointer: &str, value: Value) -> String {
    let mut spec = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[field] = value;
    found(Level::Restricted, Version::Latest, &Value::Null, &spec)
}

fn container(name: &str, context: &Value) -> Value {
    json!({"name": name, "securityContext": context})
}

/// Proves pod-security/checks.
#[test]
fn checks_are_sorted_by_id() {
    for checks in [BASELINE, RESTRICTED] {
        let ids: Vec<&str> = checks.iter().map(|check| check.id).collect();
        assert!(ids.is_sorted(), "{ids:?}");
    }
}

/// Proves pod-security/checks.
#[test]
fn baseline_rejects_each_privilege_with_upstream_message() {
    let both = |context: Value| {
        json!({"initContainers": [container("i", &context)],
            "containers": [container("a", &context)]})
    };
    let with_pod = |context: Value| {
        let mut spec = both(context.clone());
        spec["securityContext"] = context;
        spec
    };
    for (spec, message) in [
        (good(), ""),
        (
            with_pod(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "forbidden AppArmor profile (pod and containers \"i\", \"a\" must not set AppArmor \
             profile type to \"Unconfined\")",
        ),
        (
            both(json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN", "NET_RAW"]}})),
            "non-default capabilities (containers \"i\", \"a\" must not include \"NET_RAW\", \
             \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            json!({"hostIPC": true, "hostNetwork": true, "hostPID": false}),
            "host namespaces (hostNetwork=true, hostIPC=true)",
        ),
        (
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            "hostPath volumes (volume \"v\")",
        ),
        (
            json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 443},
                {"containerPort": 1}]}]}),
            "hostPort (container \"a\" uses hostPorts 443, 80)",
        ),
        (
            json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}},
                "lifecycle": {"preStop": {"tcpSocket": {"host": "g"}}}}]}),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle hosts \"g\", \"h\")",
        ),
        (
            both(json!({"privileged": true})),
            "privileged (containers \"i\", \"a\" must not set securityContext.privileged=true)",
        ),
        (
            both(json!({"procMount": "Unmasked"})),
            "procMount (containers \"i\", \"a\" must not set securityContext.procMount to \
             \"Unmasked\")",
        ),
        (
            with_pod(json!({"seLinuxOptions": {"type": "x_t", "role": "r", "user": "u"}})),
            "seLinuxOptions (pod and containers \"i\", \"a\" set forbidden \
             securityContext.seLinuxOptions: type \"x_t\"; user may not be set; role may not be \
             set)",
        ),
        (
            with_pod(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (pod and containers \"i\", \"a\" must not set \
             securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"},
                {"name": "net.ipv4.tcp_rmem"}]}}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            with_pod(json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (pod and containers \"i\", \"a\" must not set \
             securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            json!({"hostNetwork": true, "containers": [container("a", &json!({"privileged": true}))]}),
            "host namespaces (hostNetwork=true), privileged (container \"a\" must not set \
             securityContext.privileged=true)",
        ),
    ] {
        assert_eq!(baseline(&spec), message, "{spec}");
    }
}

/// Proves pod-security/checks.
#[test]
fn restricted_has_the_checks_of_kubernetes() {
    let ok = restricted("/nodeName", json!("n"));
    assert_eq!(ok, "");
    for (pointer, value, message) in [
        (
            "/containers/0/securityContext",
            Value::Null,
            "allowPrivilegeEscalation != false (container \"a\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \
             \"a\" must set securityContext.capabilities.drop=[\"ALL\"])",
        ),
        (
            "/containers/0/securityContext/capabilities",
            json!({"add": ["CHOWN", "NET_BIND_SERVICE"]}),
            "unrestricted capabilities (container \"a\" must set \
             securityContext.capabilities.drop=[\"ALL\"]; container \"a\" must not include \
             \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            "/volumes",
            json!([{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "nfs": {}},
                {"name": "x", "image": {}}]),
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \
             \"hostPath\", \"nfs\")",
        ),
        (
            "/securityContext/runAsNonRoot",
            json!(false),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        ),
        (
            "/securityContext/runAsNonRoot",
            Value::Null,
            "runAsNonRoot != true (pod or container \"a\" must set \
             securityContext.runAsNonRoot=true)",
        ),
        (
            "/containers/0/securityContext/runAsUser",
            json!(0),
            "runAsUser=0 (container \"a\" must not set runAsUser=0)",
        ),
        (
            "/securityContext/seccompProfile",
            Value::Null,
            "seccompProfile (pod or container \"a\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            "/containers/0/securityContext/procMount",
            json!("Unmasked"),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
    ] {
        assert_eq!(restricted(pointer, value), message, "{pointer}");
    }
}

/// Proves pod-security/checks.
#[test]
fn version_of_the_standard_decides_which_checks_apply() {
    let at = |level, minor, spec: &Value| found(level, Version::Minor(minor), &Value::Null, spec);
    let bare = json!({"containers": [{"name": "a"}]});
    assert_eq!(
        at(Level::Restricted, 7, &bare),
        "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)"
    );
    assert!(at(Level::Restricted, 8, &bare).contains("allowPrivilegeEscalation"));
    assert!(!at(Level::Restricted, 18, &bare).contains("seccompProfile"));
    assert!(at(Level::Restricted, 19, &bare).contains("seccompProfile"));
    // A future version has the checks of the newest one.
    assert_eq!(
        at(Level::Restricted, 99, &bare),
        found(Level::Restricted, Version::Latest, &Value::Null, &bare)
    );

    let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
    for (name, since) in [
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_wmem", 32),
    ] {
        assert_ne!(at(Level::Baseline, since - 1, &sysctl(name)), "", "{name}");
        assert_eq!(at(Level::Baseline, since, &sysctl(name)), "", "{name}");
    }
    let engine = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}});
    assert_ne!(at(Level::Baseline, 30, &engine), "");
    assert_eq!(at(Level::Baseline, 31, &engine), "");
    let probe =
        json!({"containers": [{"name": "a", "startupProbe": {"tcpSocket": {"host": "h"}}}]});
    assert_eq!(at(Level::Baseline, 33, &probe), "");
    assert_ne!(at(Level::Baseline, 34, &probe), "");
    // Seccomp was an annotation before it was a field.
    let key = "container.seccomp.security.alpha.kubernetes.io/a";
    let annotations = json!({key: "unconfined"});
    let before = found(Level::Baseline, Version::Minor(18), &annotations, &bare);
    assert_eq!(
        before,
        format!("seccompProfile (forbidden annotation {key}=\"unconfined\")")
    );
    let after = found(Level::Baseline, Version::Minor(19), &annotations, &bare);
    assert_eq!(after, "");
}

/// Proves pod-security/checks.
#[test]
fn windows_and_user_namespaces_relax_checks() {
    let mut windows = json!({"os": {"name": "windows"}, "containers": [{"name": "a"}],
        "securityContext": {"runAsNonRoot": true}});
    let at = |version, spec: &Value| found(Level::Restricted, version, &Value::Null, spec);
    assert_eq!(at(Version::Latest, &windows), "");
    assert_ne!(at(Version::Minor(24), &windows), "");
    windows["os"]["name"] = "linux".into();
    assert_ne!(at(Version::Latest, &windows), "");

    let mut own = good();
    own["hostUsers"] = false.into();
    own["securityContext"] = json!({"runAsUser": 0, "seccompProfile": {"type": "Localhost"}});
    assert_eq!(at(Version::Latest, &own), "");
    assert_ne!(at(Version::Minor(34), &own), "");
    // `baseline` also allows an unmasked /proc in a user namespace, `restricted` does not.
    own["containers"][0]["securityContext"]["procMount"] = "Unmasked".into();
    assert_eq!(baseline(&own), "");
    assert!(at(Version::Latest, &own).starts_with("procMount"));
}

/// Proves pod-security/labels.
#[test]
fn labels_are_parsed_with_defaults_and_errors() {
    let of = |labels: &[(&str, &str)]| {
        let pairs = labels.iter();
        let labels: Value = pairs
            .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), *value))
            .collect();
        let (policy, errors) = Policy::of(|label| labels[label].as_str());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (
            format!("{} {} {}", policy.enforce, policy.audit, policy.warn),
            errors.join("; "),
        )
    };
    let plain = |text: &str| (text.to_owned(), String::new());
    let off = "privileged:latest";
    assert_eq!(of(&[]), plain(&format!("{off} {off} {off}")));
    // Without a level of its own, `warn` follows `enforce`.
    assert_eq!(
        of(&[("enforce", "baseline"), ("enforce-version", "v1.30")]),
        plain(&format!("baseline:v1.30 {off} baseline:v1.30"))
    );
    assert_eq!(
        of(&[
            ("enforce", "restricted"),
            ("warn", "baseline"),
            ("audit", "baseline"),
            ("audit-version", "v1.0")
        ]),
        plain("restricted:latest baseline:v1.0 baseline:latest")
    );
    assert_eq!(
        of(&[("enforce", "restricted"), ("warn-version", "v1.20")]),
        plain(&format!("restricted:latest {off} restricted:v1.20"))
    );
    // Enforcement fails closed, the others open.
    assert_eq!(
        of(&[
            ("enforce", "strict"),
            ("audit", ""),
            ("enforce-version", "v1.01")
        ]),
        (
            format!("restricted:latest {off} {off}"),
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must \
             be one of privileged, baseline, restricted; \
             metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \
             \"v1.01\": must be \"latest\" or \"v1.x\"; \
             metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"\": must be one \
             of privileged, baseline, restricted"
                .to_owned()
        )
    );
}
