//! Admission policies and their bindings: they take effect with the write that stores them, and a
//! user must be able to read the parameters that they refer to.

use serde_json::Value;

use super::Kind;
use crate::{
    api::{
        Api, ApiError, User,
        write::{Attributes, Part},
    },
    authz::access::{Access, Resource},
    meta::{self, Tree},
    schema::field::{FieldError, Path},
    store::{Object, key_of},
};

/// One of the four kinds of policies and bindings.
#[derive(Debug)]
pub(super) struct AdmissionPolicies {
    mutating: bool,
    binding: bool,
}

pub(super) const fn kind(mutating: bool, binding: bool) -> AdmissionPolicies {
    AdmissionPolicies { mutating, binding }
}

impl Kind for AdmissionPolicies {
    fn compiles(&self) -> bool {
        !self.binding
    }

    fn knows_plain_finalizers(&self) -> bool {
        false
    }

    fn after_write(&self, api: &Api, object: &Object) {
        let phase = api.policies.phase(self.mutating);
        phase.refresh(api, self.binding, object.name());
    }

    fn after_delete(&self, api: &Api, object: &Object) {
        self.after_write(api, object);
    }

    fn check_permissions(
        &self,
        api: &Api,
        user: &User,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        // A write to the status leaves the stored spec unchanged.
        if write.part != Part::Main {
            return Ok(());
        }
        let spec = |tree: &Tree| tree.get("spec").cloned().unwrap_or_default();
        let (new, old) = (spec(object), stored.map(spec).unwrap_or_default());
        let refused = if self.binding {
            self.may_use(api, user, &new, &old)
        } else {
            may_read(api, user, &new, &old)
        };
        let Err(why) = refused else {
            return Ok(());
        };
        let field = if self.binding {
            "paramRef"
        } else {
            "paramKind"
        };
        let at = Path::At("spec");
        let errors = vec![FieldError::forbidden(at.child(field), why)];
        let resource = write.resource;
        let name = meta::text(object, "name");
        Err(ApiError::invalid(
            &resource.group,
            &resource.kind,
            name,
            errors,
        ))
    }
}

/// Returns the group and plural of a parameter kind; the plural of an unknown kind is `*`.
fn resolved(api: &Api, param_kind: &Value) -> (String, String) {
    let text = |field: &str| param_kind[field].as_str().unwrap_or_default();
    let of = text("apiVersion");
    let (group, version) = of.split_once('/').unwrap_or(("", of));
    let catalog = api.registry.catalog();
    let mut resources = catalog.of_version(group, version);
    let found = resources.find(|resource| resource.kind == text("kind"));
    let plural = found.map_or("*", |resource| &resource.plural);
    (group.to_owned(), plural.to_owned())
}

/// Formats a user as in kube-apiserver's messages.
fn shown(user: &User) -> String {
    format!(
        "&{{{} {} [{}] map[]}}",
        user.name,
        user.uid,
        user.groups.join(" ")
    )
}

/// Checks that a user may read all parameters of the kind that a policy names.
fn may_read(api: &Api, user: &User, new: &Value, old: &Value) -> Result<(), String> {
    let kind = &new["paramKind"];
    if kind.is_null() || *kind == old["paramKind"] {
        return Ok(());
    }
    let (group, plural) = resolved(api, kind);
    let resource = Resource {
        group: group.into(),
        plural: plural.into(),
        namespace: "*".into(),
        name: "*".into(),
        ..Resource::default()
    };
    if api
        .authorize(user, &Access::to("get", resource))
        .is_allowed()
    {
        return Ok(());
    }
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, \
         apiVersion={})",
        shown(user),
        text("kind"),
        text("apiVersion")
    ))
}

impl AdmissionPolicies {
    /// Checks that a user may read the parameters that a binding names or selects.
    fn may_use(&self, api: &Api, user: &User, new: &Value, old: &Value) -> Result<(), String> {
        let wanted = &new["paramRef"];
        if wanted.is_null()
            || (*wanted == old["paramRef"] && new["policyName"] == old["policyName"])
        {
            return Ok(());
        }
        let plural = if self.mutating {
            "mutatingadmissionpolicies"
        } else {
            "validatingadmissionpolicies"
        };
        let policy_name = new["policyName"].as_str().unwrap_or_default();
        let collection = api
            .registry
            .builtin_collection("admissionregistration.k8s.io", plural);
        let policy = collection
            .and_then(|collection| api.store.get(collection, &key_of(None, policy_name)))
            .map(|stored| Value::Object(stored.decode()));
        let kind = policy.as_ref().map(|policy| &policy["spec"]["paramKind"]);
        let (group, plural) = match kind {
            Some(kind) if !kind.is_null() => resolved(api, kind),
            _ => ("*".to_owned(), "*".to_owned()),
        };
        let text = |field: &str| wanted[field].as_str().unwrap_or_default();
        let verb = if text("name").is_empty() {
            "list"
        } else {
            "get"
        };
        let unresolved = plural == "*";
        let resource = Resource {
            group: group.into(),
            plural: plural.into(),
            namespace: text("namespace").into(),
            name: text("name").into(),
            ..Resource::default()
        };
        if api
            .authorize(user, &Access::to(verb, resource))
            .is_allowed()
        {
            return Ok(());
        }
        let user = shown(user);
        let all = "permission for all groups, versions and resources";
        Err(match kind {
            None => format!(
                "unable to get policy {policy_name} to determine minimum required permissions and \
                 user {user} does not have \"{verb}\" {all}"
            ),
            Some(kind) if unresolved && !kind.is_null() => format!(
                "unable to resolve paramKind {}, Kind={} to determine minimum required permissions \
                 and user {user} does not have \"{verb}\" {all}",
                kind["apiVersion"].as_str().unwrap_or_default(),
                kind["kind"].as_str().unwrap_or_default()
            ),
            _ => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        })
    }
}
