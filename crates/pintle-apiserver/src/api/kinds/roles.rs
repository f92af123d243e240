//! Roles and bindings: the authorizer follows them, and no user may grant permissions it
//! does not have.

use serde_json::Value;

use super::Kind;
use crate::{
    api::{Api, ApiError, User, write::Attributes},
    authz::{escalation::Grants, rbac::RbacKind},
    meta::Tree,
    store::Object,
};

impl Kind for RbacKind {
    fn check_permissions(
        &self,
        api: &Api,
        user: &User,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        let grants = Grants {
            kind: *self,
            namespace: write.namespace.unwrap_or_default(),
            name: write.name,
            old: stored,
            new: object,
        };
        api.check_escalation(user, &grants)
    }

    /// Only an aggregated role needs a controller, which collects its rules.
    fn needs_controller(&self, object: &Tree) -> bool {
        object
            .get("aggregationRule")
            .is_some_and(|rule| *rule != Value::Null)
    }

    fn after_write(&self, api: &Api, object: &Object) {
        api.rbac.refresh(*self, &object.key);
    }

    fn after_delete(&self, api: &Api, object: &Object) {
        api.rbac.refresh(*self, &object.key);
    }
}
