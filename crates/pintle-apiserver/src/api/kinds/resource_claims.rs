//! Resource claims: who may allocate devices, report their status, or access them as an admin.
//!
//! The status of a claim has several writers: a scheduler allocates and reserves devices, drivers
//! report on theirs. Permission to write the status alone would let each of them do the work of the
//! others, so every part needs permission to a subresource that exists for authorization only.

use std::collections::BTreeSet;

use pintle_clock::Clock;
use serde_json::Value;

use super::Kind;
use crate::{
    api::{
        Api, ApiError, User, service_account,
        write::{Attributes, Part},
    },
    authz::{
        Decision,
        access::{Access, Resource},
    },
    meta::{self, Tree},
    schema::field::FieldError,
};

/// The label of namespaces in which claims may have admin access to devices.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

/// The extra field that names the node of the Pod that a service account belongs to.
const NODE: &str = "authentication.kubernetes.io/node-name";

/// `resourceclaims`.
#[derive(Debug)]
pub(super) struct ResourceClaims;

/// `resourceclaimtemplates`.
#[derive(Debug)]
pub(super) struct ResourceClaimTemplates;

impl Kind for ResourceClaims {
    fn check_permissions(
        &self,
        api: &Api,
        user: &User,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        let field = |tree: &Tree, name: &str| tree.get(name).cloned().unwrap_or_default();
        let errors = match (write.part, stored) {
            (Part::Main, None) => requested(api, write, &field(object, "spec")),
            (Part::Status, Some(stored)) => {
                let (new, old) = (field(object, "status"), field(stored, "status"));
                let granted = |status: &Value| {
                    let results = &status["allocation"]["devices"]["results"];
                    admin_index(results, |result| &result["adminAccess"])
                };
                let mut errors = Vec::new();
                if let (Some(index), None) = (granted(&new), granted(&old)) {
                    let at = format!("status.allocation.devices.results[{index}].adminAccess");
                    errors.extend(admin_access(api, write, at));
                }
                errors.extend(may_bind(api, user, write, &new, &old));
                if !new["allocation"].is_null() {
                    errors.extend(may_report(api, user, write, &new, &old));
                }
                errors
            }
            _ => return Ok(()),
        };
        refused(write, object, errors)
    }

    fn prepare_update(&self, part: Part, object: &mut Tree, stored: &Tree, _: &Clock) {
        if part != Part::Status {
            return;
        }
        let none = Value::Null;
        let old = stored.get("status").unwrap_or(&none);
        let Some(new) = object.get_mut("status") else {
            return;
        };
        let kept = kept_devices(new, old);
        if let Some(status) = new.as_object_mut() {
            if kept.is_empty() {
                status.remove("devices");
            } else {
                status.insert("devices".into(), kept.into());
            }
        }
    }
}

impl Kind for ResourceClaimTemplates {
    fn check_permissions(
        &self,
        api: &Api,
        _: &User,
        write: &Attributes<'_>,
        object: &Tree,
        stored: Option<&Tree>,
    ) -> Result<(), ApiError> {
        if stored.is_some() {
            return Ok(());
        }
        let spec = object.get("spec").map(|spec| &spec["spec"]);
        let errors = spec.map(|spec| requested(api, write, spec));
        refused(write, object, errors.unwrap_or_default())
    }
}

fn refused(write: &Attributes<'_>, object: &Tree, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let (resource, name) = (write.resource, meta::text(object, "name"));
    let (group, kind) = (&resource.group, &resource.kind);
    Err(ApiError::invalid(group, kind, name, errors))
}

/// Returns the index of the first entry with admin access.
fn admin_index(list: &Value, access: impl Fn(&Value) -> &Value) -> Option<usize> {
    let mut entries = list.as_array()?.iter();
    entries.position(|entry| *access(entry) == true)
}

/// Checks the requests of a new claim or template.
fn requested(api: &Api, write: &Attributes<'_>, spec: &Value) -> Vec<FieldError> {
    let requests = &spec["devices"]["requests"];
    let index = admin_index(requests, |request| &request["exactly"]["adminAccess"]);
    let errors = index.map(|index| {
        let at = format!("spec.devices.requests[{index}].adminAccess");
        admin_access(api, write, at)
    });
    errors.into_iter().flatten().collect()
}

/// Checks that the namespace allows admin access to devices.
fn admin_access(api: &Api, write: &Attributes<'_>, at: String) -> Option<FieldError> {
    let namespaces = api.registry.builtin_collection("", "namespaces");
    let namespace = write.namespace.unwrap_or_default();
    let namespace = namespaces.and_then(|namespaces| api.store.get(namespaces, namespace));
    let allowed = namespace.is_some_and(|namespace| {
        let tree = namespace.decode();
        let labels = tree.get("metadata").map(|metadata| &metadata["labels"]);
        labels.is_some_and(|labels| labels[ADMIN_LABEL] == "true")
    });
    (!allowed).then(|| {
        let why = format!(
            "admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing \
             namespace"
        );
        FieldError::forbidden(at, why)
    })
}

/// Returns true if two values are equal, where an empty list equals none.
fn same(new: &Value, old: &Value) -> bool {
    let empty = |value: &Value| value.as_array().map_or(value.is_null(), Vec::is_empty);
    new == old || empty(new) && empty(old)
}

/// Checks that the user may allocate and reserve devices of any claim, if the status does.
fn may_bind(
    api: &Api,
    user: &User,
    write: &Attributes<'_>,
    new: &Value,
    old: &Value,
) -> Option<FieldError> {
    if same(&new["allocation"], &old["allocation"])
        && same(&new["reservedFor"], &old["reservedFor"])
    {
        return None;
    }
    let resource = Resource {
        sub: "binding".into(),
        ..of_group(write)
    };
    let why = denied(api, user, &Access::to(write.verb, resource))?;
    Some(FieldError::forbidden(
        "status.allocation",
        format!(
            "changing status.allocation or status.reservedFor requires \
             resource=\"resourceclaims/binding\", verb=\"{}\" permission: {why}",
            write.verb
        ),
    ))
}

/// Checks that the user may report on behalf of each driver whose devices the status changes. A
/// driver on the node of the claim may have permission for its own node only.
fn may_report(
    api: &Api,
    user: &User,
    write: &Attributes<'_>,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    let mut verbs = vec![format!("arbitrary-node:{}", write.verb)];
    if node_of(&new["allocation"]).is_some_and(|node| runs_on(user, node)) {
        verbs.insert(0, format!("associated-node:{}", write.verb));
    }
    let mut errors = Vec::new();
    for driver in changed_drivers(new, old) {
        let refusals = verbs.iter().map(|verb| {
            let resource = Resource {
                sub: "driver".into(),
                namespace: write.namespace.unwrap_or_default().into(),
                name: driver.clone().into(),
                ..of_group(write)
            };
            denied(api, user, &Access::to(verb.as_str(), resource))
        });
        let refusals: Option<Vec<String>> = refusals.collect();
        if let Some(why) = refusals.and_then(|all| all.into_iter().next()) {
            errors.push(FieldError::forbidden(
                "status.devices",
                format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", \
                     verb=\"[{}]\" permission: {why}",
                    verbs.join(" ")
                ),
            ));
        }
    }
    errors
}

fn of_group<'a>(write: &Attributes<'a>) -> Resource<'a> {
    Resource {
        group: write.resource.group.as_str().into(),
        plural: write.resource.plural.as_str().into(),
        ..Resource::default()
    }
}

/// Returns why a user does not have access.
fn denied(api: &Api, user: &User, access: &Access<'_>) -> Option<String> {
    match api.authorize(user, access) {
        Decision::Allowed(_) => None,
        Decision::NoOpinion(reason) => Some(access.forbidden(user, &reason).message().to_owned()),
    }
}

/// Returns the only node on which an allocation can be used.
fn node_of(allocation: &Value) -> Option<&str> {
    fn only(list: &Value) -> Option<&Value> {
        list.as_array().filter(|list| list.len() == 1)?.first()
    }
    let term = only(&allocation["nodeSelector"]["nodeSelectorTerms"])?;
    let field = only(&term["matchFields"])?;
    let fits = same(&term["matchExpressions"], &Value::Null)
        && field["key"] == "metadata.name"
        && field["operator"] == "In";
    only(&field["values"])?.as_str().filter(|_| fits)
}

/// Returns true if the user is a service account of a Pod on this node.
fn runs_on(user: &User, node: &str) -> bool {
    let nodes = user.extra.get(NODE).map(Vec::as_slice);
    service_account(&user.name).is_some() && nodes == Some(&[node.to_owned()]) && !node.is_empty()
}

type Device<'a> = [&'a str; 4];

fn device(entry: &Value) -> Device<'_> {
    ["driver", "pool", "device", "shareID"].map(|field| entry[field].as_str().unwrap_or_default())
}

fn list<'a>(status: &'a Value, pointer: &str) -> &'a [Value] {
    let found = status.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// Returns the reports on devices without those of devices that the write deallocates.
fn kept_devices(new: &Value, old: &Value) -> Vec<Value> {
    let allocated = |status| {
        let results = list(status, "/allocation/devices/results").iter();
        results.map(device).collect::<BTreeSet<Device<'_>>>()
    };
    let (now, before) = (allocated(new), allocated(old));
    let reports = list(new, "/devices").iter();
    let kept = reports.filter(|entry| {
        let device = device(entry);
        now.contains(&device) || !before.contains(&device)
    });
    kept.cloned().collect()
}

/// Returns the drivers of the devices whose reports the write adds, changes or removes.
fn changed_drivers(new: &Value, old: &Value) -> BTreeSet<String> {
    let kept = kept_devices(new, old);
    let mut before: Vec<&Value> = list(old, "/devices").iter().collect();
    let mut drivers = BTreeSet::new();
    let driver = |entry: &Value| entry["driver"].as_str().unwrap_or_default().to_owned();
    for entry in &kept {
        let at = before
            .iter()
            .position(|other| device(other) == device(entry));
        if at.is_none_or(|at| before.swap_remove(at) != entry) {
            drivers.insert(driver(entry));
        }
    }
    drivers.extend(before.into_iter().map(driver));
    drivers
}
