//! `ServiceAccount`: a Pod runs under an account that exists, with its token and its image pull
//! secrets.
//!
//! There is one exception: a server without the service account loop never creates the account
//! `default`. While it does not exist, a Pod that names no other account is admitted as if the plugin
//! were disabled.

use serde_json::{Value, json};

use super::refused;
use crate::{
    admission::{Operation, Plugin, Request, Verdict, verdict},
    api::{Api, ApiError},
    meta::Tree,
    names::random_suffix,
    store::key_of,
};

const DEFAULT: &str = "default";
/// How the name of the volume with the token starts.
const VOLUME: &str = "kube-api-access-";
/// Where containers find the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Marks the Pods that a kubelet mirrors; they have no account.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Limits the secrets of a Pod to those of its account.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

#[derive(Debug)]
pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn admit<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a mut Tree>,
    ) -> Verdict<'a> {
        verdict(match object {
            Some(pod) => admit(api, request, pod),
            None => Ok(()),
        })
    }
}

fn admit(api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
    let annotations = pod.get("metadata").and_then(|m| m.get("annotations"));
    if annotations.is_some_and(|all| !all[MIRROR].is_null()) {
        return Ok(());
    }
    let namespace = request.namespace.unwrap_or_default();
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let name = match spec["serviceAccountName"].as_str() {
        None | Some("") => DEFAULT.to_owned(),
        Some(name) => name.to_owned(),
    };
    let collection = api.registry.builtin_collection("", "serviceaccounts");
    let key = key_of(Some(namespace), &name);
    let Some(account) = collection.and_then(|collection| api.store.get(collection, &key)) else {
        if name == DEFAULT {
            return Ok(());
        }
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        );
        return Err(refused(request, Some(pod), &why));
    };
    let account = Value::Object(account.decode());
    if account["metadata"]["annotations"][ENFORCE] == "true"
        && let Some(why) = unmountable(spec, &account, &name)
    {
        return Err(refused(request, Some(pod), &why));
    }
    let automount = &spec["automountServiceAccountToken"];
    let automount = automount
        .as_bool()
        .or(account["automountServiceAccountToken"].as_bool());
    let Some(Value::Object(spec)) = pod.get_mut("spec") else {
        return Ok(());
    };
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

/// Mounts a token in every container that mounts nothing in its place.
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

/// Returns which secret a Pod may not use under this account.
fn unmountable(spec: &Value, account: &Value, name: &str) -> Option<String> {
    let listed = |list: &str, secret: &str| {
        let list = account[list].as_array().into_iter().flatten();
        list.into_iter().any(|entry| entry["name"] == secret)
    };
    let refuse = |what: String| {
        Some(format!(
            "{what} is not allowed because service account {name} does not reference that secret"
        ))
    };
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let secret = volume["secret"]["secretName"].as_str();
        if let Some(secret) = secret.filter(|secret| !listed("secrets", secret)) {
            return refuse(format!("volume with secret.secretName={secret:?}"));
        }
    }
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            let called = container["name"].as_str().unwrap_or_default();
            let init = if list == "containers" { "" } else { "init " };
            for variable in container["env"].as_array().into_iter().flatten() {
                let reference = &variable["valueFrom"]["secretKeyRef"]["name"];
                if let Some(secret) = reference.as_str().filter(|s| !listed("secrets", s)) {
                    let variable = variable["name"].as_str().unwrap_or_default();
                    return refuse(format!(
                        "{init}container {called} with envVar {variable} referencing secret.secretName={secret:?}"
                    ));
                }
            }
        }
    }
    let pulls = spec["imagePullSecrets"].as_array().into_iter().flatten();
    for (i, pull) in pulls.enumerate() {
        let secret = pull["name"].as_str().unwrap_or_default();
        if !listed("imagePullSecrets", secret) {
            return Some(format!(
                "imagePullSecrets[{i}].name={secret:?} is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    None
}
