//! Permissions as objects: roles, bindings and a service account.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use super::Rules;

/// The service account that gets the permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
}

impl Account {
    /// Names the account; the roles are named after it.
    ///
    /// Roles and bindings outside of the account's namespace are called `name:namespace`, so that
    /// two installations of one program do not overwrite each other's, even if their permissions
    /// differ.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            labels: BTreeMap::new(),
        }
    }

    /// Adds a label to every object.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    fn meta(&self, namespace: Option<&str>, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: namespace.map(str::to_owned),
            labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
            ..ObjectMeta::default()
        }
    }

    /// Returns the name of the role and of its binding in `namespace`, or in the cluster.
    fn role_name(&self, namespace: Option<&str>) -> String {
        if namespace == Some(&self.namespace) {
            self.name.clone()
        } else {
            format!("{}:{}", self.name, self.namespace)
        }
    }

    fn role_ref(&self, kind: &str, namespace: Option<&str>) -> RoleRef {
        RoleRef {
            api_group: Some(Role::group(&()).into_owned()),
            kind: kind.to_owned(),
            name: self.role_name(namespace),
        }
    }

    fn role_meta(&self, namespace: Option<&str>) -> ObjectMeta {
        self.meta(namespace, &self.role_name(namespace))
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.name.clone(),
            namespace: Some(self.namespace.clone()),
            ..Subject::default()
        }]
    }
}

/// The objects that grant [`Rules`] to an [`Account`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifests {
    /// The account.
    pub service_account: ServiceAccount,
    /// The permissions in all namespaces and to cluster-scoped kinds, if there are any.
    pub cluster_role: Option<ClusterRole>,
    /// Grants the cluster role.
    pub cluster_role_binding: Option<ClusterRoleBinding>,
    /// The permissions in single namespaces.
    pub roles: Vec<Role>,
    /// Grants each role, in the same order.
    pub role_bindings: Vec<RoleBinding>,
}

impl Rules {
    /// Returns the objects that grant these permissions to `account`.
    pub fn manifests(&self, account: &Account) -> Manifests {
        let Account {
            name, namespace, ..
        } = account;
        let cluster_rules = self.policy_rules(None);
        let cluster_role = (!cluster_rules.is_empty()).then(|| ClusterRole {
            metadata: account.role_meta(None),
            rules: Some(cluster_rules),
            ..ClusterRole::default()
        });
        let cluster_role_binding = cluster_role.as_ref().map(|_| ClusterRoleBinding {
            metadata: account.role_meta(None),
            role_ref: account.role_ref("ClusterRole", None),
            subjects: Some(account.subjects()),
        });
        let namespaces = self
            .permissions()
            .filter_map(|permission| permission.namespace.as_deref());
        let namespaces: BTreeSet<&str> = namespaces.collect();
        let roles = namespaces.iter().map(|of| Role {
            metadata: account.role_meta(Some(of)),
            rules: Some(self.policy_rules(Some(of))),
        });
        let role_bindings = namespaces.iter().map(|of| RoleBinding {
            metadata: account.role_meta(Some(of)),
            role_ref: account.role_ref("Role", Some(of)),
            subjects: Some(account.subjects()),
        });
        Manifests {
            service_account: ServiceAccount {
                metadata: account.meta(Some(namespace), name),
                ..ServiceAccount::default()
            },
            cluster_role,
            cluster_role_binding,
            roles: roles.collect(),
            role_bindings: role_bindings.collect(),
        }
    }
}

impl Manifests {
    /// Returns all objects as JSON with `apiVersion` and `kind`, in the order to apply them.
    ///
    /// # Errors
    ///
    /// Fails if an object cannot be serialized.
    pub fn objects(&self) -> serde_json::Result<Vec<Value>> {
        let mut objects = vec![object(&self.service_account)?];
        if let Some(role) = &self.cluster_role {
            objects.push(object(role)?);
        }
        if let Some(binding) = &self.cluster_role_binding {
            objects.push(object(binding)?);
        }
        for role in &self.roles {
            objects.push(object(role)?);
        }
        for binding in &self.role_bindings {
            objects.push(object(binding)?);
        }
        Ok(objects)
    }
}

/// Adds `apiVersion` and `kind`, which typed objects may lack.
fn object<K: Resource<DynamicType = ()> + Serialize>(typed: &K) -> serde_json::Result<Value> {
    let mut object = serde_json::to_value(typed)?;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), K::api_version(&()).into());
        fields.insert("kind".to_owned(), K::kind(&()).into());
    }
    Ok(object)
}
