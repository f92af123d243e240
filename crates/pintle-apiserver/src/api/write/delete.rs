//! Deleting objects: preconditions, finalizers, grace, propagation, collections.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{
    Answer, Api, ApiError, Call, kinds::namespaces, read::list::list_answer,
    request::options::Warnings, response, write::commit::Unwritten, write::update::is_finished,
};
use crate::{
    meta::{self, Tree},
    registry::{EXTENSIONS, Resource, crd},
    schema::field::FieldError,
    server::PodDeletion,
    store::{Change, Expect, Object},
};
use pintle_clock::format_seconds;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Most people expect otherwise.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
/// How often a deletion that loses a race is tried again.
const TRIES: usize = 64;

/// What happens to the objects a deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    propagation: Option<Propagation>,
    grace: Option<i64>,
    uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
    /// The server deletes by itself, for no request.
    unasked: bool,
}

/// What became of a deletion.
pub(crate) enum Deleted {
    /// The object is gone.
    Gone(Arc<Object>),
    /// The object is marked and stays until its finalizers or its grace are over.
    Marked(Arc<Object>),
}

impl Api {
    /// Answers DELETE of an object.
    pub(crate) fn delete(self: &Arc<Self>, call: &Call) -> Answer {
        let options = delete_options(call)?;
        let resource = &call.target.resource;
        let warnings = Warnings::default();
        if options.propagation.is_none() && resource.is("batch", "jobs") {
            warnings.add(JOB_WARNING.to_owned());
        }
        let object = match self.delete_object(resource, &call.key(), &options)? {
            Deleted::Marked(object) => object,
            Deleted::Gone(object) if returns_deleted(resource) => object,
            Deleted::Gone(object) => {
                return Ok(response::json(200, &success(resource, &object)));
            }
        };
        let mut response = response::object(200, &call.view(&self.clock), &object);
        warnings.tell(&mut response);
        Ok(response)
    }

    /// Answers DELETE of a collection.
    pub(crate) async fn delete_collection(self: &Arc<Self>, call: &Call) -> Answer {
        let options = delete_options(call)?;
        let resource = &call.target.resource;
        let found = self.find(call).await?;
        let metadata = found.metadata(resource);
        let mut items = Vec::new();
        for object in found.items {
            match self.delete_object(resource, &object.key, &options) {
                // They are told as they were found.
                Ok(_) => items.push(object),
                // Somebody else was faster.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(list_answer(call.view(&self.clock), &metadata, items))
    }

    pub(crate) fn delete_object(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        key: &Arc<str>,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let collection = resource.collection.ok_or_else(ApiError::unknown_resource)?;
        for _ in 0..TRIES {
            let Some(current) = self.store.get(collection, key) else {
                let name = key.rsplit('/').next().unwrap_or_default();
                return Err(ApiError::not_found(&resource.group, &resource.plural, name));
            };
            check_preconditions(resource, &current, options)?;
            if resource.is("", "namespaces") && namespaces::UNDELETABLE.contains(&current.name()) {
                return Err(ApiError::forbidden(
                    "",
                    "namespaces",
                    current.name(),
                    "this namespace may not be deleted",
                ));
            }
            let stored = resource.tree(&current.content, Some(current.revision));
            let mut object = stored.clone();
            self.mark(resource, &mut object, options);
            let gone = is_finished(resource, &object);
            if options.dry_run && gone && !resource.is("", "pods") {
                return Ok(Deleted::Gone(current));
            }
            if options.dry_run {
                return Ok(Deleted::Marked(Arc::new(Object {
                    key: Arc::clone(key),
                    revision: current.revision,
                    content: Arc::new(resource.encode(object)),
                })));
            }
            let content = Arc::new(if gone && !resource.is("", "pods") {
                // The last state is the one before the deletion was asked for.
                resource.encode(stored)
            } else {
                resource.encode(object)
            });
            if !gone && content.same_as(&current.content) {
                return Ok(Deleted::Marked(current));
            }
            let what = if gone {
                Change::Delete(content)
            } else {
                Change::Put(content)
            };
            let expect = Expect::Revision(current.revision);
            let committed = if options.unasked {
                self.store
                    .commit(collection, key, expect, what)
                    .map_err(Unwritten::from)
            } else {
                self.commit(resource, collection, key, expect, what)
            };
            match committed {
                Ok(object) if gone => {
                    self.after_delete(resource, &object);
                    return Ok(Deleted::Gone(object));
                }
                Ok(object) => {
                    self.after_mark(resource, &object);
                    return Ok(Deleted::Marked(object));
                }
                Err(Unwritten::Mismatch) => {}
                Err(Unwritten::Refused(error)) => return Err(error),
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, key))
    }

    /// Deletes an instance of a definition that is going away.
    pub(crate) fn delete_instance(self: &Arc<Self>, resource: &Arc<Resource>, key: &Arc<str>) {
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..Default::default()
        };
        // An instance that is gone already is what was wanted.
        let _ = self.delete_object(resource, key, &options);
    }

    /// Marks an object as being deleted.
    fn mark(&self, resource: &Resource, object: &mut Tree, options: &DeleteOptions) {
        set_propagation(resource, object, options.propagation);
        if resource.is(EXTENSIONS, "customresourcedefinitions") {
            add_finalizer(object, crd::CLEANUP_FINALIZER);
            crd::set_condition(
                object,
                "Terminating",
                true,
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                &self.clock.stamp(),
            );
        }
        if meta::is_deleting(object) {
            if let Some(grace) = options.grace {
                shorten_grace(object, grace, self.clock.now());
            }
            return;
        }
        if resource.is("", "namespaces") {
            let status = object.entry("status").or_insert_with(|| json!({}));
            status["phase"] = "Terminating".into();
        }
        let grace = if resource.is("", "pods") {
            self.grace(object, options)
        } else {
            0
        };
        let metadata = meta::metadata(object);
        let at = later(self.clock.now(), grace);
        metadata.insert("deletionTimestamp".into(), format_seconds(at).into());
        let own_way =
            resource.is("", "namespaces") || self.registry.definitions() == resource.collection;
        if own_way {
            // These two have a life cycle of their own, without grace.
            return;
        }
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if meta::generation(object) > 0 {
            let next = meta::generation(object) + 1;
            meta::set_generation(object, next);
        }
    }

    /// The seconds a pod gets to end.
    fn grace(&self, pod: &Tree, options: &DeleteOptions) -> i64 {
        let at = |path: &str| Value::Object(pod.clone()).pointer(path).cloned();
        let scheduled = at("/spec/nodeName").is_some_and(|node| node.as_str() != Some(""));
        let phase = at("/status/phase");
        let over = phase
            .as_ref()
            .and_then(Value::as_str)
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        if !scheduled || over || self.pod_deletion == PodDeletion::AtOnce {
            return 0;
        }
        let own = || {
            at("/spec/terminationGracePeriodSeconds")
                .and_then(|v| v.as_i64())
                .unwrap_or(30)
        };
        match options.grace.unwrap_or_else(own) {
            // Less than nothing is taken for almost nothing.
            grace if grace < 0 => 1,
            grace => grace,
        }
    }

    /// What follows from marking an object of the server's own kinds.
    fn after_mark(self: &Arc<Self>, resource: &Resource, object: &Object) {
        if self.registry.definitions() == resource.collection {
            self.empty_definition(object.name());
        }
        if resource.is("", "pods") && self.pod_deletion == PodDeletion::AfterGrace {
            self.delete_after_grace(object);
        }
    }

    /// Removes a marked pod when its grace is over, as a kubelet would.
    fn delete_after_grace(self: &Arc<Self>, pod: &Object) {
        let at = meta::text(&pod.decode(), "deletionTimestamp").parse::<Timestamp>();
        let left = at.map_or(Duration::ZERO, |at| {
            let left = at.duration_since(self.clock.now());
            Duration::try_from(left).unwrap_or_default()
        });
        let options = DeleteOptions {
            grace: Some(0),
            uid: Some(pod.header().uid.clone()),
            unasked: true,
            ..Default::default()
        };
        let (api, key) = (Arc::clone(self), Arc::clone(&pod.key));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            tokio::select! {
                // A server that is gone deletes nothing.
                biased;
                () = api.closing.cancelled() => {}
                () = tokio::time::sleep(left) => {
                    let catalog = api.registry.catalog();
                    if let Some(pods) = catalog.find("", "v1", "pods") {
                        // Already gone, or another pod of that name: both are fine.
                        let _ = api.delete_object(pods, &key, &options);
                    }
                }
            }
        });
    }

    /// What follows when an object is gone.
    pub(crate) fn after_delete(&self, resource: &Resource, object: &Object) {
        if self.registry.definitions() == resource.collection {
            self.refresh_definition(object.name());
        } else if let Some(custom) = &resource.custom {
            self.finish_definition(&custom.definition);
        }
    }
}

/// Shortens the grace period of a terminating Pod. The new period counts from the first deletion;
/// an equal or longer one is ignored.
fn shorten_grace(object: &mut Tree, grace: i64, now: Timestamp) {
    let at = meta::text(object, "deletionTimestamp").parse::<Timestamp>();
    let metadata = meta::metadata(object);
    let running = metadata.get("deletionGracePeriodSeconds");
    let running = running.and_then(Value::as_i64).unwrap_or(0);
    let mut grace = if grace < 0 { 1 } else { grace };
    if grace >= running {
        return;
    }
    let mut at = later(at.unwrap_or(now), grace - running);
    if at < now {
        // The shorter period is already over. Unless it was zero, the kubelet still does the final
        // delete, so keep the shortest graceful period there is.
        at = now;
        grace = grace.min(1);
    }
    metadata.insert("deletionTimestamp".into(), format_seconds(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// `time` moved by `seconds`, which may be negative.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    let moved = time.saturating_add(jiff::SignedDuration::from_secs(seconds));
    moved.unwrap_or(Timestamp::MAX)
}

/// Kinds whose deletion answers with the object instead of a status.
fn returns_deleted(resource: &Resource) -> bool {
    if resource.custom.is_some() {
        return false;
    }
    match resource.group.as_str() {
        "" => matches!(
            resource.plural.as_str(),
            "pods"
                | "services"
                | "serviceaccounts"
                | "podtemplates"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "namespaces"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => resource.plural != "csistoragecapacities",
        _ => false,
    }
}

/// The status of something done.
pub(crate) fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

fn success(resource: &Resource, object: &Object) -> Value {
    let mut details =
        json!({"name": object.name(), "kind": resource.plural, "uid": object.header().uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(crate) fn check_preconditions(
    resource: &Resource,
    current: &Object,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let conflict = |why: &str| {
        Err(ApiError::conflict(
            &resource.group,
            &resource.kind,
            current.name(),
            why,
        ))
    };
    let (uid, revision) = (&current.header().uid, current.revision.to_string());
    if let Some(wanted) = options.uid.as_ref().filter(|wanted| *wanted != uid) {
        return conflict(&format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options
        .version
        .as_ref()
        .filter(|wanted| **wanted != revision)
    {
        return conflict(&format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}

fn add_finalizer(object: &mut Tree, finalizer: &str) {
    let list = meta::metadata(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

fn set_propagation(resource: &Resource, object: &mut Tree, wanted: Option<Propagation>) {
    let orphans_by_default =
        resource.is("", "replicationcontrollers") || resource.is("batch", "jobs");
    let (orphan, foreground) = match wanted {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None => {
            let has = |f: &str| meta::finalizers(object).contains(&f);
            let (orphan, foreground) = (has(ORPHAN), has(FOREGROUND));
            (orphan || (orphans_by_default && !foreground), foreground)
        }
    };
    let metadata = meta::metadata(object);
    if let Some(Value::Array(list)) = metadata.get_mut("finalizers") {
        list.retain(|f| (orphan || f != ORPHAN) && (foreground || f != FOREGROUND));
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
    for (wanted, finalizer) in [(orphan, ORPHAN), (foreground, FOREGROUND)] {
        if wanted {
            add_finalizer(object, finalizer);
        }
    }
}

fn delete_options(call: &Call) -> Result<DeleteOptions, ApiError> {
    let mut body = if call.body.is_empty() {
        json!({})
    } else {
        call.options_body()?
    };
    if !body.is_object() {
        return Err(ApiError::bad_request(
            "DeleteOptions: an object is expected",
        ));
    }
    let query = &call.query;
    for (name, value) in [("propagationPolicy", query.get("propagationPolicy"))] {
        if !value.is_empty() {
            body[name] = value.into();
        }
    }
    if let Some(grace) = query.number("gracePeriodSeconds")? {
        body["gracePeriodSeconds"] = grace.into();
    }
    if let Some(orphan) = query.optional_flag("orphanDependents") {
        body["orphanDependents"] = orphan.into();
    }
    let dry_run: Vec<Value> = query.all("dryRun").map(Value::from).collect();
    if !dry_run.is_empty() {
        body["dryRun"] = dry_run.into();
    }
    DeleteOptions::read(&body)
}

impl DeleteOptions {
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let policy = body["propagationPolicy"].as_str();
        let orphan = body["orphanDependents"].as_bool();
        if policy.is_some() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            None => orphan.map(|orphan| {
                if orphan {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        let mut dry_run = false;
        for value in body["dryRun"].as_array().into_iter().flatten() {
            if value == "All" {
                dry_run = true;
            } else {
                errors.push(FieldError::not_supported(
                    "dryRun",
                    json!([value]),
                    &["All"],
                ));
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                errors,
            ));
        }
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            propagation,
            grace: body["gracePeriodSeconds"].as_i64(),
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
            dry_run,
            unasked: false,
        })
    }
}
