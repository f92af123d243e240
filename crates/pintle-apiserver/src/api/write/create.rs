//! Creates.

use std::sync::Arc;

use futures::FutureExt;

use super::{
    Attributes, Managers, Operation, Part, Written,
    commit::{CommitError, drop_managers_if_too_large},
    prepare::{AFTER_ADMISSION, dedupe_owners},
    set_namespace, wipe_system_metadata,
};
use crate::{
    admission::shown_name,
    api::{Answer, Api, ApiError, Call, request::options::WriteOptions},
    meta::{self, Tree, names::random_suffix},
    registry::Resource,
    store::{Change, Expect, key_of},
};

/// How many generated names are tried before giving up.
const NAME_TRIES: usize = 8;
/// The maximum length of a generated name's prefix.
const MAX_PREFIX: usize = 58;

impl Api {
    /// Handles POST of a collection.
    pub(crate) async fn create(&self, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let mut object = call.object(&options)?;
        dedupe_owners(&mut object, &options.warnings, "");
        let write = call.create_of(&options, Managers::Record);
        let written = self.create_object(&write, object).await?;
        written.answer(201, call, self).await
    }

    /// Creates an object on the server's own behalf.
    pub(crate) fn create_unasked(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        object: Tree,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let write = Attributes {
            operation: Operation::Create,
            verb: "create",
            resource,
            namespace,
            name: "",
            sub: "",
            part: Part::Main,
            user: None,
            options,
            managers: Managers::Record,
            projection: None,
        };
        // For built-in kinds only admission waits for anything, and writes without a user skip it.
        let created = self.create_object(&write, object).now_or_never();
        created.unwrap_or_else(|| Err(ApiError::internal("create has to wait for admission")))
    }

    /// Creates an object, under a generated name if it has only a prefix.
    pub(super) async fn create_object(
        &self,
        write: &Attributes<'_>,
        mut object: Tree,
    ) -> Result<Written, ApiError> {
        let Attributes {
            resource,
            namespace,
            options,
            ..
        } = *write;
        let collection = resource
            .collection
            .ok_or_else(|| ApiError::not_implemented(&format!("{} objects", resource.kind)))?;
        set_namespace(resource, namespace, &mut object)?;
        // Upstream rejects a resourceVersion in the storage layer: after validation, and never for
        // a dry run. "0" and values that do not parse count as unset.
        let version = meta::text(&object, "resourceVersion").parse::<u64>();
        let version = version.ok().filter(|version| *version != 0);
        let given = meta::text(&object, "name").to_owned();
        options.audit.name(&given);
        self.check_namespace(resource, namespace, shown_name(&object))?;
        let custom = resource.custom.as_ref();
        if custom.is_some_and(|custom| custom.terminating) {
            return Err(definition_terminating(resource, &given));
        }
        wipe_system_metadata(&mut object);
        resource.hooks.complete(&mut object);
        if write.managers == Managers::Record {
            self.record_write(write, None, &mut object).await;
        }
        self.mutate(write, None, &mut object).await?;
        dedupe_owners(&mut object, &options.warnings, AFTER_ADMISSION);
        if let Some(user) = write.user {
            resource.hooks.set_requester(&mut object, user);
        }
        self.check_permissions(write, &object, None)?;
        // Admission may have set them.
        let given = meta::text(&object, "name").to_owned();
        let prefix = meta::text(&object, "generateName").to_owned();
        let tries = if given.is_empty() && !prefix.is_empty() {
            NAME_TRIES
        } else {
            1
        };
        let mut name = given;
        for attempt in 1..=tries {
            let mut new = if attempt == tries {
                std::mem::take(&mut object)
            } else {
                object.clone()
            };
            if tries > 1 {
                let cut: String = prefix.chars().take(MAX_PREFIX).collect();
                name = format!("{cut}{}", random_suffix(&self.rng));
                meta::metadata(&mut new).insert("name".into(), name.clone().into());
            }
            self.prepare_create(resource, &mut new);
            let _reservation = resource.hooks.allocate(self, &mut new, None)?;
            let new = self.validated(write, None, new).await?;
            resource.hooks.warn(&new, None, &options.warnings);
            if resource.custom.is_some() {
                for warning in meta::finalizer_warnings(&new, None) {
                    options.warnings.add(warning);
                }
            }
            self.controllers.warn(resource, &new, &options.warnings);
            let key = key_of(namespace, &name);
            let reserved = self.reserves(write, None).then(|| new.clone());
            let content = self.encode_stored(resource, new).await?;
            if let Some(reserved) = reserved {
                self.reserve(write, None, &reserved).await?;
            }
            let content = Arc::new(drop_managers_if_too_large(
                resource,
                content,
                write.managers,
            ));
            if options.dry_run {
                if self.store.get(collection, &key).is_none() {
                    return Ok(Written::Unstored(content, version));
                }
                continue;
            }
            if version.is_some() {
                return Err(ApiError::new(
                    500,
                    "",
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            let put = Change::Put(content);
            match self.commit(resource, collection, &key, Expect::Absent, put) {
                Ok(stored) => {
                    if !self.keep_instance(resource, &stored) {
                        return Err(definition_terminating(resource, &name));
                    }
                    self.after_write(resource, &stored);
                    return Ok(Written::Stored(stored));
                }
                Err(CommitError::Conflict) => {}
                Err(CommitError::Refused(error)) => return Err(error),
            }
        }
        let (group, plural) = (&resource.group, &resource.plural);
        if tries > 1 {
            return Err(ApiError::no_free_name(group, plural, &name));
        }
        let error = ApiError::already_exists(group, plural, &name);
        let existing = self.store.get(collection, &key_of(namespace, &name));
        Err(if existing.is_some_and(|object| object.header().deleting) {
            error.prefixed("object is being deleted: ")
        } else {
            error
        })
    }
}

fn definition_terminating(resource: &Resource, name: &str) -> ApiError {
    ApiError::forbidden(
        &resource.group,
        &resource.plural,
        name,
        "create not allowed while custom resource definition is terminating",
    )
}
