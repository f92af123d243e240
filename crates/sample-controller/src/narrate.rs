//! Shows the loop as it turns: one line for each step a person cares about.

use std::fmt::Write as _;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Event as Told, Pod},
};
use kube::ResourceExt;
use pintle::{
    cache::{Kind, Object},
    informer::{Event, InformerFactory, Registration},
};

use crate::foo::Foo;

/// Prints what happens to Foos and everything made for them, until dropped.
#[must_use = "dropping it ends the story"]
#[derive(Debug)]
pub struct Narrator {
    _handlers: Vec<Registration>,
}

impl Narrator {
    /// Listens on the informers of the process, and gives `print` each line.
    pub fn new(
        informers: &InformerFactory,
        print: impl Fn(String) + Clone + Send + 'static,
    ) -> Self {
        let handlers = vec![
            listen::<Foo>(informers, "Foo", foo, print.clone()),
            listen::<Deployment>(informers, "Deployment", deployment, print.clone()),
            listen::<ReplicaSet>(informers, "ReplicaSet", replica_set, print.clone()),
            listen::<Pod>(informers, "Pod", pod, print.clone()),
            listen_to_events(informers, print),
        ];
        Self {
            _handlers: handlers,
        }
    }
}

/// What is worth saying about an object, given what it was before (if anything).
type Describe<K> = fn(Option<&K>, &K) -> Option<String>;

fn listen<K: Kind<DynamicType: Default>>(
    informers: &InformerFactory,
    kind: &'static str,
    describe: Describe<K>,
    print: impl Fn(String) + Send + 'static,
) -> Registration {
    informers.informer::<K>().on_event(move |event| {
        let (key, text) = match &event {
            Event::Added { object, .. } => (object.key(), told_of(describe, None, object)),
            Event::Updated { old, new } => (new.key(), told_of(describe, Some(old), new)),
            Event::Deleted(deleted) => (&deleted.key, Some("deleted".to_owned())),
        };
        if let Some(text) = text {
            print(line(kind, key.name(), &text));
        }
    })
}

/// An event is told under the object it is about.
fn listen_to_events(
    informers: &InformerFactory,
    print: impl Fn(String) + Send + 'static,
) -> Registration {
    informers.informer::<Told>().on_event(move |event| {
        let (old, new) = match &event {
            Event::Added { object, .. } => (None, object),
            Event::Updated { old, new } => (Some(old), new),
            Event::Deleted(_) => return,
        };
        if let (Some(text), Ok(event)) = (told_of(told, old, new), new.get()) {
            let about = event.involved_object.name.clone().unwrap_or_default();
            print(line("Event", &about, &text));
        }
    })
}

fn line(kind: &str, name: &str, text: &str) -> String {
    format!("{kind:<10}  {name:<32}  {text}")
}

fn told_of<K: Kind>(
    describe: Describe<K>,
    old: Option<&Object<K>>,
    new: &Object<K>,
) -> Option<String> {
    let old = match old {
        Some(old) => Some(old.get().ok()?),
        None => None,
    };
    match new.get() {
        Ok(new) => describe(old.as_deref(), &new),
        Err(error) => Some(error.to_string()),
    }
}

/// `text` if it is news: there was nothing before, or it read differently.
fn news(old: Option<&str>, new: String) -> Option<String> {
    (old != Some(new.as_str()) && !new.is_empty()).then_some(new)
}

fn foo(old: Option<&Foo>, new: &Foo) -> Option<String> {
    let line = |foo: &Foo| {
        let mut line = format!("wants {}", replicas(foo.spec.replicas));
        let _ = write!(line, " of Deployment {:?}", foo.spec.deployment_name);
        if let Some(status) = &foo.status {
            let _ = write!(line, "; {} available", status.available_replicas);
            for condition in &status.conditions {
                let _ = write!(
                    line,
                    "; {}={} ({})",
                    condition.type_, condition.status, condition.reason
                );
            }
        }
        line
    };
    news(old.map(line).as_deref(), line(new))
}

fn deployment(old: Option<&Deployment>, new: &Deployment) -> Option<String> {
    let line = |deployment: &Deployment| {
        let wants = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = deployment
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas);
        format!(
            "{}, {} ready{}",
            replicas(wants),
            ready.unwrap_or(0),
            made_by(deployment)
        )
    };
    news(old.map(line).as_deref(), line(new))
}

fn replica_set(old: Option<&ReplicaSet>, new: &ReplicaSet) -> Option<String> {
    let line = |set: &ReplicaSet| {
        let wants = set.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
        format!(
            "{}, {} ready{}",
            replicas(wants),
            ready.unwrap_or(0),
            made_by(set)
        )
    };
    news(old.map(line).as_deref(), line(new))
}

fn pod(old: Option<&Pod>, new: &Pod) -> Option<String> {
    let line = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let on = node.map(|node| format!(" on {node}")).unwrap_or_default();
        format!(
            "{}{on}{}",
            phase.unwrap_or_else(|| "Pending".to_owned()),
            made_by(pod)
        )
    };
    news(old.map(line).as_deref(), line(new))
}

fn told(old: Option<&Told>, new: &Told) -> Option<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let line = |event: &Told| {
        let times = event
            .count
            .filter(|count| *count > 1)
            .map(|count| format!(" (x{count})"));
        let (reason, message) = (text(&event.reason), text(&event.message));
        format!(
            "{}, {reason}: {message}{}",
            text(&event.type_),
            times.unwrap_or_default()
        )
    };
    news(old.map(line).as_deref(), line(new))
}

fn replicas(count: Option<i32>) -> String {
    match count {
        None => "any number of replicas".to_owned(),
        Some(1) => "1 replica".to_owned(),
        Some(count) => format!("{count} replicas"),
    }
}

fn made_by(object: &impl ResourceExt) -> String {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| format!(", for {} {}", owner.kind, owner.name))
        .unwrap_or_default()
}
