//! Runs the [admission chain](crate::admission) for writes.
//!
//! Every write is mutated and validated: a create or an update on its way to the store, a delete
//! before it marks the object, and a subresource that stores nothing, such as `binding`, before it
//! acts. What is stored also passes the reserve phase, last. The server's own writes have no user
//! and skip the chain, but their objects are validated, because everything that is stored must be
//! valid.

use serde_json::Value;

use super::{Attributes, Operation, set_namespace, validate};
use crate::{
    admission::{Exchanged, Request},
    api::{Api, ApiError, Call, User, WriteOptions},
    meta::{self, Tree},
};

impl Api {
    /// Runs the admit phase on the new state of an object.
    ///
    /// For a create, this runs before the name is generated.
    pub(super) async fn mutate(
        &self,
        write: &Attributes<'_>,
        old: Option<&Tree>,
        new: &mut Tree,
    ) -> Result<(), ApiError> {
        let Some(user) = write.user else {
            return Ok(());
        };
        let resource = write.resource;
        let name = name_of(write, new);
        let mut request = request(write, user, &name, old);
        if !self.admission.admits(self, &request) {
            return Ok(());
        }
        let Some(projection) = write.projection else {
            // Copying and comparing managedFields is expensive.
            let may_corrupt = self.admission.admits_by_configuration(self, &request);
            let before = may_corrupt.then(|| managers(new).cloned());
            self.admission.admit(self, &mut request, Some(new)).await?;
            if let Some(before) = before
                && let Some(why) = keep_valid_managers(new, before)
            {
                write.options.warnings.add(format!(
                    ".metadata.managedFields was in an invalid state after admission; this could \
                     be caused by an outdated mutating admission controller; please fix your \
                     requests: {why}"
                ));
            }
            return set_namespace(resource, write.namespace, new);
        };
        let shown_old = old.map(|old| (projection.show)(resource, old));
        let mut shown = (projection.show)(resource, new);
        request.old = shown_old.as_ref();
        request.exchanged = Some(projection.kind);
        self.admission
            .admit(self, &mut request, Some(&mut shown))
            .await?;
        *new = (projection.merge)(resource, std::mem::take(new), &shown)?;
        Ok(())
    }

    /// Validates the new state of an object, then runs the validate phase.
    pub(super) async fn validate(
        &self,
        write: &Attributes<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), ApiError> {
        validate::object(write, new, old).await?;
        let Some(user) = write.user else {
            return Ok(());
        };
        let (new, old) = (meta::tree(new), old.map(meta::tree));
        let name = name_of(write, new);
        let mut request = request(write, user, &name, old);
        if !self.admission.validates(self, &request) {
            return Ok(());
        }
        let Some(projection) = write.projection else {
            return self.admission.validate(self, &request, Some(new)).await;
        };
        let shown_old = old.map(|old| (projection.show)(write.resource, old));
        let shown = (projection.show)(write.resource, new);
        request.old = shown_old.as_ref();
        request.exchanged = Some(projection.kind);
        self.admission.validate(self, &request, Some(&shown)).await
    }

    /// Returns true if a plugin charges a budget for the write.
    pub(super) fn reserves(&self, write: &Attributes<'_>, old: Option<&Tree>) -> bool {
        write.user.is_some_and(|user| {
            let mut request = request(write, user, write.name, old);
            request.exchanged = write.projection.map(|projection| projection.kind);
            self.admission.reserves(self, &request)
        })
    }

    /// Runs the reserve phase on an object that is about to be stored.
    pub(super) async fn reserve(
        &self,
        write: &Attributes<'_>,
        old: Option<&Tree>,
        new: &Tree,
    ) -> Result<(), ApiError> {
        let Some(user) = write.user else {
            return Ok(());
        };
        let name = name_of(write, new);
        let mut request = request(write, user, &name, old);
        let Some(projection) = write.projection else {
            return self.admission.reserve(self, &request, new).await;
        };
        let shown_old = old.map(|old| (projection.show)(write.resource, old));
        let shown = (projection.show)(write.resource, new);
        request.old = shown_old.as_ref();
        request.exchanged = Some(projection.kind);
        self.admission.reserve(self, &request, &shown).await
    }

    /// Runs both phases on a delete. `name` is the name in the path.
    pub(super) async fn admit_delete(
        &self,
        write: &Attributes<'_>,
        name: &str,
        old: &Tree,
    ) -> Result<(), ApiError> {
        let Some(user) = write.user else {
            return Ok(());
        };
        write.resource.hooks.check_delete(write.name)?;
        let mut request = request(write, user, name, Some(old));
        if self.admission.admits(self, &request) {
            self.admission.admit(self, &mut request, None).await?;
        }
        if self.admission.validates(self, &request) {
            self.admission.validate(self, &request, None).await?;
        }
        Ok(())
    }

    /// Runs both phases on an object that is acted on and never stored: a binding, an eviction, the
    /// options of a connect.
    pub(crate) async fn admit_unstored(
        &self,
        write: &Unstored<'_>,
        object: &mut Tree,
    ) -> Result<(), ApiError> {
        self.mutate_unstored(write, object).await?;
        self.validate_unstored(write, object).await
    }

    /// Runs the admit phase on an object that is never stored.
    pub(crate) async fn mutate_unstored(
        &self,
        write: &Unstored<'_>,
        object: &mut Tree,
    ) -> Result<(), ApiError> {
        let name = write.name(object);
        let mut request = write.request(&name);
        let resource = request.resource;
        if write.operation == Operation::Create && !resource.hooks.is_review() {
            self.check_namespace(resource, request.namespace, &name)?;
        }
        if self.admission.admits(self, &request) {
            let admitted = self.admission.admit(self, &mut request, Some(object));
            admitted.await?;
        }
        Ok(())
    }

    /// Runs the validate phase on an object that is never stored.
    pub(crate) async fn validate_unstored(
        &self,
        write: &Unstored<'_>,
        object: &Tree,
    ) -> Result<(), ApiError> {
        let name = write.name(object);
        let request = write.request(&name);
        if self.admission.validates(self, &request) {
            let validated = self.admission.validate(self, &request, Some(object));
            validated.await?;
        }
        Ok(())
    }
}

/// A request with an object that is acted on and never stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unstored<'a> {
    pub(crate) call: &'a Call,
    pub(crate) operation: Operation,
    pub(crate) kind: Exchanged<'a>,
    pub(crate) options: &'a WriteOptions,
}

impl Unstored<'_> {
    /// Returns the name in the path, or else the object's name.
    fn name(&self, object: &Tree) -> String {
        let name = self.call.target.name.as_deref();
        name.unwrap_or_else(|| meta::text(object, "name"))
            .to_owned()
    }

    /// Describes the request to the chain.
    fn request<'a>(&'a self, name: &'a str) -> Request<'a> {
        let target = &self.call.target;
        Request {
            operation: self.operation,
            resource: &target.resource,
            sub: target.sub.as_deref().unwrap_or_default(),
            exchanged: Some(self.kind),
            namespace: target.namespace.as_deref(),
            name,
            user: &self.call.user,
            options: self.options,
            old: None,
            reinvocation: crate::admission::Reinvocation::default(),
        }
    }
}

fn managers(object: &Tree) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Restores the field managers if a plugin broke them, and returns why they cannot be decoded.
fn keep_valid_managers(object: &mut Tree, before: Option<Value>) -> Option<String> {
    let now = managers(object);
    if now == before.as_ref() {
        return None;
    }
    let problem = match now? {
        Value::Array(entries) => {
            let mut entries = entries.iter().enumerate();
            entries.find_map(|(i, entry)| manager_problem(i, entry))
        }
        _ => Some("a list is expected".to_owned()),
    }?;
    let metadata = meta::metadata(object);
    match before {
        Some(before) => metadata.insert("managedFields".into(), before),
        None => metadata.remove("managedFields"),
    };
    Some(problem)
}

/// Returns why an entry of the field managers cannot be decoded, in upstream's words.
fn manager_problem(index: usize, entry: &Value) -> Option<String> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    Some(match text("fieldsType") {
        _ if !matches!(text("operation"), "Apply" | "Update") => {
            "operation must be `Apply` or `Update`".to_owned()
        }
        _ if text("apiVersion").is_empty() => "apiVersion must not be empty".to_owned(),
        "" => format!("missing fieldsType in managed fields entry {index}"),
        "FieldsV1" if entry["fieldsV1"].is_object() => return None,
        "FieldsV1" => format!("error decoding the fields of managed fields entry {index}"),
        other => format!("invalid fieldsType {other:?} in managed fields entry {index}"),
    })
}

/// Returns the name of the object: from the object for a create, otherwise from the path.
fn name_of(write: &Attributes<'_>, object: &Tree) -> String {
    let name = match write.operation {
        Operation::Create => meta::text(object, "name"),
        _ => write.name,
    };
    name.to_owned()
}

/// Describes a write of an object to the chain.
fn request<'a>(
    write: &Attributes<'a>,
    user: &'a User,
    name: &'a str,
    old: Option<&'a Tree>,
) -> Request<'a> {
    let own = write.resource.hooks.is_namespace().then_some(name);
    Request {
        operation: write.operation,
        resource: write.resource,
        sub: write.sub,
        exchanged: None,
        namespace: write.namespace.or(own),
        name,
        user,
        options: write.options,
        old,
        reinvocation: crate::admission::Reinvocation::default(),
    }
}

#[cfg(test)]
mod tests;
