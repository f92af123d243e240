//! Escalation: no user may grant permissions it does not have.
//!
//! A user may write a role if it holds every permission in it, or may `escalate` roles; and a
//! binding if it holds every permission of the role, or may `bind` that role. Members of
//! `system:masters` may do both. Checked after mutating admission and before validation, as in
//! upstream.
//!
//! # Limits
//!
//! Every permission of a role is compared with every rule of the user, which can be many: a rule
//! with lists of groups, resources, names and verbs grants all of their combinations. A role with
//! more than [`MAX_PARTS`] of them, or one that takes more than [`MAX_EFFORT`] comparisons, is
//! rejected. Rules that a single rule of the user covers are compared as a whole, so they rarely
//! reach the limits.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Access,
    access::Resource,
    rbac::{GROUP, RbacKind, RoleRef, Unresolved, aggregate},
    rule::{Cover, Effort, Rule, quoted},
};
use crate::{
    api::{Api, ApiError, User},
    meta::Tree,
};

/// The maximum number of permissions of one role that are compared one by one with its writer's
/// rules.
const MAX_PARTS: usize = 200_000;

/// The maximum number of comparisons for one role.
const MAX_EFFORT: usize = 10_000_000;

/// A role or binding that a user wants to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grants<'a> {
    pub(crate) kind: RbacKind,
    /// Empty for the whole cluster.
    pub(crate) namespace: &'a str,
    /// The name in the path; empty for a POST.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Tree>,
    pub(crate) new: &'a Tree,
}

impl Api {
    /// Fails with 403 if a user would grant permissions that it does not have.
    pub(crate) fn check_escalation(
        &self,
        user: &User,
        grants: &Grants<'_>,
    ) -> Result<(), ApiError> {
        if user.is_administrator() {
            return Ok(());
        }
        if grants
            .old
            .is_some_and(|old| changes_only_owners(grants.new, old))
        {
            return Ok(());
        }
        match grants.kind {
            RbacKind::Role | RbacKind::ClusterRole => self.check_role(user, grants),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                self.check_binding(user, grants)
            }
        }
    }

    fn check_role(&self, user: &User, grants: &Grants<'_>) -> Result<(), ApiError> {
        let Grants {
            kind,
            namespace,
            name,
            old,
            new,
        } = *grants;
        let escalate = Access::to(
            "escalate",
            Resource {
                group: GROUP.into(),
                plural: kind.plural().into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Resource::default()
            },
        );
        if self.authorize(user, &escalate).is_allowed() {
            return Ok(());
        }
        let own_name = crate::meta::text(new, "name");
        let forbidden = |why: &str| ApiError::forbidden(GROUP, kind.plural(), own_name, why);
        let rules = Rule::read_all(new.get("rules").unwrap_or(&Value::Null));
        self.confirm(user, namespace, &rules)
            .map_err(|why| forbidden(&why))?;
        // An aggregated role can gather anything.
        if kind == RbacKind::ClusterRole && (aggregates(new) || old.is_some_and(aggregates)) {
            self.confirm(user, namespace, &Rule::everything())
                .map_err(|_| {
                    forbidden("must have cluster-admin privileges to use the aggregationRule")
                })?;
        }
        Ok(())
    }

    fn check_binding(&self, user: &User, grants: &Grants<'_>) -> Result<(), ApiError> {
        let Grants {
            kind,
            namespace,
            new,
            ..
        } = *grants;
        let role = RoleRef::read(new);
        let plural = match role.kind.as_str() {
            "ClusterRole" => RbacKind::ClusterRole.plural(),
            "Role" => RbacKind::Role.plural(),
            _ => "",
        };
        let bind = Access::to(
            "bind",
            Resource {
                group: role.group.as_str().into(),
                plural: plural.into(),
                namespace: namespace.into(),
                name: role.name.as_str().into(),
                ..Resource::default()
            },
        );
        if !plural.is_empty() && self.authorize(user, &bind).is_allowed() {
            return Ok(());
        }
        let rules = match self.rbac.role_rules(&role, namespace) {
            Ok(rules) => rules,
            // Kubernetes names the resource of the request, not the role's.
            Err(Unresolved::Missing { name, .. }) => {
                return Err(ApiError::not_found(GROUP, kind.plural(), &name));
            }
            Err(error) => return Err(ApiError::new(500, "", error.storage_text())),
        };
        let name = crate::meta::text(new, "name");
        self.confirm(user, namespace, &rules)
            .map_err(|why| ApiError::forbidden(GROUP, kind.plural(), name, &why))
    }

    /// Checks that a user holds every permission in `rules`. The error lists the missing ones.
    fn confirm(&self, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
        let (own, errors) = self.rbac.user_rules(user, namespace);
        let covers: Vec<Cover<'_>> = own.iter().map(Cover::new).collect();
        let effort = Effort::new(MAX_EFFORT);
        let held = |part: &Rule| covers.iter().any(|own| own.covers(part, &effort));
        let open: Vec<&Rule> = rules.iter().filter(|rule| !held(rule)).collect();
        let parts = open.iter().map(|rule| rule.parts());
        let parts = parts.fold(0, usize::saturating_add);
        let too_many = || {
            format!(
                "user {:?} is attempting to grant too many RBAC permissions to check: the limits \
                 are {MAX_PARTS} combinations of API groups, resources, names and verbs, and \
                 {MAX_EFFORT} comparisons with the rules of the user; use smaller roles, or a user \
                 that may escalate or bind them",
                user.name
            )
        };
        if parts > MAX_PARTS || effort.is_exhausted() {
            return Err(too_many());
        }
        let parts = open.into_iter().flat_map(Rule::split);
        let missing = parts.take_while(|_| !effort.is_exhausted());
        let missing: Vec<Rule> = missing.filter(|part| !held(part)).collect();
        if effort.is_exhausted() {
            return Err(too_many());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<String> = compact(missing).iter().map(Rule::to_string).collect();
        lines.sort();
        lines.dedup();
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            quoted(&user.groups),
            lines.join("\n")
        );
        if !errors.is_empty() {
            let errors = aggregate(&errors, Unresolved::storage_text);
            why = format!("{why}; resolution errors: [{errors}]");
        }
        Err(why)
    }
}

/// Merges rules of one resource that differ only in their verb.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let (paths, resources): (Vec<Rule>, Vec<Rule>) =
        rules.into_iter().partition(|rule| !rule.urls.is_empty());
    let mut merged = BTreeMap::<_, Vec<String>>::new();
    for rule in resources {
        let key = (rule.groups, rule.resources, rule.names);
        merged.entry(key).or_default().extend(rule.verbs);
    }
    let merged = merged
        .into_iter()
        .map(|((groups, resources, names), verbs)| Rule {
            verbs,
            groups,
            resources,
            names,
            ..Rule::default()
        });
    merged.chain(paths).collect()
}

fn aggregates(role: &Tree) -> bool {
    let selectors = role
        .get("aggregationRule")
        .and_then(|rule| rule.get("clusterRoleSelectors"));
    selectors
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

/// Returns true if an update changes nothing but what the garbage collector changes.
fn changes_only_owners(new: &Tree, old: &Tree) -> bool {
    let rest = |object: &Tree| {
        let mut object = object.clone();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object.remove("apiVersion");
        object.remove("kind");
        object
    };
    rest(new) == rest(old)
}
