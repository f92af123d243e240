//! Admission: the two places where a write can be changed or refused by policy.
//!
//! Both see the whole write: the stored object, the new one, the user, the operation and the options.
//! Both may await. Nothing is committed yet, and an update that loses a race passes both again with
//! the newer stored object. Writes of the server itself have no user and are not admitted.
//!
//! Today only the plugins that Kubernetes enables by default and that this server implements run
//! here, as hooks of their kind.

use serde_json::Value;

use super::{Attributes, Operation, validate};
use crate::{
    api::{Api, ApiError},
    meta::Tree,
};

impl Api {
    /// Runs mutating admission on the new state of an object.
    ///
    /// A create passes here before its name is generated.
    #[expect(
        clippy::unused_async,
        reason = "admission plugins may call other servers"
    )]
    pub(super) async fn mutate(
        &self,
        write: &Attributes<'_>,
        old: Option<&Tree>,
        new: &mut Tree,
    ) -> Result<(), ApiError> {
        if write.user.is_none() {
            return Ok(());
        }
        match (write.operation, old) {
            (Operation::Create, None) => {
                let namespace = write.namespace.unwrap_or_default();
                write.resource.hooks.admit(self, namespace, new)
            }
            _ => Ok(()),
        }
    }

    /// Validates a write, then runs validating admission. `new` is `None` for a delete.
    ///
    /// What the server itself writes is validated too, because everything that is stored must be
    /// valid; only admission is skipped.
    #[expect(
        clippy::unused_async,
        reason = "admission plugins may call other servers"
    )]
    pub(super) async fn validate(
        &self,
        write: &Attributes<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), ApiError> {
        if let Some(new) = new {
            validate::object(write, new, old)?;
        }
        if write.user.is_none() {
            return Ok(());
        }
        match write.operation {
            Operation::Delete => write.resource.hooks.check_delete(write.name),
            Operation::Create | Operation::Update => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
