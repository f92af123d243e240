//! Prints the reconcile loop step by step: one line per change, at most 80 columns wide.

use std::fmt::Write as _;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Event as Recorded, Pod},
};
use kube::ResourceExt;
use pintle::{
    cache::{Kind, Object},
    informer::{Event, InformerFactory, Registration},
};

use crate::{controller::NAME, foo::Foo};

/// The default width of a terminal.
const WIDTH: usize = 80;

/// The column in which the text begins. The names of all objects in the example fit before it.
const TEXT: usize = 35;

/// Prints changes of Foos, Deployments, `ReplicaSet`s, Pods and events until dropped.
#[must_use = "dropping the narrator ends the narration"]
#[derive(Debug)]
pub struct Narrator {
    _handlers: Vec<Registration>,
}

impl Narrator {
    /// Registers handlers on `informers` that pass each line to `print`.
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

/// Formats a change made by the controller itself.
pub fn action(what: &str) -> String {
    line(NAME, what)
}

/// Describes the change from the old object, if any, to the new one; `None` if not worth a line.
type Describe<K> = fn(Option<&K>, &K) -> Option<String>;

fn listen<K: Kind<DynamicType: Default>>(
    informers: &InformerFactory,
    kind: &'static str,
    describe: Describe<K>,
    print: impl Fn(String) + Send + 'static,
) -> Registration {
    informers.informer::<K>().on_event(move |event| {
        let (key, text) = match &event {
            Event::Added { object, .. } => (object.key(), change(describe, None, object)),
            Event::Updated { old, new } => (new.key(), change(describe, Some(old), new)),
            Event::Deleted(deleted) => (&deleted.key, Some("deleted".to_owned())),
        };
        if let Some(text) = text {
            print(line(&format!("{kind}/{}", key.name()), &text));
        }
    })
}

/// Prints each recorded event under the object it regards.
fn listen_to_events(
    informers: &InformerFactory,
    print: impl Fn(String) + Send + 'static,
) -> Registration {
    informers.informer::<Recorded>().on_event(move |event| {
        let (old, new) = match &event {
            Event::Added { object, .. } => (None, object),
            Event::Updated { old, new } => (Some(old), new),
            Event::Deleted(_) => return,
        };
        if let (Some(text), Ok(event)) = (change(recorded, old, new), new.get()) {
            let regarding = &event.involved_object;
            let (kind, name) = (regarding.kind.as_deref(), regarding.name.as_deref());
            let subject = format!("{}/{}", kind.unwrap_or("?"), name.unwrap_or("?"));
            print(line(&subject, &text));
        }
    })
}

/// Formats a subject and its text, which is wrapped at `WIDTH` and aligned at `TEXT`.
fn line(subject: &str, text: &str) -> String {
    let mut lines = subject.to_owned();
    let mut column = subject.chars().count();
    if column + 2 > TEXT {
        lines.push_str("  ");
        column += 2;
    } else {
        let _ = write!(lines, "{:1$}", "", TEXT - column);
        column = TEXT;
    }
    let mut first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH || first && column + length > WIDTH {
            let _ = write!(lines, "\n{:TEXT$}", "");
            column = TEXT;
        } else if !first {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
        first = false;
    }
    // Wrapping after a long subject leaves trailing spaces.
    let trimmed = lines.split('\n').map(str::trim_end);
    trimmed.collect::<Vec<_>>().join("\n")
}

fn change<K: Kind>(
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

/// Returns `new` unless it is empty or equals `old`.
fn if_changed(old: Option<&str>, new: String) -> Option<String> {
    (old != Some(new.as_str()) && !new.is_empty()).then_some(new)
}

fn foo(old: Option<&Foo>, new: &Foo) -> Option<String> {
    let wants = |foo: &Foo| {
        let replicas = replicas(foo.spec.replicas);
        format!(
            "wants {replicas} of Deployment/{}",
            foo.spec.deployment_name
        )
    };
    let reports = |foo: &Foo| {
        let Some(status) = &foo.status else {
            return String::new();
        };
        let mut text = format!("{} available", status.available_replicas);
        for condition in &status.conditions {
            let (name, is, reason) = (&condition.type_, &condition.status, &condition.reason);
            let _ = write!(text, ", {name}={is} ({reason})");
        }
        text
    };
    let wanted = if_changed(old.map(wants).as_deref(), wants(new));
    let reported = if_changed(old.map(reports).as_deref(), reports(new));
    match (wanted, reported) {
        (Some(wanted), Some(reported)) => Some(format!("{wanted}; {reported}")),
        (wanted, reported) => wanted.or(reported),
    }
}

fn deployment(old: Option<&Deployment>, new: &Deployment) -> Option<String> {
    let line = |deployment: &Deployment| {
        let wants = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let status = deployment.status.as_ref();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        format!(
            "{}, {ready} ready{}",
            replicas(wants),
            controlled_by(deployment)
        )
    };
    if_changed(old.map(line).as_deref(), line(new))
}

fn replica_set(old: Option<&ReplicaSet>, new: &ReplicaSet) -> Option<String> {
    let line = |set: &ReplicaSet| {
        let wants = set.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
        format!("{}, {} ready", replicas(wants), ready.unwrap_or(0))
    };
    if_changed(old.map(line).as_deref(), line(new))
}

fn pod(old: Option<&Pod>, new: &Pod) -> Option<String> {
    let line = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let on = node.map(|node| format!(" on {node}")).unwrap_or_default();
        format!("{}{on}", phase.unwrap_or_else(|| "Pending".to_owned()))
    };
    if_changed(old.map(line).as_deref(), line(new))
}

fn recorded(old: Option<&Recorded>, new: &Recorded) -> Option<String> {
    let line = |event: &Recorded| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let kind = match event.type_.as_deref() {
            Some("Normal") | None => "event",
            Some(_) => "warning",
        };
        let times = event.count.filter(|count| *count > 1);
        let times = times
            .map(|count| format!(" (x{count})"))
            .unwrap_or_default();
        let (reason, message) = (text(&event.reason), text(&event.message));
        format!("{kind} {reason}: {message}{times}")
    };
    if_changed(old.map(line).as_deref(), line(new))
}

fn replicas(count: Option<i32>) -> String {
    match count {
        None => "any number".to_owned(),
        Some(1) => "1 replica".to_owned(),
        Some(count) => format!("{count} replicas"),
    }
}

fn controlled_by(object: &impl ResourceExt) -> String {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| format!(", for {}/{}", owner.kind, owner.name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
