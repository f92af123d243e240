//! Authorization: may this user do this?
//!
//! ```text
//! request ─► authenticated ─► impersonated ─► authorized ─► api
//! ```
//!
//! Every request goes through one [`Authorizer`] before its body is read. Requests from
//! `system:masters` are always allowed and not checked. [`access`] derives the required access from
//! method and URI, without knowing whether the resource exists, so that a user without permissions
//! cannot probe. [`impersonation`] decides who a request acts as.
//!
//! The same authorizer serves access reviews and the checks of single kinds: may this user grant
//! these permissions ([`escalation`]), approve a certificate, or create an object with PUT?

pub(crate) mod access;
pub(crate) mod escalation;
pub(crate) mod impersonation;
pub(crate) mod rbac;
pub(crate) mod rule;

use std::{fmt, str::FromStr, sync::Arc};

use http::request::Parts;

pub(crate) use self::access::Access;
use self::{rbac::Grant, rule::Rule};
use crate::api::{Api, ApiError, User};

/// Decides what users may do.
pub(crate) trait Authorizer: fmt::Debug + Send + Sync {
    /// Returns whether `user` has `access`.
    fn authorize(&self, user: &User, access: &Access<'_>) -> Decision;

    /// Returns what `user` may do in a namespace.
    fn rules(&self, user: &User, namespace: &str) -> Rules;

    /// Returns true if anonymous users have limited permissions.
    fn knows_anonymous(&self) -> bool {
        true
    }
}

/// The decision of an [`Authorizer`].
#[derive(Debug)]
pub(crate) enum Decision {
    /// The user has access, because of a grant if one was needed.
    Allowed(Option<Grant>),
    /// Nothing grants access. The reason is empty unless something went wrong.
    NoOpinion(String),
}

/// The permissions of a user.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) rules: Vec<Rule>,
    /// Why permissions may be missing; empty if none are.
    pub(crate) error: String,
}

impl Decision {
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the reason as access reviews show it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Allowed(Some(grant)) => format!("RBAC: allowed by {grant}"),
            Self::Allowed(None) => String::new(),
            Self::NoOpinion(reason) => reason.clone(),
        }
    }
}

/// How requests are authorized; see [`Builder::authorization`](crate::Builder::authorization).
///
/// The names match kube-apiserver's `--authorization-mode`. Its other modes are not implemented and
/// do not parse:
///
/// ```
/// use pintle_apiserver::Authorization;
///
/// assert_eq!("RBAC".parse(), Ok(Authorization::Rbac));
/// let error = "Node".parse::<Authorization>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "authorization mode \"Node\" is not implemented; use RBAC or AlwaysAllow",
/// );
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Roles and bindings decide. `system:masters`, the group of [`User::admin`], may do
    /// everything.
    #[default]
    Rbac,
    /// Every authenticated user may do everything.
    AlwaysAllow,
}

/// An authorization mode that does not exist or is not implemented.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// kube-apiserver has this mode; this server does not.
    #[error("authorization mode {0:?} is not implemented; use RBAC or AlwaysAllow")]
    NotImplemented(String),
    /// Kubernetes has no such mode.
    #[error("unknown authorization mode {0:?}; use RBAC or AlwaysAllow")]
    Unknown(String),
}

impl FromStr for Authorization {
    type Err = AuthorizationError;

    fn from_str(mode: &str) -> Result<Self, AuthorizationError> {
        match mode {
            "RBAC" => Ok(Self::Rbac),
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "ABAC" | "AlwaysDeny" | "Node" | "Webhook" => {
                Err(AuthorizationError::NotImplemented(mode.to_owned()))
            }
            _ => Err(AuthorizationError::Unknown(mode.to_owned())),
        }
    }
}

impl Authorization {
    /// Returns the authorizer of this mode.
    pub(crate) fn authorizer(self, rbac: &Arc<rbac::Rbac>) -> Arc<dyn Authorizer> {
        match self {
            Self::Rbac => Arc::clone(rbac) as Arc<dyn Authorizer>,
            Self::AlwaysAllow => Arc::new(AlwaysAllow),
        }
    }
}

/// Allows everything.
#[derive(Debug)]
struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &User, _: &Access<'_>) -> Decision {
        Decision::Allowed(None)
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules {
            rules: Rule::everything().into(),
            error: String::new(),
        }
    }

    fn knows_anonymous(&self) -> bool {
        false
    }
}

impl Api {
    /// Returns the user that a request acts as, after checking that it may.
    ///
    /// # Errors
    ///
    /// Fails if the user may not impersonate the other user, or may not make this request.
    pub(crate) fn authorize_request(&self, parts: &Parts, user: User) -> Result<User, ApiError> {
        let user = impersonation::acting_user(self, parts, user)?;
        if !user.is_administrator() {
            let access = Access::of_request(&parts.method, &parts.uri);
            self.require(&user, &access)?;
        }
        Ok(user)
    }

    /// Returns true if requests without credentials are authorized as `system:anonymous` instead of
    /// rejected.
    pub(crate) fn allows_anonymous(&self) -> bool {
        self.authorizer.knows_anonymous()
    }

    /// Returns whether `user` has `access`.
    pub(crate) fn authorize(&self, user: &User, access: &Access<'_>) -> Decision {
        if user.is_administrator() {
            return Decision::Allowed(None);
        }
        self.authorizer.authorize(user, access)
    }

    /// Fails with 403 unless `user` has `access`.
    pub(crate) fn require(&self, user: &User, access: &Access<'_>) -> Result<(), ApiError> {
        match self.authorize(user, access) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(access.forbidden(user, &reason)),
        }
    }
}

#[cfg(test)]
mod tests;
