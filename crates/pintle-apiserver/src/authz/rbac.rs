//! Role-based access control: roles, and bindings that grant them to subjects.
//!
//! The authorizer keeps its own decoded copy of all roles and bindings, indexed by subject, so that
//! a request decodes nothing. It is loaded by the first request that needs it; requests from
//! administrators do not. From then on the hooks of the four kinds refresh one entry per write,
//! before the write returns, so that permissions apply as soon as they are granted.
//!
//! Permissions are purely additive: a binding to a role that does not exist grants nothing, and the
//! error for a denied request mentions it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use parking_lot::{RwLock, RwLockReadGuard};
use serde_json::Value;

use super::{Access, Authorizer, Decision, Rules, rule::Rule};
use crate::{
    api::User,
    meta::Tree,
    registry::Registry,
    store::{CollectionId, Object, Store},
};

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// One of the four kinds of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RbacKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl RbacKind {
    const ALL: [Self; 4] = [
        Self::Role,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// The RBAC authorizer.
#[derive(Debug)]
pub(crate) struct Rbac {
    store: Store,
    /// The collections of [`RbacKind::ALL`].
    collections: [Option<CollectionId>; 4],
    /// `None` until the first request needs it.
    policy: RwLock<Option<Policy>>,
}

/// All roles and bindings, decoded.
#[derive(Debug, Default)]
struct Policy {
    /// By key: `name`, or `namespace/name`.
    roles: BTreeMap<Arc<str>, Vec<Rule>>,
    cluster_roles: BTreeMap<Arc<str>, Vec<Rule>>,
    /// The bindings by namespace; cluster role bindings under the empty string.
    scopes: BTreeMap<String, Scope>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Default)]
struct Scope {
    bindings: BTreeMap<String, Arc<Binding>>,
    /// The binding names of each user.
    users: BTreeMap<String, BTreeSet<String>>,
    /// The binding names of each group.
    groups: BTreeMap<String, BTreeSet<String>>,
}

/// A binding of a role to subjects.
#[derive(Debug)]
struct Binding {
    /// Empty for a `ClusterRoleBinding`.
    namespace: String,
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// A reference to a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    /// The namespace of a service account.
    namespace: String,
}

/// Why a user has access: the binding, and the subject in it that matches the user.
#[derive(Debug)]
pub(crate) struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

/// A role that does not exist, or cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unresolved {
    Missing { kind: RbacKind, name: String },
    Unsupported(String),
}

impl Rbac {
    pub(crate) fn new(store: &Store, registry: &Registry) -> Self {
        Self {
            store: store.clone(),
            collections: RbacKind::ALL
                .map(|kind| registry.builtin_collection(GROUP, kind.plural())),
            policy: RwLock::new(None),
        }
    }

    /// Updates the policy after an object was written or deleted.
    pub(crate) fn refresh(&self, kind: RbacKind, key: &str) {
        let mut policy = self.policy.write();
        if let Some(policy) = policy.as_mut() {
            // Concurrent writers may get here out of order, so read the stored state.
            let collection = self.collection(kind);
            let object = collection.and_then(|collection| self.store.get(collection, key));
            policy.set(kind, key, object.as_deref());
        }
    }

    /// Returns the rules of a role that a binding in `namespace` refers to.
    pub(crate) fn role_rules(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<Vec<Rule>, Unresolved> {
        self.with(|policy| policy.role(role, namespace).map(<[Rule]>::to_vec))
    }

    /// Returns the rules of a user in a namespace, and the roles that could not be resolved.
    pub(crate) fn user_rules(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Unresolved>) {
        self.with(|policy| {
            let (mut rules, mut errors) = (Vec::new(), Vec::new());
            for binding in policy.bindings(user, namespace) {
                match policy.role(&binding.role, &binding.namespace) {
                    Ok(own) => rules.extend_from_slice(own),
                    Err(error) => errors.push(error),
                }
            }
            (rules, errors)
        })
    }

    fn collection(&self, kind: RbacKind) -> Option<CollectionId> {
        let at = RbacKind::ALL.iter().position(|other| *other == kind)?;
        self.collections[at]
    }

    /// Runs a function on the policy, and loads it first if necessary.
    fn with<T>(&self, run: impl FnOnce(&Policy) -> T) -> T {
        let policy = self.policy.read();
        if policy.is_none() {
            drop(policy);
            let mut policy = self.policy.write();
            policy.get_or_insert_with(|| self.load());
            let policy = parking_lot::RwLockWriteGuard::downgrade(policy);
            return Self::run(&policy, run);
        }
        Self::run(&policy, run)
    }

    fn run<T>(policy: &RwLockReadGuard<'_, Option<Policy>>, run: impl FnOnce(&Policy) -> T) -> T {
        match &**policy {
            Some(policy) => run(policy),
            None => run(&Policy::default()),
        }
    }

    fn load(&self) -> Policy {
        let mut policy = Policy::default();
        for kind in RbacKind::ALL {
            let snapshot = self
                .collection(kind)
                .and_then(|collection| self.store.snapshot(collection).ok());
            for (key, object) in snapshot.iter().flat_map(|snapshot| snapshot.objects.iter()) {
                policy.set(kind, key, Some(object));
            }
        }
        policy
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, user: &User, access: &Access<'_>) -> Decision {
        let namespace = match &access.what {
            super::access::What::Resource(resource) => &*resource.namespace,
            super::access::What::Path(_) => "",
        };
        self.with(|policy| {
            let mut errors = Vec::new();
            for binding in policy.bindings(user, namespace) {
                match policy.role(&binding.role, &binding.namespace) {
                    Ok(rules) if rules.iter().any(|rule| rule.allows(access)) => {
                        return Decision::Allowed(Some(Grant {
                            binding: Arc::clone(binding),
                            subject: binding.subject_of(user),
                        }));
                    }
                    Ok(_) => {}
                    Err(error) => errors.push(error),
                }
            }
            let reason = aggregate(&errors, Unresolved::lister_text);
            Decision::NoOpinion(if reason.is_empty() {
                reason
            } else {
                format!("RBAC: {reason}")
            })
        })
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let (rules, errors) = self.user_rules(user, namespace);
        Rules {
            rules,
            error: aggregate(&errors, Unresolved::lister_text),
        }
    }
}

impl Policy {
    /// Replaces an object, or removes it if `object` is `None`.
    fn set(&mut self, kind: RbacKind, key: &str, object: Option<&Object>) {
        match kind {
            RbacKind::Role => set_rules(&mut self.roles, key, object),
            RbacKind::ClusterRole => set_rules(&mut self.cluster_roles, key, object),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let (namespace, name) = key.split_once('/').unwrap_or(("", key));
                let scope = self.scopes.entry(namespace.to_owned()).or_default();
                scope.remove(name);
                if let Some(object) = object {
                    scope.insert(Binding::read(namespace, name, &object.decode()));
                } else if scope.bindings.is_empty() {
                    self.scopes.remove(namespace);
                }
            }
        }
    }

    fn role(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], Unresolved> {
        let (kind, found) = match role.kind.as_str() {
            "Role" => {
                let key = format!("{namespace}/{}", role.name);
                (RbacKind::Role, self.roles.get(key.as_str()))
            }
            "ClusterRole" => {
                let found = self.cluster_roles.get(role.name.as_str());
                (RbacKind::ClusterRole, found)
            }
            other => return Err(Unresolved::Unsupported(other.to_owned())),
        };
        found.map(Vec::as_slice).ok_or_else(|| Unresolved::Missing {
            kind,
            name: role.name.clone(),
        })
    }

    /// Returns the bindings of a user that apply in a namespace: first the cluster's, then the
    /// namespace's, each sorted by name.
    fn bindings<'a>(&'a self, user: &User, namespace: &str) -> Vec<&'a Arc<Binding>> {
        let mut found = Vec::new();
        let cluster = self.scopes.get("");
        let local = self.scopes.get(namespace).filter(|_| !namespace.is_empty());
        for scope in cluster.into_iter().chain(local) {
            let users = scope.users.get(&user.name);
            let groups = user
                .groups
                .iter()
                .filter_map(|group| scope.groups.get(group));
            let names: BTreeSet<&String> = users.into_iter().chain(groups).flatten().collect();
            found.extend(
                names
                    .into_iter()
                    .filter_map(|name| scope.bindings.get(name)),
            );
        }
        found
    }
}

impl Scope {
    fn insert(&mut self, binding: Binding) {
        for subject in &binding.subjects {
            let (index, name) = match subject.kind.as_str() {
                "User" => (&mut self.users, subject.name.clone()),
                "Group" => (&mut self.groups, subject.name.clone()),
                "ServiceAccount" if !subject.namespace.is_empty() => {
                    (&mut self.users, subject.user_name())
                }
                _ => continue,
            };
            index.entry(name).or_default().insert(binding.name.clone());
        }
        let name = binding.name.clone();
        self.bindings.insert(name, Arc::new(binding));
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else {
            return;
        };
        for subject in &binding.subjects {
            let (index, subject) = match subject.kind.as_str() {
                "Group" => (&mut self.groups, subject.name.clone()),
                "ServiceAccount" => (&mut self.users, subject.user_name()),
                _ => (&mut self.users, subject.name.clone()),
            };
            if let Some(names) = index.get_mut(&subject) {
                names.remove(name);
                if names.is_empty() {
                    index.remove(&subject);
                }
            }
        }
    }
}

impl Binding {
    fn read(namespace: &str, name: &str, object: &Tree) -> Self {
        let subjects = object.get("subjects").and_then(Value::as_array);
        let subjects = subjects.into_iter().flatten().map(|subject| {
            let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
            let own = text("namespace");
            Subject {
                kind: text("kind"),
                name: text("name"),
                namespace: if own.is_empty() {
                    namespace.to_owned()
                } else {
                    own
                },
            }
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            role: RoleRef::read(object),
            subjects: subjects.collect(),
        }
    }

    /// Returns the index of the first subject that matches the user.
    fn subject_of(&self, user: &User) -> usize {
        let is = |subject: &Subject| match subject.kind.as_str() {
            "User" => subject.name == user.name,
            "Group" => user.groups.contains(&subject.name),
            _ => subject.user_name() == user.name,
        };
        self.subjects.iter().position(is).unwrap_or_default()
    }
}

impl RoleRef {
    /// Reads the `roleRef` of a binding.
    pub(crate) fn read(object: &Tree) -> Self {
        let role = object.get("roleRef").unwrap_or(&Value::Null);
        let text = |field: &str| role[field].as_str().unwrap_or_default().to_owned();
        Self {
            group: text("apiGroup"),
            kind: text("kind"),
            name: text("name"),
        }
    }
}

impl Subject {
    /// Returns the user name of a service account.
    fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding {
            namespace,
            name,
            role,
            subjects,
        } = &*self.binding;
        let (kind, role) = (&role.kind, &role.name);
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?} of {kind} {role:?} to ")?;
        } else {
            let name = format!("{name}/{namespace}");
            write!(f, "RoleBinding {name:?} of {kind} {role:?} to ")?;
        }
        let Some(subject) = subjects.get(self.subject) else {
            return Ok(());
        };
        let mut name = subject.name.clone();
        if subject.kind == "ServiceAccount" {
            name = format!("{name}/{}", subject.namespace);
        }
        write!(f, "{} {name:?}", subject.kind)
    }
}

impl Unresolved {
    /// Returns the message of upstream's lister, which names the resource in the singular.
    fn lister_text(&self) -> String {
        match self {
            Self::Missing { kind, name } => {
                let what = kind.plural().trim_end_matches('s');
                format!("{what}.{GROUP} {name:?} not found")
            }
            Self::Unsupported(kind) => format!("unsupported role reference kind: {kind:?}"),
        }
    }

    /// Returns the message of upstream's storage, which names the resource in the plural.
    pub(crate) fn storage_text(&self) -> String {
        match self {
            Self::Missing { kind, name } => format!("{}.{GROUP} {name:?} not found", kind.plural()),
            Self::Unsupported(_) => self.lister_text(),
        }
    }
}

/// Joins errors as upstream does: without duplicates, in brackets if there is more than one.
pub(crate) fn aggregate(errors: &[Unresolved], text: fn(&Unresolved) -> String) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(text) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        0 => String::new(),
        1 => texts.remove(0),
        _ => format!("[{}]", texts.join(", ")),
    }
}

fn set_rules(roles: &mut BTreeMap<Arc<str>, Vec<Rule>>, key: &str, object: Option<&Object>) {
    match object {
        Some(object) => {
            let role = object.decode();
            let rules = role.get("rules").unwrap_or(&Value::Null);
            roles.insert(Arc::clone(&object.key), Rule::read_all(rules));
        }
        None => {
            roles.remove(key);
        }
    }
}
