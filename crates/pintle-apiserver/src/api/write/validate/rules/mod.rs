//! Validation of built-in kinds beyond their schemas.
//!
//! kube-apiserver has thousands of lines of these rules. This module has those that controller
//! tests and mistyped manifests run into: required fields, names and ranges, selectors that must
//! match their own template, immutable fields. Messages are upstream's.

mod autoscalers;
mod ephemeral;
mod events;
mod kinds;
mod pod_changes;
mod pods;
mod policies;
mod quotas;
mod roles;
pub(crate) mod services;
pub(crate) mod webhooks;
mod workloads;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

#[cfg(test)]
use crate::schema::builtin::TypeRef;
use crate::{
    meta::names::{NameRule, label_value, qualified_name},
    schema::field::{FieldError, Path},
};

const NON_NEGATIVE: &str = "must be greater than or equal to 0";
const PORTS: &str = "must be between 1 and 65535, inclusive";
const IMMUTABLE: &str = "field is immutable";

pub(crate) use self::webhooks::entry_errors as webhook_entry_errors;

type Errors = Vec<FieldError>;

type Check = fn(&Value, &mut Errors);
type Compare = fn(&Value, &Value, &mut Errors);

/// The validation rules of one kind, beyond its schema. [`find`] returns them once, when the kind
/// is registered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Applies to new and updated objects.
    object: Check,
    /// Applies to new objects in addition.
    create: Check,
    /// Compares an updated object with the stored one, in addition.
    update: Compare,
    /// Applies to an updated status instead.
    status: Check,
}

impl Rules {
    /// A kind without rules.
    pub(crate) const NONE: Self = Self {
        object: |_, _| {},
        create: |_, _| {},
        update: |_, _, _| {},
        status: |_, _| {},
    };

    /// Validates a new object, which has been decoded, defaulted and prepared.
    pub(crate) fn create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        (self.object)(object, &mut errors);
        (self.create)(object, &mut errors);
        errors
    }

    /// Validates an object that replaces `old`.
    pub(crate) fn update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        (self.object)(object, &mut errors);
        (self.update)(object, old, &mut errors);
        errors
    }

    /// Validates the status of an object.
    pub(crate) fn status(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        (self.status)(object, &mut errors);
        errors
    }
}

const SPEC: Path<'static> = Path::At("spec");

/// Returns the rules of a built-in kind.
pub(crate) fn find(group: &str, kind: &str) -> Rules {
    const NONE: Rules = Rules::NONE;
    match (group, kind) {
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => Rules {
            object: |object, errors| webhooks::configuration(object, true, errors),
            ..NONE
        },
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => Rules {
            object: |object, errors| webhooks::configuration(object, false, errors),
            ..NONE
        },
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => Rules {
            create: |object, errors| policies::policy(object, None, true, errors),
            update: |object, old, errors| policies::policy(object, Some(old), true, errors),
            ..NONE
        },
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => Rules {
            object: |object, errors| policies::binding(object, true, errors),
            ..NONE
        },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => Rules {
            create: |object, errors| policies::policy(object, None, false, errors),
            update: |object, old, errors| policies::policy(object, Some(old), false, errors),
            ..NONE
        },
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => Rules {
            object: |object, errors| policies::binding(object, false, errors),
            ..NONE
        },
        ("", "Pod") => Rules {
            create: |pod, errors| {
                pods::spec(&pod["spec"], &SPEC, errors);
                pods::fresh(&pod["spec"], errors);
            },
            update: pod_changes::change,
            ..NONE
        },
        ("", "PodTemplate") => Rules {
            object: |object, errors| {
                pods::template(&object["template"], &Path::At("template"), errors);
            },
            ..NONE
        },
        ("", "ReplicationController") => Rules {
            object: |object, errors| kinds::replication_controller(&object["spec"], &SPEC, errors),
            status: |object, errors| workloads::status(workloads::REPLICA_SET, object, errors),
            ..NONE
        },
        ("apps", "Deployment") => Rules {
            object: |object, errors| workloads::deployment(&object["spec"], &SPEC, errors),
            update: |new, old, errors| kinds::immutable("spec.selector", new, old, errors),
            status: |object, errors| workloads::status(workloads::DEPLOYMENT, object, errors),
            ..NONE
        },
        ("apps", "ReplicaSet") => Rules {
            object: |object, errors| workloads::replica_set(&object["spec"], &SPEC, errors),
            update: |new, old, errors| kinds::immutable("spec.selector", new, old, errors),
            status: |object, errors| workloads::status(workloads::REPLICA_SET, object, errors),
            ..NONE
        },
        ("apps", "StatefulSet") => Rules {
            object: |object, errors| workloads::stateful_set(&object["spec"], &SPEC, errors),
            update: kinds::stateful_set_change,
            status: |object, errors| workloads::status(workloads::STATEFUL_SET, object, errors),
            ..NONE
        },
        ("apps", "DaemonSet") => Rules {
            object: |object, errors| workloads::daemon_set(&object["spec"], &SPEC, errors),
            update: |new, old, errors| kinds::immutable("spec.selector", new, old, errors),
            ..NONE
        },
        ("batch", "Job") => Rules {
            object: |object, errors| workloads::job(&object["spec"], &SPEC, true, errors),
            update: kinds::job_change,
            ..NONE
        },
        ("batch", "CronJob") => Rules {
            object: |object, errors| workloads::cron_job(&object["spec"], &SPEC, errors),
            ..NONE
        },
        ("", "Service") => Rules {
            object: |object, errors| services::service(&object["spec"], &SPEC, errors),
            update: |new, old, errors| services::change(&new["spec"], &old["spec"], errors),
            ..NONE
        },
        ("", "ConfigMap") => Rules {
            object: kinds::config_map,
            update: |new, old, errors| {
                kinds::immutable_data(new, old, &["data", "binaryData"], errors);
            },
            ..NONE
        },
        ("", "Secret") => Rules {
            object: kinds::secret,
            update: |new, old, errors| {
                kinds::immutable("type", new, old, errors);
                kinds::immutable_data(new, old, &["data"], errors);
            },
            ..NONE
        },
        ("resource.k8s.io", "ResourceClaim") => Rules {
            update: |new, old, errors| kinds::immutable("spec", new, old, errors),
            ..NONE
        },
        ("", "PersistentVolumeClaim") => Rules {
            object: |object, errors| kinds::claim(&object["spec"], &SPEC, errors),
            update: kinds::claim_change,
            ..NONE
        },
        ("", "ResourceQuota") => Rules {
            object: |object, errors| quotas::quota(&object["spec"], &SPEC, errors),
            update: quotas::quota_change,
            status: |object, errors| {
                let (at, status) = (Path::At("status"), &object["status"]);
                quotas::amounts(&status["hard"], &at.child("hard"), errors);
                quotas::amounts(&status["used"], &at.child("used"), errors);
            },
            ..NONE
        },
        ("", "LimitRange") => Rules {
            object: |object, errors| quotas::limit_range(&object["spec"], &SPEC, errors),
            ..NONE
        },
        ("rbac.authorization.k8s.io", "RoleBinding") => Rules {
            object: |object, errors| roles::binding(object, true, errors),
            update: roles::binding_change,
            ..NONE
        },
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => Rules {
            object: |object, errors| roles::binding(object, false, errors),
            update: roles::binding_change,
            ..NONE
        },
        ("rbac.authorization.k8s.io", "Role") => Rules {
            object: |object, errors| roles::role(&object["rules"], true, errors),
            ..NONE
        },
        ("rbac.authorization.k8s.io", "ClusterRole") => Rules {
            object: roles::cluster_role,
            ..NONE
        },
        ("", "Event") => Rules {
            object: |object, errors| events::event("", object, errors),
            ..NONE
        },
        ("events.k8s.io", "Event") => Rules {
            object: |object, errors| events::event("events.k8s.io", object, errors),
            create: events::strict,
            update: events::change,
            ..NONE
        },
        ("policy", "PodDisruptionBudget") => Rules {
            object: |object, errors| kinds::budget(&object["spec"], &SPEC, errors),
            ..NONE
        },
        ("autoscaling", "HorizontalPodAutoscaler") => Rules {
            object: |object, errors| autoscalers::autoscaler(&object["spec"], &SPEC, errors),
            status: |object, errors| {
                for name in ["currentReplicas", "desiredReplicas"] {
                    non_negative(&object["status"], name, &Path::At("status"), errors);
                }
            },
            ..NONE
        },
        ("networking.k8s.io", "Ingress") => Rules {
            object: |object, errors| kinds::ingress(&object["spec"], &SPEC, errors),
            ..NONE
        },
        ("coordination.k8s.io", "Lease") => Rules {
            object: |object, errors| kinds::lease(&object["spec"], &SPEC, errors),
            ..NONE
        },
        ("scheduling.k8s.io", "PriorityClass") => Rules {
            create: kinds::priority,
            update: kinds::priority_change,
            ..NONE
        },
        ("storage.k8s.io", "StorageClass") => Rules {
            object: |object, errors| {
                require(object, "provisioner", &Path::Root, errors);
            },
            update: kinds::storage_class_change,
            ..NONE
        },
        _ => NONE,
    }
}

#[cfg(test)]
fn of(ty: TypeRef) -> Rules {
    ty.get()
        .kind
        .map_or(Rules::NONE, |(group, _, kind)| find(group, kind))
}

/// Validates a new object of a type.
#[cfg(test)]
pub(crate) fn create(object: &Value, ty: TypeRef) -> Vec<FieldError> {
    of(ty).create(object)
}

/// Validates an object of a type that replaces `old`.
#[cfg(test)]
pub(crate) fn update(object: &Value, old: &Value, ty: TypeRef) -> Vec<FieldError> {
    of(ty).update(object, old)
}

/// Validates the spec of a Pod.
pub(crate) fn pod_spec(spec: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    pods::spec(spec, &SPEC, &mut errors);
    errors
}

/// Validates an update of the ephemeral containers of a Pod.
pub(crate) fn ephemeral_containers(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    ephemeral::change(pod, old, &mut errors);
    errors
}

/// Iterates over the items of a list with their indices.
fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// Iterates over the entries of a map.
fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Removes a field, to compare the rest.
fn blank(value: &mut Value, name: &str) {
    if let Value::Object(map) = value {
        map.remove(name);
    }
}

/// Reports a missing or empty field. Returns true if the field is set.
fn require(value: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) -> bool {
    let missing = absent(&value[name]);
    if missing {
        errors.push(FieldError::required(at.child(name), ""));
    }
    !missing
}

/// Reports a negative number.
fn non_negative(value: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = value[name].as_i64().filter(|n| *n < 0) {
        errors.push(FieldError::invalid(at.child(name), n, NON_NEGATIVE));
    }
}

fn one_of(value: &Value, name: &str, known: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let found = text(value, name);
    if !found.is_empty() && !known.contains(&found) {
        errors.push(FieldError::not_supported(at.child(name), found, known));
    }
}

fn port(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Number(n) if !n.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) => {
            errors.push(FieldError::invalid(at, value.clone(), PORTS));
        }
        Value::String(name) => {
            for why in port_name(name) {
                errors.push(FieldError::invalid(at, name.as_str(), why));
            }
        }
        _ => {}
    }
}

/// Returns why a string is not a port name.
fn port_name(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(legal) {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    // Report only the first problem, as upstream does.
    problems.truncate(1);
    problems
}

fn dns_label(name: &str, at: &Path<'_>, errors: &mut Errors) {
    for why in NameRule::Label.problems(name, false) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

fn subdomain(name: &str, at: &Path<'_>, errors: &mut Errors) {
    for why in NameRule::Subdomain.problems(name, false) {
        errors.push(FieldError::invalid(at, name, why));
    }
}

/// Validates label keys and values.
fn labels(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (name, value) in entries(value) {
        for why in qualified_name(name) {
            errors.push(FieldError::invalid(at, name.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in label_value(value) {
            errors.push(FieldError::invalid(at, value, why));
        }
    }
}

/// Returns true if a selector matches the labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = entries(&selector["matchLabels"]).all(|(name, value)| &labels[name] == value);
    exact
        && items(&selector["matchExpressions"]).all(|(_, one)| {
            let value = &labels[text(one, "key")];
            let among = items(&one["values"]).any(|(_, known)| known == value);
            match text(one, "operator") {
                "In" => !value.is_null() && among,
                "NotIn" => value.is_null() || !among,
                "Exists" => !value.is_null(),
                _ => value.is_null(),
            }
        })
}
