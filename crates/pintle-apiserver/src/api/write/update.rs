//! PUT of an object or one of its subresources.

use super::{
    Managers, Part,
    change::{uid_mismatch, version_required},
    prepare::dedupe_owners,
    set_namespace,
};
use crate::{
    api::{Answer, Api, ApiError, Call},
    meta::{self, Tree},
};

impl Api {
    /// Handles PUT of an object or one of its subresources.
    pub(crate) async fn update(&self, call: &Call, sub: &str) -> Answer {
        let options = call.write_options("UpdateOptions")?;
        let resource = &call.target.resource;
        let mut object = call.object(&options)?;
        set_namespace(resource, call.target.namespace.as_deref(), &mut object)?;
        dedupe_owners(&mut object, &options.warnings, "");
        let name = call.target.name.as_deref().unwrap_or_default();
        let found = meta::text(&object, "name");
        if found.is_empty() && sub.is_empty() {
            return Err(ApiError::bad_request("name must be provided"));
        }
        if !found.is_empty() && found != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({name})"
            )));
        }
        meta::metadata(&mut object).insert("name".into(), name.into());
        if self.store.get(call.collection()?, &call.key()).is_none() {
            if !(resource.create_on_update && sub.is_empty()) {
                return Err(call.missing());
            }
            let uid = meta::text(&object, "uid");
            if !uid.is_empty() {
                return Err(uid_mismatch(resource, &call.key(), name, uid, ""));
            }
            let mut new = object.clone();
            meta::metadata(&mut new).remove("resourceVersion");
            self.require_create(call)?;
            let write = call.create_of(&options, Managers::Record);
            match self.create_object(&write, new).await {
                // Another client created it first: update that object instead.
                Err(error) if error.is_taken() => {}
                created => return created?.answer(201, call, self).await,
            }
        }
        if !names_version(&object) && !resource.unconditional_update {
            return Err(version_required(resource, name));
        }
        let write = call.update_of(Part::of(sub), &options, Managers::Record);
        let written = self.change(&write, &mut |_| Ok(object.clone())).await?;
        written.answer(200, call, self).await
    }
}

/// Returns true if an object names the `resourceVersion` it replaces; `0` names none.
fn names_version(object: &Tree) -> bool {
    let version = meta::text(object, "resourceVersion");
    !version.is_empty() && version.parse() != Ok(0_u64)
}
