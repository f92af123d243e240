//! The `authorizer` variable of expressions, backed by the server's authorizer.

use std::sync::Arc;

use pintle_cel::{Access, AccessDecision, Checked};

use crate::{
    api::{Api, User},
    authz::{
        self, Authorizer,
        access::{Resource, What},
    },
};

/// Checks the permissions of a request's user, or of service accounts.
#[derive(Debug)]
pub(super) struct Asked {
    authorizer: Arc<dyn Authorizer>,
    user: User,
}

impl Asked {
    pub(super) fn new(api: &Api, user: &User) -> Self {
        Self {
            authorizer: Arc::clone(&api.authorizer),
            user: user.clone(),
        }
    }
}

impl pintle_cel::Authorizer for Asked {
    /// RBAC ignores selectors, so the selectors of a check have no effect, as in kube-apiserver.
    fn authorize(&self, check: &Checked) -> AccessDecision {
        let account;
        let user = match &check.service_account {
            Some((namespace, name)) => {
                account = User::service_account(namespace, name);
                &account
            }
            None => &self.user,
        };
        if user.is_administrator() {
            return AccessDecision {
                allowed: true,
                ..AccessDecision::default()
            };
        }
        let what = match &check.access {
            Access::Path(path) => What::Path(path.into()),
            Access::Resource(access) => What::Resource(Resource {
                group: (&access.group).into(),
                plural: (&access.resource).into(),
                sub: (&access.subresource).into(),
                namespace: (&access.namespace).into(),
                name: (&access.name).into(),
            }),
        };
        let access = authz::Access {
            verb: (&check.verb).into(),
            what,
        };
        let decision = self.authorizer.authorize(user, &access);
        AccessDecision {
            allowed: decision.is_allowed(),
            reason: decision.reason(),
            error: None,
        }
    }
}
