//! The admission chain: what may change or deny a request after it is decoded and before it is
//! stored.
//!
//! ```text
//! decode ─► admit (mutating) ─┬─► prepare, validate the schema ─► validate ─► reserve ─► commit
//!             ▲               │
//!             └── once more ──┘ if a plugin requests it
//! ```
//!
//! A link of the chain is a [`Plugin`]. Webhooks, policies, quotas and the plugins that Kubernetes
//! enables by default are implementations of it; [`plugins`] lists them in Kubernetes' order. The
//! chain itself depends on no particular plugin or kind.
//!
//! # Order
//!
//! All plugins admit before any plugin validates, each phase in [`plugins`] order. If a plugin
//! calls [`Request::reinvoke`], the admit phase runs once more, and never a third time. The first
//! error ends the chain, and with it the write.
//!
//! A plugin that charges a budget does so in the last phase, when the object has been converted to
//! the stored version and the write no longer waits for anything. If it charged earlier, a slow
//! converter could delay the object, and a controller that counts existing objects in the meantime
//! would undo the charge.
//!
//! # What a plugin sees
//!
//! [`Request`] describes the operation. Objects are in the stored form, without `apiVersion` and
//! `kind`; [`Request::served`] converts them to what the client sees. Subresources with their own
//! kind, such as `scale` and `eviction`, are admitted with an object of that kind.
//!
//! An update that loses a race against another write passes through the chain again, with the newer
//! stored object. The server's own writes bypass the chain.

mod expression;
mod plugins;
mod policy;
mod request;
mod webhook;

use std::fmt;

use futures::future::BoxFuture;

pub(crate) use self::{
    expression::{Compiler, Optional},
    policy::{Policies, apply_type, json_patch_type},
    request::{Exchanged, Operation, Reinvocation, Request, shown_name},
    webhook::{Hook, Webhooks, compile_condition},
};
use crate::{
    api::{Api, ApiError},
    meta::Tree,
};

pub use self::policy::policy_warnings;

/// The outcome of one step of a plugin.
pub(crate) type Verdict<'a> = BoxFuture<'a, Result<(), ApiError>>;

/// Wraps the outcome of a step that did not have to wait.
pub(crate) fn verdict<'a>(outcome: Result<(), ApiError>) -> Verdict<'a> {
    Box::pin(std::future::ready(outcome))
}

/// A link of the admission chain.
///
/// The chain calls [`admits`](Self::admits) and [`validates`](Self::validates) for every write of
/// every kind, and awaits the plugin only if they return true. Both must therefore be cheap:
/// compare the resource, check a flag, never scan the store.
///
/// A plugin that never waits implements [`mutate`](Self::mutate) and [`check`](Self::check). One
/// that waits, or that handles deletes, implements [`admit`](Self::admit) and
/// [`validate`](Self::validate) instead.
///
/// Plugins run concurrently for different requests, hold no lock while they wait, and may be
/// dropped at any await point if the client goes away.
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// Returns the name under which Kubernetes knows the plugin.
    fn name(&self) -> &'static str;

    /// Returns true if [`admit`](Self::admit) has to run for this write.
    fn admits(&self, api: &Api, request: &Request<'_>) -> bool {
        let _ = (api, request);
        false
    }

    /// Changes or denies a write. `object` is `None` for a delete.
    ///
    /// May run twice for one write; see [`Request::is_reinvocation`].
    fn admit<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a mut Tree>,
    ) -> Verdict<'a> {
        verdict(match object {
            Some(object) => self.mutate(api, request, object),
            None => Ok(()),
        })
    }

    /// Changes or denies the object of a write, without waiting.
    fn mutate(&self, api: &Api, request: &Request<'_>, object: &mut Tree) -> Result<(), ApiError> {
        let _ = (api, request, object);
        Ok(())
    }

    /// Returns true if users configure what [`admit`](Self::admit) changes. Such a plugin may
    /// corrupt `managedFields`, which the write path then restores.
    fn is_configured_by_users(&self) -> bool {
        false
    }

    /// Returns true if [`validate`](Self::validate) has to run for this write.
    fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        let _ = (api, request);
        false
    }

    /// Allows or denies a write whose object is final and valid. `object` is `None` for a delete.
    fn validate<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: Option<&'a Tree>,
    ) -> Verdict<'a> {
        verdict(match object {
            Some(object) => self.check(api, request, object),
            None => Ok(()),
        })
    }

    /// Allows or denies a final and valid object, without waiting.
    fn check(&self, api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
        let _ = (api, request, object);
        Ok(())
    }

    /// Returns true if [`reserve`](Self::reserve) has to run for this write.
    fn reserves(&self, api: &Api, request: &Request<'_>) -> bool {
        let _ = (api, request);
        false
    }

    /// Charges a budget for a write that is stored next, or denies the write.
    fn reserve<'a>(
        &'a self,
        api: &'a Api,
        request: &'a Request<'a>,
        object: &'a Tree,
    ) -> Verdict<'a> {
        let _ = (api, request, object);
        verdict(Ok(()))
    }
}

/// The plugins of a server, in order.
#[derive(Debug)]
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new(plugins::plugins())
    }
}

impl Chain {
    fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self { plugins }
    }

    /// Returns true if any plugin may change the write.
    pub(crate) fn admits(&self, api: &Api, request: &Request<'_>) -> bool {
        self.plugins
            .iter()
            .any(|plugin| plugin.admits(api, request))
    }

    /// Returns true if a plugin that users configure may change the write.
    pub(crate) fn admits_by_configuration(&self, api: &Api, request: &Request<'_>) -> bool {
        let mut plugins = self.plugins.iter();
        plugins.any(|plugin| plugin.is_configured_by_users() && plugin.admits(api, request))
    }

    /// Returns true if any plugin validates the write.
    pub(crate) fn validates(&self, api: &Api, request: &Request<'_>) -> bool {
        self.plugins
            .iter()
            .any(|plugin| plugin.validates(api, request))
    }

    /// Lets every plugin change the object, twice if one of them requests reinvocation.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is stored yet. A webhook may have been called.
    pub(crate) async fn admit(
        &self,
        api: &Api,
        request: &mut Request<'_>,
        mut object: Option<&mut Tree>,
    ) -> Result<(), ApiError> {
        self.admit_once(api, request, object.as_deref_mut()).await?;
        if request.start_reinvocation() {
            self.admit_once(api, request, object).await?;
        }
        Ok(())
    }

    async fn admit_once(
        &self,
        api: &Api,
        request: &Request<'_>,
        mut object: Option<&mut Tree>,
    ) -> Result<(), ApiError> {
        for plugin in &self.plugins {
            if plugin.admits(api, request) {
                let admitted = plugin.admit(api, request, object.as_deref_mut()).await;
                admitted.inspect_err(|error| refused(&**plugin, error))?;
            }
        }
        Ok(())
    }

    /// Lets every plugin validate the final object.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is stored yet. A webhook may have been called.
    pub(crate) async fn validate(
        &self,
        api: &Api,
        request: &Request<'_>,
        object: Option<&Tree>,
    ) -> Result<(), ApiError> {
        for plugin in &self.plugins {
            if plugin.validates(api, request) {
                let validated = plugin.validate(api, request, object).await;
                validated.inspect_err(|error| refused(&**plugin, error))?;
            }
        }
        Ok(())
    }

    /// Returns true if any plugin charges a budget for the write.
    pub(crate) fn reserves(&self, api: &Api, request: &Request<'_>) -> bool {
        self.plugins
            .iter()
            .any(|plugin| plugin.reserves(api, request))
    }

    /// Lets every plugin charge its budget for the write.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, a budget may be charged for a write that is not
    /// stored.
    pub(crate) async fn reserve(
        &self,
        api: &Api,
        request: &Request<'_>,
        object: &Tree,
    ) -> Result<(), ApiError> {
        for plugin in &self.plugins {
            if plugin.reserves(api, request) {
                let reserved = plugin.reserve(api, request, object).await;
                reserved.inspect_err(|error| refused(&**plugin, error))?;
            }
        }
        Ok(())
    }
}

fn refused(plugin: &dyn Plugin, error: &ApiError) {
    let (plugin, why) = (plugin.name(), error.message());
    tracing::debug!(plugin, why, "admission denied a request");
}

#[cfg(test)]
mod tests;
