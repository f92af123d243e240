//! The checks, as pure functions of a Pod. Their messages are Kubernetes'.

use std::collections::BTreeSet;

use serde_json::Value;

use super::standards::CheckPod;
use crate::schema::field::quote;

/// The parts of a Pod or a Pod template that the checks read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
}

/// Why a Pod does not meet a standard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: String,
    pub(super) detail: String,
}

fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Violation {
    Violation {
        reason: reason.into(),
        detail: detail.into(),
    }
}

/// The capabilities that `baseline` allows containers to add.
const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The volumes that `restricted` allows.
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

pub(super) fn not_on_windows(pod: &Pod<'_>, check: CheckPod) -> Option<Violation> {
    if pod.spec["os"]["name"] == "windows" {
        return None;
    }
    check(pod)
}

/// Skips a check for Pods in their own user namespace, which may do more.
pub(super) fn outside_user_namespace(pod: &Pod<'_>, check: CheckPod) -> Option<Violation> {
    if pod.spec["hostUsers"] == false {
        return None;
    }
    check(pod)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(value: &Value) -> &str {
    text(&value["name"])
}

/// Returns all containers: first the init containers, last the ephemeral ones.
fn containers<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let spec = pod.spec;
    let kinds = ["initContainers", "containers", "ephemeralContainers"];
    kinds.into_iter().flat_map(|kind| items(&spec[kind]))
}

/// Returns the names of the containers for which `is_bad` is true.
fn bad_containers<'a>(pod: &Pod<'a>, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
    let bad = containers(pod).filter(|container| is_bad(container));
    bad.map(name).collect()
}

fn joined<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items
        .into_iter()
        .map(|item| format!("\"{}\"", item.as_ref()))
        .collect();
    items.join(", ")
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

/// Formats names: `container "a"`, `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    let what = plural("container", "containers", names.len());
    format!("{what} {}", joined(names))
}

/// Formats which parts of a Pod set a field to a forbidden value: `pod and container "a"`.
fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let pod = pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| named(containers));
    let all: Vec<String> = pod.into_iter().chain(containers).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

pub(super) fn app_armor_profile(pod: &Pod<'_>) -> Option<Violation> {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let mut is_bad = |of: &Value| {
        let profile = &of["securityContext"]["appArmorProfile"];
        let kind = text(&profile["type"]);
        let bad = !profile.is_null() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let of_pod = is_bad(pod.spec);
    let containers = bad_containers(pod, is_bad);
    let annotations = pod.annotations.as_object().into_iter().flatten();
    let annotations = annotations.filter(|(key, value)| {
        let value = text(value);
        let allowed =
            value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        key.starts_with(ANNOTATION) && !allowed
    });
    let mut annotations: Vec<String> = annotations
        .map(|(key, value)| format!("{key}={}", quote(text(value))))
        .collect();
    annotations.sort();
    let marks = plural("annotation", "annotations", annotations.len()).to_owned();
    let marks = (!annotations.is_empty()).then_some(marks);
    let setters = setters(of_pod, &containers).into_iter().chain(marks);
    let setters: Vec<String> = setters.collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    Some(violation(
        plural(
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
            values.len(),
        ),
        format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            joined(&values)
        ),
    ))
}

/// Returns the containers that add capabilities outside `allowed`, and those capabilities.
fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut other = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let added = items(&container["securityContext"]["capabilities"]["add"]).map(text);
        let before: Vec<&str> = added.filter(|added| !allowed.contains(added)).collect();
        other.extend(&before);
        !before.is_empty()
    });
    (bad, other)
}

pub(super) fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let (bad, other) = added(pod, CAPABILITIES);
    if bad.is_empty() {
        return None;
    }
    Some(violation(
        "non-default capabilities",
        must_not_add(&bad, &other),
    ))
}

fn must_not_add(containers: &[&str], capabilities: &BTreeSet<&str>) -> String {
    format!(
        "{} must not include {} in securityContext.capabilities.add",
        named(containers),
        joined(capabilities)
    )
}

pub(super) fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    let keeping = bad_containers(pod, |container| {
        let mut dropped = items(&container["securityContext"]["capabilities"]["drop"]);
        !dropped.any(|dropped| dropped == "ALL")
    });
    let (adding, other) = added(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = named(&keeping);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.is_empty() {
        details.push(must_not_add(&adding, &other));
    }
    if details.is_empty() {
        return None;
    }
    Some(violation("unrestricted capabilities", details.join("; ")))
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let set = set.filter(|field| pod.spec[*field] == true);
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() {
        return None;
    }
    Some(violation("host namespaces", set.join(", ")))
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).filter(|volume| !volume["hostPath"].is_null());
    let volumes: Vec<&str> = volumes.map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    let what = plural("volume", "volumes", volumes.len());
    Some(violation(
        "hostPath volumes",
        format!("{what} {}", joined(&volumes)),
    ))
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let used = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used
            .filter(|port| *port != 0)
            .map(|p| p.to_string())
            .collect();
        let bad = !used.is_empty();
        ports.extend(used);
        bad
    });
    if bad.is_empty() {
        return None;
    }
    let ports: Vec<String> = ports.into_iter().collect();
    Some(violation(
        "hostPort",
        format!(
            "{} {} {} {}",
            named(&bad),
            plural("uses", "use", bad.len()),
            plural("hostPort", "hostPorts", ports.len()),
            ports.join(", ")
        ),
    ))
}

pub(super) fn hosts(pod: &Pod<'_>) -> Option<Violation> {
    let (mut bad, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in containers(pod) {
        let lifecycle = &container["lifecycle"];
        for handler in [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ] {
            for kind in ["httpGet", "tcpSocket"] {
                let host = text(&handler[kind]["host"]);
                if !host.is_empty() {
                    bad.insert(name(container));
                    hosts.insert(host);
                }
            }
        }
    }
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<&str> = bad.into_iter().collect();
    Some(violation(
        "probe or lifecycle host",
        format!(
            "{} {} {} {}",
            named(&bad),
            plural("uses", "use", bad.len()),
            plural(
                "probe or lifecycle host",
                "probe or lifecycle hosts",
                hosts.len()
            ),
            joined(&hosts)
        ),
    ))
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = bad_containers(pod, |c| c["securityContext"]["privileged"] == true);
    if bad.is_empty() {
        return None;
    }
    let who = named(&bad);
    Some(violation(
        "privileged",
        format!("{who} must not set securityContext.privileged=true"),
    ))
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let bad = bad_containers(pod, |container| {
        let kind = container["securityContext"]["procMount"].as_str();
        let bad = kind.filter(|kind| *kind != "Default");
        kinds.extend(bad);
        bad.is_some()
    });
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        named(&bad),
        joined(&kinds)
    );
    Some(violation("procMount", detail))
}

pub(super) fn se_linux_options(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |of: &Value| {
        let options = &of["securityContext"]["seLinuxOptions"];
        let kind = text(&options["type"]);
        let bad_kind = !kind.is_empty() && !allowed.contains(&kind);
        if bad_kind {
            kinds.insert(kind.to_owned());
        }
        let sets = |field: &str| !text(&options[field]).is_empty();
        user |= sets("user");
        role |= sets("role");
        bad_kind || sets("user") || sets("role")
    };
    let of_pod = is_bad(pod.spec);
    let containers = bad_containers(pod, is_bad);
    let setters = setters(of_pod, &containers)?;
    let mut data = Vec::new();
    if !kinds.is_empty() {
        let what = plural("type", "types", kinds.len());
        data.push(format!("{what} {}", joined(&kinds)));
    }
    for (set, what) in [(user, "user"), (role, "role")] {
        if set {
            data.push(format!("{what} may not be set"));
        }
    }
    let data = data.join("; ");
    Some(violation(
        "seLinuxOptions",
        format!("{setters} set forbidden securityContext.seLinuxOptions: {data}"),
    ))
}

/// The check for versions before v1.19, which used annotations instead of fields.
pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let of_pod = "seccomp.security.alpha.kubernetes.io/pod".to_owned();
    let of_containers = containers(pod)
        .map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(c)));
    let mut forbidden = BTreeSet::new();
    for key in [of_pod].into_iter().chain(of_containers) {
        let Some(value) = pod.annotations[key.as_str()].as_str() else {
            continue;
        };
        let allowed = matches!(value, "runtime/default" | "docker/default");
        if !allowed && !value.starts_with("localhost/") {
            forbidden.insert(format!("{key}={}", quote(value)));
        }
    }
    if forbidden.is_empty() {
        return None;
    }
    let what = plural("annotation", "annotations", forbidden.len());
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    Some(violation(
        "seccompProfile",
        format!("forbidden {what} {}", forbidden.join(", ")),
    ))
}

/// Returns the type of a seccomp profile: `None` if unset, an error if forbidden.
fn seccomp_type(of: &Value) -> Option<Result<(), &str>> {
    let profile = &of["securityContext"]["seccompProfile"];
    if profile.is_null() {
        return None;
    }
    Some(match text(&profile["type"]) {
        "RuntimeDefault" | "Localhost" => Ok(()),
        other => Err(other),
    })
}

pub(super) fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |of: &Value| matches!(seccomp_type(of), Some(Err(_)));
    let setters = setters(bad(pod.spec), &bad_containers(pod, bad))?;
    let all = [pod.spec].into_iter().chain(containers(pod));
    let kinds = all.filter_map(|of| seccomp_type(of)?.err());
    let kinds: BTreeSet<&str> = kinds.collect();
    let kinds = joined(&kinds);
    Some(violation(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {kinds}"),
    ))
}

pub(super) fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(explicit) = seccomp_baseline(pod) {
        return Some(explicit);
    }
    if seccomp_type(pod.spec).is_some() {
        return None;
    }
    let unset = bad_containers(pod, |container| seccomp_type(container).is_none());
    if unset.is_empty() {
        return None;
    }
    let who = named(&unset);
    Some(violation(
        "seccompProfile",
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\""
        ),
    ))
}

pub(super) fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let set = items(&pod.spec["securityContext"]["sysctls"]).map(name);
    let forbidden: Vec<&str> = set.filter(|name| !allowed.contains(name)).collect();
    if forbidden.is_empty() {
        return None;
    }
    Some(violation("forbidden sysctls", forbidden.join(", ")))
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |of: &Value| of["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(bad(pod.spec), &bad_containers(pod, bad))?;
    Some(violation(
        "hostProcess",
        format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    ))
}

pub(super) fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let bad = bad_containers(pod, |container| {
        container["securityContext"]["allowPrivilegeEscalation"] != false
    });
    if bad.is_empty() {
        return None;
    }
    let who = named(&bad);
    Some(violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    ))
}

pub(super) fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut bad, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in items(&pod.spec["volumes"]) {
        let mut sources = volume.as_object().into_iter().flatten();
        let set = |field: &str| !volume[field].is_null();
        if VOLUMES.iter().any(|allowed| set(allowed)) {
            continue;
        }
        bad.push(name(volume));
        let source = sources.find(|(field, value)| *field != "name" && !value.is_null());
        kinds.insert(source.map_or("unknown", |(field, _)| field));
    }
    if bad.is_empty() {
        return None;
    }
    Some(violation(
        "restricted volume types",
        format!(
            "{} {} {} {} {}",
            plural("volume", "volumes", bad.len()),
            joined(&bad),
            plural("uses", "use", bad.len()),
            plural(
                "restricted volume type",
                "restricted volume types",
                kinds.len()
            ),
            joined(&kinds)
        ),
    ))
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of = |of: &Value| of["securityContext"]["runAsNonRoot"].as_bool();
    let explicit = bad_containers(pod, |container| of(container) == Some(false));
    if let Some(setters) = setters(of(pod.spec) == Some(false), &explicit) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(violation(REASON, detail));
    }
    let unset = bad_containers(pod, |container| of(container).is_none());
    if of(pod.spec) == Some(true) || unset.is_empty() {
        return None;
    }
    let who = named(&unset);
    Some(violation(
        REASON,
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    ))
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |of: &Value| of["securityContext"]["runAsUser"] == 0;
    let setters = setters(bad(pod.spec), &bad_containers(pod, bad))?;
    Some(violation(
        "runAsUser=0",
        format!("{setters} must not set runAsUser=0"),
    ))
}
