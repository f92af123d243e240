//! Behaviour specific to single kinds.
//!
//! Verbs are generic over kinds: they never check which kind they work on. Where a built-in kind
//! needs special code, its module implements the hooks of [`Kind`] it needs, and [`find`] lists it.
//! The registry looks the hooks up once, when it registers the resource, so a request compares no
//! names.
//!
//! A write calls its main hooks in this order; see [`write`](super::write) for the whole path:
//!
//! ```text
//! create   complete ─► check_permissions ─► prepare_create ─► allocate ─► validate ─► warn ─► (commit) ─► after_write
//! update                check_permissions ─► allocate ─► prepare_update ─► validate ─► warn ─► (commit) ─► after_write
//! delete   check_delete ─► prepare_delete ─► (commit) ─► after_mark or after_delete
//! ```

mod admission_policies;
pub(crate) mod api_services;
mod bindings;
pub(crate) mod component_statuses;
pub(crate) mod definitions;
pub(crate) mod endpoints;
pub(crate) mod events;
mod fields;
pub(crate) mod idle;
pub(crate) mod namespaces;
mod nodes;
pub(crate) mod pods;
pub(crate) mod properties;
mod resource_claims;
mod reviews;
mod roles;
pub(crate) mod service_accounts;
pub(crate) mod services;
mod signing_requests;
mod volumes;
mod webhook_configurations;
mod workloads;

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, ready};
use pintle_clock::Clock;

use crate::{
    api::{
        Answer, Api, ApiError, Call, User,
        request::options::Warnings,
        write::{Attributes, Part},
    },
    authz::rbac::RbacKind,
    meta::{NameRule, Tree},
    patch::apply::FieldSet,
    registry::served_versions::Conversion,
    schema::field::FieldError,
    store::Object,
};

/// The hooks of one kind. The defaults are right for most kinds.
pub(crate) trait Kind: fmt::Debug + Send + Sync {
    // Any request.

    /// Returns the warning that every response about this kind carries.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if objects of this kind are namespaces: admission treats such an object as part
    /// of the namespace it defines.
    fn is_namespace(&self) -> bool {
        false
    }

    // The stored form.

    /// Returns how a served version differs from the stored one. Called once per resource.
    fn conversion(&self, version: &str) -> Option<Conversion> {
        let _ = version;
        None
    }

    /// Returns the directory of kube-apiserver's etcd keys, if it is not the plural.
    fn storage_dir(&self) -> Option<&'static str> {
        None
    }

    // Reads.

    /// Handles GET and LIST of a kind whose objects are computed instead of stored.
    fn read(&self, api: &Api, call: &Call) -> Option<Answer> {
        let _ = (api, call);
        None
    }

    /// Runs before a list reads the store.
    fn before_list(&self, api: &Api) {
        let _ = api;
    }

    // Creates.

    /// Handles POST of a kind that is never stored.
    fn create_unstored<'a>(&'a self, api: &'a Api, call: &'a Call) -> BoxFuture<'a, Answer> {
        let _ = api;
        Box::pin(ready(Err(call.not_stored())))
    }

    /// Returns true for access reviews, which must not reveal whether a namespace exists.
    fn is_review(&self) -> bool {
        false
    }

    /// Sets fields of a new object that its writer will manage.
    fn complete(&self, object: &mut Tree) {
        let _ = object;
    }

    /// Records the user that creates an object. Runs after mutating admission, so that no webhook
    /// can name another user.
    fn set_requester(&self, object: &mut Tree, user: &User) {
        let _ = (object, user);
    }

    /// Checks permissions to this particular object, beyond those the request itself needs. Runs
    /// after mutating admission and before the object is prepared and validated.
    fn check_permissions(
        &self,
        api: &Api,
        user: &User,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        let _ = (api, user, write, object, stored);
        Ok(())
    }

    /// Returns true if the status of a new object is reset, given that `status` is a subresource.
    fn resets_status(&self) -> bool {
        true
    }

    /// Sets fields of a new object that only the server sets. Its status has been reset; defaults
    /// are applied again afterwards, because the fields set here may imply others.
    fn prepare_create(&self, object: &mut Tree, now: &str) {
        let _ = (object, now);
    }

    // Updates.

    /// Restores, from the stored object, the fields that this write may not change.
    fn prepare_update(&self, part: Part, object: &mut Tree, stored: &Tree, clock: &Clock) {
        let _ = (part, object, stored, clock);
    }

    /// Returns the fields that a write of this subresource does not own, if they differ from the
    /// default.
    fn reset_fields(&self, sub: &str) -> Option<FieldSet> {
        let _ = sub;
        None
    }

    // Creates and updates.

    /// Allocates values for the object from a shared pool. The result must be held until the write
    /// has committed or failed.
    fn allocate(
        &self,
        api: &Api,
        object: &mut Tree,
        stored: Option<&Tree>,
    ) -> Result<Option<services::Reservation>, ApiError> {
        let _ = (api, object, stored);
        Ok(None)
    }

    /// Returns the rule for names of objects that are created, or updated if `stored`.
    fn name_rule(&self, stored: bool) -> Option<NameRule> {
        let _ = stored;
        None
    }

    /// Returns the group that validation errors name, if it differs from the request's.
    fn error_group(&self) -> Option<&'static str> {
        None
    }

    /// Validates what neither the schema nor the rules of the kind can express. `errors` holds the
    /// errors they found.
    fn validate(
        &self,
        part: Part,
        object: &Tree,
        stored: Option<&Tree>,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ApiError> {
        let _ = (part, object, stored, errors);
        Ok(())
    }

    /// Returns true if objects contain schemas or expressions, so that large ones take long to
    /// validate.
    fn compiles(&self) -> bool {
        false
    }

    /// Returns true if finalizers without a path must be those that Kubernetes itself uses.
    /// Upstream checks that only for the kinds of its core packages.
    fn knows_plain_finalizers(&self) -> bool {
        true
    }

    /// Adds warnings about an accepted object; `stored` is the object it replaces, if any.
    fn warn(&self, object: &Tree, stored: Option<&Tree>, warnings: &Warnings) {
        let _ = (object, stored, warnings);
    }

    /// Returns false for an object that needs no work from the controller of its kind.
    fn needs_controller(&self, object: &Tree) -> bool {
        let _ = object;
        true
    }

    /// Runs after an object was created or updated.
    fn after_write(&self, api: &Api, object: &Object) {
        let _ = (api, object);
    }

    // Deletes.

    /// Returns true if dependents are orphaned unless the request says otherwise.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Returns the warning for a deletion that names no propagation policy.
    fn delete_warning(&self) -> Option<&'static str> {
        None
    }

    /// Checks by name whether an object may be deleted.
    fn check_delete(&self, name: &str) -> Result<(), ApiError> {
        let _ = name;
        Ok(())
    }

    /// Changes an object that is being deleted. Also runs when an earlier request marked it.
    fn prepare_delete(&self, object: &mut Tree, clock: &Clock) {
        let _ = (object, clock);
    }

    /// Returns the grace period of an object, in seconds.
    fn grace(&self, object: &Tree, requested: Option<i64>) -> i64 {
        let _ = (object, requested);
        0
    }

    /// Returns true for kinds whose deletion sets neither a grace period nor the generation.
    fn has_own_lifecycle(&self) -> bool {
        false
    }

    /// Returns true if the last state of a deleted object carries the deletion timestamp.
    fn keeps_deletion_mark(&self) -> bool {
        false
    }

    /// Returns true if something other than finalizers and grace holds an object that is being
    /// deleted.
    fn is_held(&self, object: &Tree) -> bool {
        let _ = object;
        false
    }

    /// Runs after an object was marked for deletion.
    fn after_mark(&self, api: &Arc<Api>, object: &Object) {
        let _ = (api, object);
    }

    /// Runs after an object is gone.
    fn after_delete(&self, api: &Api, object: &Object) {
        let _ = (api, object);
    }
}

/// A kind without special behaviour: most built-in kinds and every custom resource.
#[derive(Debug)]
struct Plain;

impl Kind for Plain {}

/// The hooks of kinds without special behaviour.
pub(crate) const PLAIN: &dyn Kind = &Plain;

/// Returns the hooks of a built-in resource.
pub(crate) fn find(group: &str, plural: &str) -> &'static dyn Kind {
    match (group, plural) {
        ("", "bindings") => &bindings::Bindings,
        ("", "componentstatuses") => &component_statuses::ComponentStatuses,
        ("", "endpoints") => &endpoints::Endpoints,
        ("", "events") => &events::CoreEvents,
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "persistentvolumeclaims") => &volumes::PersistentVolumeClaims,
        ("", "serviceaccounts") => &service_accounts::ServiceAccounts,
        ("", "persistentvolumes") => &volumes::PersistentVolumes,
        ("", "pods") => &pods::Pods,
        ("", "replicationcontrollers") => &workloads::ReplicationControllers,
        ("", "services") => &services::Services,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            &const { admission_policies::kind(true, false) }
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => {
            &const { admission_policies::kind(true, true) }
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            &const { admission_policies::kind(false, false) }
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            &const { admission_policies::kind(false, true) }
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => {
            &webhook_configurations::MUTATING
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            &webhook_configurations::VALIDATING
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definitions::Definitions,
        ("apiregistration.k8s.io", "apiservices") => &api_services::ApiServices,
        ("apps", "daemonsets") => &workloads::DaemonSets,
        ("apps", "deployments") => &workloads::Deployments,
        ("apps", "statefulsets") => &workloads::StatefulSets,
        ("authentication.k8s.io", "selfsubjectreviews") => &reviews::Review::SelfSubject,
        ("authentication.k8s.io", "tokenreviews") => &reviews::Review::Token,
        ("authorization.k8s.io", "selfsubjectaccessreviews") => &reviews::Review::SelfAccess,
        ("authorization.k8s.io", "selfsubjectrulesreviews") => &reviews::Review::SelfRules,
        ("authorization.k8s.io", "localsubjectaccessreviews" | "subjectaccessreviews") => {
            &reviews::Review::Access
        }
        ("autoscaling", "horizontalpodautoscalers") => &workloads::Autoscalers,
        ("batch", "jobs") => &workloads::Jobs,
        ("certificates.k8s.io", "certificatesigningrequests") => &signing_requests::SigningRequests,
        ("events.k8s.io", "events") => &events::Events,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => &RbacKind::ClusterRoleBinding,
        ("rbac.authorization.k8s.io", "clusterroles") => &RbacKind::ClusterRole,
        ("rbac.authorization.k8s.io", "rolebindings") => &RbacKind::RoleBinding,
        ("rbac.authorization.k8s.io", "roles") => &RbacKind::Role,
        ("resource.k8s.io", "resourceclaims") => &resource_claims::ResourceClaims,
        ("resource.k8s.io", "resourceclaimtemplates") => &resource_claims::ResourceClaimTemplates,
        _ => PLAIN,
    }
}
