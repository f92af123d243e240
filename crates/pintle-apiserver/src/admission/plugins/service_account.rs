//! `ServiceAccount`: requires the service account of a Pod to exist, and adds its token and image
//! pull secrets to the Pod.
//!
//! There is one exception: a server without the service account loop never creates the account
//! `default`. While it does not exist, a Pod that names no other account is admitted as if the
//! plugin were disabled.

use serde_json::{Value, json};

use super::refused;
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError, kinds::service_accounts::ENFORCE},
    meta::{Tree, names::random_suffix},
    store::key_of,
};

const DEFAULT: &str = "default";
/// The name prefix of the token volume.
const VOLUME: &str = "kube-api-access-";
/// Where containers find the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The annotation of mirror Pods, which represent a kubelet's static Pods and have no account.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The subresource that adds containers to a running Pod.
const EPHEMERAL: &str = "ephemeralcontainers";
/// The volume sources that name a secret in their `secretRef`.
const SECRET_REFS: [&str; 7] = [
    "cephfs",
    "cinder",
    "flexVolume",
    "iscsi",
    "rbd",
    "scaleIO",
    "storageos",
];

#[derive(Debug)]
pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn mutate(&self, api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
        complete(api, request, pod)?;
        check(api, request, pod)
    }

    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        let debugs = request.operation == Operation::Update
            && request.sub == EPHEMERAL
            && request.is_for("", "pods");
        debugs || self.admits(api, request)
    }

    /// Checks new Pods again, because webhooks may have changed them since `mutate`.
    fn check(&self, api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
        match request.sub {
            EPHEMERAL => check_ephemeral(api, request, pod),
            _ => check(api, request, pod),
        }
    }
}

fn is_mirror(pod: &Tree) -> bool {
    let annotations = pod.get("metadata").and_then(|m| m.get("annotations"));
    annotations.is_some_and(|all| !all[MIRROR].is_null())
}

/// Returns the account of a Pod. `None` if the Pod is admitted without one.
fn account(
    api: &Api,
    request: &Request<'_>,
    pod: &Tree,
) -> Result<Option<(String, Value)>, ApiError> {
    let namespace = request.namespace.unwrap_or_default();
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let name = match spec["serviceAccountName"].as_str() {
        None | Some("") => DEFAULT.to_owned(),
        Some(name) => name.to_owned(),
    };
    let collection = api.registry.builtin_collection("", "serviceaccounts");
    let key = key_of(Some(namespace), &name);
    match collection.and_then(|collection| api.store.get(collection, &key)) {
        Some(account) => Ok(Some((name, Value::Object(account.decode())))),
        None if name == DEFAULT => Ok(None),
        None => {
            let why = format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            );
            Err(refused(request, Some(pod), &why))
        }
    }
}

/// Sets the account of a Pod, its token and its image pull secrets.
fn complete(api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
    if is_mirror(pod) {
        return Ok(());
    }
    let Some((name, account)) = account(api, request, pod)? else {
        return Ok(());
    };
    let Some(Value::Object(spec)) = pod.get_mut("spec") else {
        return Ok(());
    };
    let automount = spec.get("automountServiceAccountToken");
    let automount = automount
        .and_then(Value::as_bool)
        .or(account["automountServiceAccountToken"].as_bool());
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.into(), name.clone().into());
    }
    if automount.unwrap_or(true) {
        mount_token(api, spec);
    }
    let pulls = &account["imagePullSecrets"];
    let has_own = spec.get("imagePullSecrets").and_then(Value::as_array);
    if has_own.is_none_or(Vec::is_empty) && pulls.as_array().is_some_and(|list| !list.is_empty()) {
        spec.insert("imagePullSecrets".into(), pulls.clone());
    }
    Ok(())
}

/// Checks that a new Pod uses only what its account allows.
fn check(api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let why = if is_mirror(pod) {
        mirror_problem(spec).map(str::to_owned)
    } else {
        let account = account(api, request, pod)?;
        let account = account.filter(|(_, account)| is_enforced(account));
        account.and_then(|(name, account)| unmountable(spec, &account, &name))
    };
    why.map_or(Ok(()), |why| Err(refused(request, Some(pod), &why)))
}

/// Checks that ephemeral containers use only the secrets of the Pod's account.
fn check_ephemeral(api: &Api, request: &Request<'_>, pod: &Tree) -> Result<(), ApiError> {
    let Some((name, account)) = account(api, request, pod)? else {
        return Ok(());
    };
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let foreign = is_enforced(&account)
        .then(|| unlisted_secret(spec, "ephemeralContainers", &account))
        .flatten();
    // Upstream returns a plain error here, hence the 500.
    foreign.map_or(Ok(()), |what| {
        let why = not_referenced(&format!("ephemeral {what}"), &name);
        Err(ApiError::new(500, "", why))
    })
}

/// Returns true if the account limits Pods to its own secrets. Like Go, accepts several spellings
/// of true.
fn is_enforced(account: &Value) -> bool {
    let value = account["metadata"]["annotations"][ENFORCE].as_str();
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Returns why a mirror Pod is invalid.
fn mirror_problem(spec: &Value) -> Option<&'static str> {
    if !matches!(spec["serviceAccountName"].as_str(), None | Some("")) {
        return Some("a mirror pod may not reference service accounts");
    }
    if references_secret(spec) {
        return Some("a mirror pod may not reference secrets");
    }
    let sources = list(&spec["volumes"]).flat_map(|volume| list(&volume["projected"]["sources"]));
    let mut tokens = sources.filter(|source| source["serviceAccountToken"].is_object());
    tokens
        .next()
        .map(|_| "a mirror pod may not use ServiceAccountToken volume projections")
}

/// Returns true if a Pod refers to any secret.
fn references_secret(spec: &Value) -> bool {
    let named = |name: &Value| name.as_str().is_some_and(|name| !name.is_empty());
    let containers = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|which| list(&spec[which]));
    let in_containers = containers
        .flat_map(container_secrets)
        .any(|(_, name)| !name.is_empty());
    let in_volumes = list(&spec["volumes"]).any(|volume| {
        named(&volume["secret"]["secretName"])
            || named(&volume["azureFile"]["secretName"])
            || named(&volume["csi"]["nodePublishSecretRef"]["name"])
            || SECRET_REFS
                .iter()
                .any(|source| named(&volume[*source]["secretRef"]["name"]))
            || list(&volume["projected"]["sources"]).any(|source| named(&source["secret"]["name"]))
    });
    list(&spec["imagePullSecrets"]).any(|pull| named(&pull["name"])) || in_containers || in_volumes
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the secrets that a container's environment refers to, each with its reference.
fn container_secrets(container: &Value) -> impl Iterator<Item = (String, &str)> {
    let variables = list(&container["env"]).filter_map(|variable| {
        let secret = variable["valueFrom"]["secretKeyRef"].as_object()?;
        let name = variable["name"].as_str().unwrap_or_default();
        Some((format!("envVar {name}"), secret.get("name")))
    });
    let sources = list(&container["envFrom"]).filter_map(|source| {
        let secret = source["secretRef"].as_object()?;
        Some(("envFrom".to_owned(), secret.get("name")))
    });
    let secrets = variables.chain(sources);
    secrets.map(|(what, name)| (what, name.and_then(Value::as_str).unwrap_or_default()))
}

/// Mounts a token in every container that does not mount something else at its path.
fn mount_token(api: &Api, spec: &mut Tree) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let names = volumes
        .into_iter()
        .flatten()
        .filter_map(|v| v["name"].as_str());
    let existing = names
        .filter(|name| name.starts_with(VOLUME))
        .map(str::to_owned)
        .next();
    let volume = existing
        .clone()
        .unwrap_or_else(|| format!("{VOLUME}{}", random_suffix(&api.rng)));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if !container["volumeMounts"].is_array() {
                container["volumeMounts"] = json!([]);
            }
            if let Some(mounts) = container["volumeMounts"].as_array_mut()
                && !mounts.iter().any(|mount| mount["mountPath"] == MOUNT)
            {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT}));
                needed = true;
            }
        }
    }
    if !needed || existing.is_some() {
        return;
    }
    let token = json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if !volumes.is_array() {
        *volumes = json!([]);
    }
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(token);
    }
}

/// Returns the first secret that a Pod may not use under this account.
fn unmountable(spec: &Value, account: &Value, name: &str) -> Option<String> {
    let volumes = list(&spec["volumes"]).filter(|volume| volume["secret"].is_object());
    let mut volumes =
        volumes.map(|volume| volume["secret"]["secretName"].as_str().unwrap_or_default());
    let foreign = volumes
        .find(|secret| !lists(account, "secrets", secret))
        .map(|secret| format!("volume with secret.secretName={secret:?}"))
        .or_else(|| {
            let what = unlisted_secret(spec, "initContainers", account)?;
            Some(format!("init {what}"))
        })
        .or_else(|| unlisted_secret(spec, "containers", account));
    if let Some(what) = foreign {
        return Some(not_referenced(&what, name));
    }
    let mut pulls = list(&spec["imagePullSecrets"])
        .map(|pull| pull["name"].as_str().unwrap_or_default())
        .enumerate();
    let (i, secret) = pulls.find(|(_, secret)| !lists(account, "imagePullSecrets", secret))?;
    Some(format!(
        "imagePullSecrets[{i}].name={secret:?} is not allowed because service account {name} does not reference that imagePullSecret"
    ))
}

fn lists(account: &Value, which: &str, secret: &str) -> bool {
    list(&account[which]).any(|entry| entry["name"] == secret)
}

/// Returns the first container that refers to a secret that the account does not list.
fn unlisted_secret(spec: &Value, which: &str, account: &Value) -> Option<String> {
    let all = list(&spec[which])
        .flat_map(|container| container_secrets(container).map(move |found| (container, found)));
    let mut foreign = all.filter(|(_, (_, secret))| !lists(account, "secrets", secret));
    let (container, (what, secret)) = foreign.next()?;
    let container = container["name"].as_str().unwrap_or_default();
    Some(format!(
        "container {container} with {what} referencing secret.secretName={secret:?}"
    ))
}

fn not_referenced(what: &str, account: &str) -> String {
    format!(
        "{what} is not allowed because service account {account} does not reference that secret"
    )
}
