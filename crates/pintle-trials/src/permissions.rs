//! The permissions that a controller uses, compared with those it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Value, json};

use crate::{gateway::request::Verb, trace::Trace};

/// Verbs by group and resource, as a Role lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    used: BTreeMap<(String, String), BTreeSet<&'static str>>,
}

impl Permissions {
    /// Returns the permissions that the requests of a trace need.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut permissions = Self::default();
        for request in &trace.requests {
            let target = &request.target;
            if target.verb == Verb::Other || target.resource.group == "external" {
                continue;
            }
            let mut resource = target.resource.plural.clone();
            if !target.subresource.is_empty() {
                resource = format!("{resource}/{}", target.subresource);
            }
            let key = (target.resource.group.clone(), resource);
            permissions
                .used
                .entry(key)
                .or_default()
                .insert(target.verb.as_str());
        }
        permissions
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (key, verbs) in &other.used {
            let all = self.used.entry(key.clone()).or_default();
            all.extend(verbs);
        }
    }

    /// Returns the rules of the smallest Role that allows the used permissions.
    pub fn minimal_rules(&self) -> Value {
        let rules = self.used.iter().map(|((group, resource), verbs)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        });
        rules.collect()
    }

    /// Compares the permissions with the rules of a Role. Returns those that are used but not
    /// granted, and those that are granted but not used.
    pub(crate) fn compare(&self, rules: &Value) -> (Vec<String>, Vec<String>) {
        let mut missing = Vec::new();
        for ((group, resource), verbs) in &self.used {
            for verb in verbs {
                let allowed = rules.as_array().into_iter().flatten().any(|rule| {
                    has(&rule["apiGroups"], group)
                        && has(&rule["resources"], resource)
                        && has(&rule["verbs"], verb)
                });
                if !allowed {
                    missing.push(name(verb, group, resource));
                }
            }
        }
        let mut unused = Vec::new();
        for rule in rules.as_array().into_iter().flatten() {
            for (group, resource, verb) in granted(rule) {
                // Never used by a request: `OwnerReferencesPermissionEnforcement` requires it for
                // `blockOwnerDeletion`.
                if verb == "update" && resource.ends_with("/finalizers") {
                    continue;
                }
                let used = self
                    .used
                    .iter()
                    .any(|((used_group, used_resource), verbs)| {
                        (group == "*" || group == *used_group)
                            && (resource == "*" || resource == *used_resource)
                            && (verb == "*" || verbs.contains(verb))
                    });
                if !used {
                    unused.push(name(verb, group, resource));
                }
            }
        }
        (missing, unused)
    }

    /// Returns the rules of the smallest Role as YAML.
    pub fn to_yaml(&self) -> String {
        let mut text = String::from("rules:\n");
        for ((group, resource), verbs) in &self.used {
            let verbs: Vec<&str> = verbs.iter().copied().collect();
            let _ = writeln!(
                text,
                "- apiGroups: [{group:?}]\n  resources: [{resource:?}]\n  verbs: [{}]",
                verbs.join(", ")
            );
        }
        text
    }
}

fn has(list: &Value, wanted: &str) -> bool {
    let mut items = list.as_array().into_iter().flatten();
    items.any(|it| it == "*" || it == wanted)
}

fn granted(rule: &Value) -> Vec<(&str, &str, &str)> {
    let list = |field: &str| -> Vec<&str> {
        let items = rule[field].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).collect()
    };
    let (groups, resources, verbs) = (list("apiGroups"), list("resources"), list("verbs"));
    let mut all = Vec::new();
    for group in &groups {
        for resource in &resources {
            all.extend(verbs.iter().map(|verb| (*group, *resource, *verb)));
        }
    }
    all
}

fn name(verb: &str, group: &str, resource: &str) -> String {
    if group.is_empty() {
        format!("{verb} {resource}")
    } else {
        format!("{verb} {resource}.{group}")
    }
}

#[cfg(test)]
mod tests;
