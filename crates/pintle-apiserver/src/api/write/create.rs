//! Creating objects.

use std::sync::Arc;

use crate::api::{
    Answer, Api, ApiError, Call,
    kinds::services,
    kinds::signing_requests,
    request::options::WriteOptions,
    response,
    response::view::View,
    write::commit::{Unwritten, lighten},
    write::managers::Mark,
    write::prepare::{Part, check, on_value},
};
use crate::{
    meta::{self, Tree},
    names::random_suffix,
    registry::Resource,
    schema::prepare,
    store::{Change, Content, Expect, Object, key_of},
};

/// How many generated names are tried.
const NAME_TRIES: usize = 8;
/// The longest prefix of a generated name.
const LONGEST_PREFIX: usize = 58;

/// What became of a new or changed object.
#[derive(Debug)]
pub(crate) enum Written {
    Stored(Arc<Object>),
    /// Only tried; at the revision it would have replaced.
    Tried(Arc<Content>, Option<u64>),
}

impl Written {
    pub(crate) fn answer(
        &self,
        code: u16,
        view: &View,
        options: &WriteOptions,
    ) -> http::Response<crate::api::Body> {
        let mut response = match self {
            Self::Stored(object) => response::object(code, view, object),
            Self::Tried(content, revision) => response::content(code, view, content, *revision),
        };
        options.warnings.tell(&mut response);
        response
    }
}

impl Api {
    /// Answers POST of a collection.
    pub(crate) fn create(&self, call: &Call) -> Answer {
        let options = call.write_options("CreateOptions")?;
        let mut object = call.object(&options)?;
        let resource = &call.target.resource;
        if signing_requests::is_one(resource) {
            signing_requests::identify(&mut object, &call.user);
        }
        let written = self.create_object(
            resource,
            call.target.namespace.as_deref(),
            object,
            &options,
            Mark::Update,
        )?;
        Ok(written.answer(201, &call.view(&self.clock), &options))
    }

    /// Creates an object in `namespace`.
    pub(crate) fn create_object(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        mut object: Tree,
        options: &WriteOptions,
        mark: Mark,
    ) -> Result<Written, ApiError> {
        let collection = resource
            .collection
            .ok_or_else(|| ApiError::not_implemented(&format!("{} objects", resource.kind)))?;
        settle_namespace(resource, namespace, &mut object)?;
        // Upstream rejects a resourceVersion in the storage layer: after validation, and never for a
        // dry run. "0" and values that do not parse count as unset.
        let version = meta::text(&object, "resourceVersion").parse::<u64>();
        let version = version.ok().filter(|version| *version != 0);
        let given = meta::text(&object, "name").to_owned();
        let prefix = meta::text(&object, "generateName").to_owned();
        self.check_namespace(resource, namespace, &given)?;
        if resource
            .custom
            .as_ref()
            .is_some_and(|custom| custom.terminating)
        {
            return Err(definition_goes(resource, &given));
        }
        let metadata = meta::metadata(&mut object);
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(field);
        }
        if resource.is("apps", "daemonsets") {
            prepare::count_template(&mut object);
        }
        if mark == Mark::Update {
            self.mark_managers(resource, "", options, None, &mut object);
        }
        if resource.is("", "pods") {
            self.admit_pod(namespace.unwrap_or_default(), &mut object)?;
        }
        let tries = if given.is_empty() && !prefix.is_empty() {
            NAME_TRIES
        } else {
            1
        };
        let mut last = given;
        for attempt in 1..=tries {
            let mut next = if attempt == tries {
                std::mem::take(&mut object)
            } else {
                object.clone()
            };
            if tries > 1 {
                let cut: String = prefix.chars().take(LONGEST_PREFIX).collect();
                last = format!("{cut}{}", random_suffix(&self.rng));
                meta::metadata(&mut next).insert("name".into(), last.clone().into());
            }
            self.prepare_create(resource, &mut next, &options.warnings);
            let _promise = self.give_service(resource, &mut next, None)?;
            on_value(&mut next, |next| check(resource, Part::Main, next, None))?;
            services::warn(resource, &next, &options.warnings);
            self.controllers.warn(resource, &options.warnings);
            let key = key_of(namespace, &last);
            let content = Arc::new(lighten(resource, resource.encode(next), mark));
            if options.dry_run {
                if self.store.get(collection, &key).is_none() {
                    return Ok(Written::Tried(content, version));
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
                        return Err(definition_goes(resource, &last));
                    }
                    self.after_write(resource, &stored);
                    return Ok(Written::Stored(stored));
                }
                Err(Unwritten::Mismatch) => {}
                Err(Unwritten::Refused(error)) => return Err(error),
            }
        }
        let (group, plural) = (&resource.group, &resource.plural);
        Err(if tries > 1 {
            ApiError::no_free_name(group, plural, &last)
        } else {
            let error = ApiError::already_exists(group, plural, &last);
            let there = self.store.get(collection, &key_of(namespace, &last));
            if there.is_some_and(|object| object.header().deleting) {
                error.prefixed("object is being deleted: ")
            } else {
                error
            }
        })
    }

    /// What follows from a write of the server's own kinds.
    pub(crate) fn after_write(&self, resource: &Resource, object: &Object) {
        self.remember_event(resource.collection, object);
        if self.registry.definitions() == resource.collection {
            self.settle_definition(object.name());
        }
    }
}

fn definition_goes(resource: &Resource, name: &str) -> ApiError {
    ApiError::forbidden(
        &resource.group,
        &resource.plural,
        name,
        "create not allowed while custom resource definition is terminating",
    )
}

/// Sets the namespace of the path on the object, and rejects a different one. On a cluster-scoped
/// object, where charts often set one, it is cleared.
pub(crate) fn settle_namespace(
    resource: &Resource,
    namespace: Option<&str>,
    object: &mut Tree,
) -> Result<(), ApiError> {
    if !resource.namespaced {
        meta::metadata(object).remove("namespace");
        return Ok(());
    }
    let said = meta::text(object, "namespace").to_owned();
    let wanted = namespace.unwrap_or_default();
    if !said.is_empty() && said != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::metadata(object).insert("namespace".into(), wanted.into());
    Ok(())
}
