//! The permissions a program needs, derived from the program itself.
//!
//! A role written by hand drifts from the program: a missing permission surfaces as a 403 in
//! production, an unneeded one never does. [`Rules`] holds permissions as data. Every part that
//! sends requests contributes its own, no cluster is needed, and the result is rendered as a
//! service account, roles and bindings.
//!
//! | what | permissions |
//! |---|---|
//! | [`reads`](Rules::reads): an informer | `list`, `watch` |
//! | [`applies`](Rules::applies): [`Context::apply_owned`](crate::controller::Context::apply_owned) | `get`, `create`, `patch` |
//! | [`applies_sets`](Rules::applies_sets): [`Context::apply_set`](crate::controller::Context::apply_set) | these and `delete` |
//! | [`writes`](Rules::writes): anything else | as declared |
//! | [`reports`](Rules::reports): status and conditions | `patch` on `…/status` |
//! | [`owns_through`](Rules::owns_through): controller references to a kind | `update` on `…/finalizers` |
//! | [`records_events`](Rules::records_events) | `create`, `patch` on `events.k8s.io` Events |
//! | [`elects`](Rules::elects): a Lease | `create`; `get`, `update`, `watch` on that one |
//!
//! [`Controller::rules`](crate::controller::Controller::rules) returns a controller's permissions,
//! and [`Manager::rules`](crate::manager::Manager::rules) those of a whole program.
//!
//! # Scope
//!
//! Permissions hold in all namespaces until [`within`](Rules::within) narrows them. Permissions to
//! cluster-scoped kinds stay in a `ClusterRole`, since a `Role` cannot grant them.
//!
//! # Examples
//!
//! ```
//! use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
//! use pintle::rbac::{Account, Rules};
//!
//! let rules = Rules::new()
//!     .reads::<ConfigMap>()
//!     .reads::<Deployment>()
//!     .applies::<Deployment>()
//!     .records_events();
//! let manifests = rules.manifests(&Account::new("deployer", "system"));
//! let role = manifests.cluster_role.unwrap();
//! let rules = role.rules.unwrap();
//! assert_eq!(rules[0].resources.as_deref().unwrap(), ["configmaps"]);
//! assert_eq!(rules[1].verbs, ["get", "list", "watch", "create", "patch"]);
//! ```

mod manifests;
mod verb;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event, rbac::v1::PolicyRule};
use kube::{Resource, core::ApiResource};

pub use self::{
    manifests::{Account, Manifests},
    verb::Verb,
};
use crate::source::KindScope;

/// A set of permissions. See the [module](self).
///
/// Each permission is stored once, and only if no broader one implies it: not for one namespace if
/// it holds in all of them, and not for one name if it holds for every name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    permissions: BTreeSet<Permission>,
}

/// One permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Permission {
    /// The namespace it is limited to; `None` for all, and for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource, with its subresource if there is one: `deployments`, `deployments/status`.
    pub resource: String,
    /// The name of the only object it is limited to.
    pub name: Option<String>,
    /// The verb it allows.
    pub verb: Verb,
    /// Whether the resource is cluster-scoped, as far as that is known.
    pub is_cluster_scoped: bool,
}

impl Permission {
    /// Returns whether `self` allows all that `other` does.
    fn implies(&self, other: &Self) -> bool {
        let broader =
            |mine: &Option<String>, other: &Option<String>| mine.is_none() || mine == other;
        self.group == other.group
            && self.resource == other.resource
            && self.verb == other.verb
            && broader(&self.namespace, &other.namespace)
            && broader(&self.name, &other.name)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

impl Rules {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the permissions of an informer of `K`: `list` and `watch`.
    pub fn reads<K: Named>(self) -> Self {
        self.writes::<K>([Verb::List, Verb::Watch])
    }

    /// Adds permissions to objects of kind `K`.
    pub fn writes<K: Named>(self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let kind = K::DynamicType::default();
        self.allows::<K>(&kind, None, verbs)
    }

    /// Adds what [`Context::apply_owned`](crate::controller::Context::apply_owned) needs: `get`,
    /// `create` and `patch`.
    pub fn applies<K: Named>(self) -> Self {
        self.writes::<K>([Verb::Get, Verb::Create, Verb::Patch])
    }

    /// Adds what [`Context::apply_set`](crate::controller::Context::apply_set) needs: `get`,
    /// `create`, `patch` and `delete`.
    pub fn applies_sets<K: Named>(self) -> Self {
        self.applies::<K>().writes::<K>([Verb::Delete])
    }

    /// Adds the permission to report in the status of `K`s: `patch` on the subresource.
    pub fn reports<K: Named>(self) -> Self {
        let kind = K::DynamicType::default();
        self.allows::<K>(&kind, Some("status"), [Verb::Patch])
    }

    /// Adds the permission to make `K`s the controllers of other objects: `update` on the
    /// subresource `finalizers`.
    ///
    /// No request uses it. Clusters with the admission plugin
    /// `OwnerReferencesPermissionEnforcement` require it for setting `blockOwnerDeletion`.
    pub fn owns_through<K: Named>(self) -> Self {
        let kind = K::DynamicType::default();
        self.allows::<K>(&kind, Some("finalizers"), [Verb::Update])
    }

    /// Adds the permissions to record events: `create` and `patch` in the API `events.k8s.io`.
    pub fn records_events(self) -> Self {
        self.writes::<Event>([Verb::Create, Verb::Patch])
    }

    /// Adds the permissions to elect a leader with a Lease: `get`, `update` and `watch` on this
    /// Lease, and `create`, which cannot be limited to a name.
    pub fn elects(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        for verb in [Verb::Get, Verb::Update, Verb::Watch, Verb::Create] {
            self.insert(Permission {
                namespace: Some(namespace.clone()),
                group: Lease::group(&()).into_owned(),
                resource: Lease::plural(&()).into_owned(),
                name: Some(name.clone()).filter(|_| verb != Verb::Create),
                verb,
                is_cluster_scoped: false,
            });
        }
        self
    }

    /// Adds permissions to a resource or subresource, including one whose kind is known only
    /// at run time.
    pub fn allows<K: Resource<Scope: 'static>>(
        mut self,
        kind: &K::DynamicType,
        subresource: Option<&str>,
        verbs: impl IntoIterator<Item = Verb>,
    ) -> Self {
        let ApiResource { group, plural, .. } = ApiResource::erase::<K>(kind);
        let resource = match subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural,
        };
        for verb in verbs {
            self.insert(Permission {
                namespace: None,
                group: group.clone(),
                resource: resource.clone(),
                name: None,
                verb,
                is_cluster_scoped: KindScope::of::<K>() == KindScope::Cluster,
            });
        }
        self
    }

    /// Adds all permissions of `other`.
    pub fn and(mut self, other: Self) -> Self {
        for permission in other.permissions {
            self.insert(permission);
        }
        self
    }

    /// Limits permissions that hold in all namespaces to these. Permissions to cluster-scoped kinds
    /// stay.
    ///
    /// A kind known only at run time counts as namespaced.
    pub fn within<N: Into<String>>(self, namespaces: impl IntoIterator<Item = N>) -> Self {
        let namespaces: BTreeSet<String> = namespaces.into_iter().map(Into::into).collect();
        let mut narrowed = Self::new();
        for permission in self.permissions {
            if permission.is_cluster_scoped || permission.namespace.is_some() {
                narrowed.insert(permission);
                continue;
            }
            for namespace in &namespaces {
                narrowed.insert(Permission {
                    namespace: Some(namespace.clone()),
                    ..permission.clone()
                });
            }
        }
        narrowed
    }

    /// Returns every permission, ordered by namespace, group, resource, name and verb.
    pub fn permissions(&self) -> impl Iterator<Item = &Permission> {
        self.permissions.iter()
    }

    /// Returns whether there are no permissions.
    pub fn is_empty(&self) -> bool {
        self.permissions.is_empty()
    }

    fn insert(&mut self, permission: Permission) {
        if self
            .permissions
            .iter()
            .any(|known| known.implies(&permission))
        {
            return;
        }
        self.permissions.retain(|known| !permission.implies(known));
        self.permissions.insert(permission);
    }

    /// Returns the permissions for `namespace`, or for all, as policy rules. Resources of a group
    /// with the same verbs share a rule.
    fn policy_rules(&self, namespace: Option<&str>) -> Vec<PolicyRule> {
        let mut by_resource: Vec<(&str, Option<&str>, &str, BTreeSet<Verb>)> = Vec::new();
        let permissions = self.permissions.iter();
        for permission in
            permissions.filter(|permission| permission.namespace.as_deref() == namespace)
        {
            let place = (
                &*permission.group,
                permission.name.as_deref(),
                &*permission.resource,
            );
            match by_resource.last_mut() {
                // Permissions are ordered by group, resource and name.
                Some((group, name, resource, verbs)) if (*group, *name, *resource) == place => {
                    verbs.insert(permission.verb);
                }
                _ => {
                    let verbs = BTreeSet::from([permission.verb]);
                    by_resource.push((place.0, place.1, place.2, verbs));
                }
            }
        }
        let mut rules: Vec<PolicyRule> = Vec::new();
        for (group, name, resource, verbs) in by_resource {
            let rule = PolicyRule {
                api_groups: Some(vec![group.to_owned()]),
                resources: Some(vec![resource.to_owned()]),
                resource_names: name.map(|name| vec![name.to_owned()]),
                verbs: verbs.iter().map(ToString::to_string).collect(),
                non_resource_urls: None,
            };
            let same = rules.iter_mut().find(|known| {
                known.api_groups == rule.api_groups
                    && known.resource_names == rule.resource_names
                    && known.verbs == rule.verbs
            });
            match same {
                Some(known) => known
                    .resources
                    .get_or_insert_default()
                    .push(resource.to_owned()),
                None => rules.push(rule),
            }
        }
        rules
    }
}

/// A kind whose resource is known from its type.
pub trait Named: Resource<DynamicType: Default, Scope: 'static> {}

impl<K: Resource<DynamicType: Default, Scope: 'static>> Named for K {}

#[cfg(test)]
mod tests;
