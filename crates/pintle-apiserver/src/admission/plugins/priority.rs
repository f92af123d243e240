//! `Priority`: a Pod gets the priority of its class, which must exist, and only one class can be
//! the default.

use serde_json::Value;

use super::refused;
use crate::{
    admission::{Operation, Plugin, Request},
    api::{Api, ApiError},
    meta::{self, Tree},
};

const CLASSES: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");

#[derive(Debug)]
pub(crate) struct Priority;

/// The fields that a Pod copies from its class.
#[derive(Debug)]
struct Class {
    name: String,
    value: i64,
    preemption: String,
}

impl Class {
    fn read(class: &Tree) -> Self {
        let preemption = class.get("preemptionPolicy").and_then(Value::as_str);
        Self {
            name: meta::text(class, "name").to_owned(),
            value: class.get("value").and_then(Value::as_i64).unwrap_or(0),
            preemption: preemption.unwrap_or("PreemptLowerPriority").to_owned(),
        }
    }

    /// Returns the class of a Pod; `None` if it names one that does not exist.
    ///
    /// Without a name, the default class applies; without a default class, priority 0.
    fn of(api: &Api, name: &str) -> Option<Self> {
        if name.is_empty() {
            let none = || Self::read(&Tree::new());
            return Some(Self::default_class(api).unwrap_or_else(none));
        }
        let collection = api.registry.builtin_collection(CLASSES.0, CLASSES.1)?;
        let found = api.store.get(collection, name)?;
        Some(Self::read(&found.decode()))
    }

    /// Returns the default class with the lowest value.
    fn default_class(api: &Api) -> Option<Self> {
        let collection = api.registry.builtin_collection(CLASSES.0, CLASSES.1)?;
        let classes = api.store.snapshot(collection).ok()?;
        let classes = classes.objects.values();
        let classes = classes.filter(|class| class.content.mentions("\"globalDefault\":true"));
        let classes = classes.map(|class| class.decode());
        let defaults = classes.filter(|class| class.get("globalDefault") == Some(&true.into()));
        defaults
            .map(|class| Self::read(&class))
            .min_by_key(|class| class.value)
    }
}

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admits(&self, _: &Api, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    fn mutate(&self, api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
        set_priority(api, request, pod)
    }

    fn validates(&self, _: &Api, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update)
            && request.is_for(CLASSES.0, CLASSES.1)
    }

    fn check(&self, api: &Api, request: &Request<'_>, class: &Tree) -> Result<(), ApiError> {
        let wants = class.get("globalDefault") == Some(&true.into());
        let other = Class::default_class(api).filter(|other| {
            wants && (request.operation == Operation::Create || other.name != request.name)
        });
        let Some(Class { name, .. }) = other else {
            return Ok(());
        };
        let why = format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        );
        Err(refused(request, Some(class), &why))
    }
}

fn set_priority(api: &Api, request: &Request<'_>, pod: &mut Tree) -> Result<(), ApiError> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let name = text("priorityClassName");
    let Some(class) = Class::of(api, name) else {
        let why = format!("no PriorityClass with name {name} was found");
        return Err(refused(request, Some(pod), &why));
    };
    if let Some(found) = spec["priority"]
        .as_i64()
        .filter(|found| *found != class.value)
    {
        let why = format!(
            "the integer value of priority ({found}) must not be provided in pod spec; priority \
             admission controller computed {} from the given PriorityClass name",
            class.value
        );
        return Err(refused(request, Some(pod), &why));
    }
    let policy = text("preemptionPolicy");
    if !policy.is_empty() && policy != class.preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; \
             priority admission controller computed {} from the given PriorityClass name",
            class.preemption
        );
        return Err(refused(request, Some(pod), &why));
    }
    if let Some(Value::Object(spec)) = pod.get_mut("spec") {
        if !class.name.is_empty() {
            spec.insert("priorityClassName".into(), class.name.into());
        }
        spec.insert("priority".into(), class.value.into());
        spec.insert("preemptionPolicy".into(), class.preemption.into());
    }
    Ok(())
}
