//! "Why is it not running, or not ready?", answered in one sentence by a pure function.
//!
//! The answer follows the loop from its beginning. The first stage that is stuck explains
//! everything after it: an informer that does not follow the server, then a reconcile that does not
//! return or failed, then a replica without workers, then a wait, and finally an object in the tree
//! that does not become ready.

use serde_json::Value;

use super::model::{Controller, Entry, Informer, KeyLife, KeyState, Node, Verdict, What, Why};

/// After how many seconds a reconcile counts as stuck.
const LONG_RECONCILE: f64 = 10.0;

/// Explains why a key is not running or its object is not ready.
///
/// A pure function of a key's [life](KeyLife), its controller and the informers, so that it works
/// for a [trace](super::Trace) as well as for a running program.
///
/// ```
/// use pintle::inspect::{Controller, Informer, KeyLife, Verdict, why};
///
/// let controller = Controller { watches: vec!["Foo".to_owned()], ..Controller::default() };
/// let informer = Informer {
///     name: "foos at cluster scope".to_owned(),
///     kind: "Foo".to_owned(),
///     state: "syncing".to_owned(),
///     reason: "retrying in 3.2 s because 403 Forbidden".to_owned(),
///     ..Informer::default()
/// };
/// let life = KeyLife { key: "default/a".to_owned(), ..KeyLife::default() };
/// let why = why(&life, &controller, &[informer]);
/// assert_eq!(why.verdict, Verdict::Failing);
/// assert!(why.sentence.contains("403 Forbidden"), "{}", why.sentence);
/// ```
pub fn why(life: &KeyLife, controller: &Controller, informers: &[Informer]) -> Why {
    let subject = format!("{} {}", life.kind, life.key);
    if let Some(why) = blocked(&controller.watches, informers) {
        return why;
    }
    let own = life.tree.iter().find(|node| node.role == "self");
    let entries = &life.entries;
    if let KeyState::Processing { seconds } = life.state
        && seconds >= LONG_RECONCILE
    {
        return failing(format!(
            "{subject} has been reconciling for {}: the reconcile function has not returned.",
            span(seconds)
        ));
    }
    if let Some(why) = failed(&subject, life, own) {
        return why;
    }
    if controller.workers == 0 && life.state != KeyState::Idle {
        return waiting(format!(
            "{subject} waits because no worker of {} runs here: this replica is starting, stopping \
             or does not lead.",
            controller.name
        ));
    }
    match life.state {
        KeyState::Processing { seconds } => {
            return waiting(format!(
                "{subject} has been reconciling for {}.",
                span(seconds)
            ));
        }
        KeyState::Ready { seconds, ahead } => {
            let busy = match controller.workers {
                1 => "the only worker is busy".to_owned(),
                workers => format!("all {workers} workers are busy"),
            };
            return waiting(format!(
                "{subject} has been waiting for a worker for {}: {busy} and up to {ahead} keys are \
                 ahead of it.",
                span(seconds)
            ));
        }
        KeyState::Parked { seconds } => {
            return waiting(format!(
                "{subject} has been waiting {} for the caches to show what its last reconcile wrote.",
                span(seconds)
            ));
        }
        KeyState::Delayed { .. } | KeyState::Idle => {}
    }
    let Some(own) = own else {
        return match entries.last() {
            None => Why {
                verdict: Verdict::Unknown,
                sentence: format!("{subject} does not exist, and nothing has woken its key."),
            },
            Some(_) => fine(format!(
                "{subject} no longer exists; nothing is left to do."
            )),
        };
    };
    if own.object.pointer("/metadata/deletionTimestamp").is_some() {
        return deleting(&subject, own);
    }
    let unhealthy = life
        .tree
        .iter()
        .filter(|node| matches!(node.role.as_str(), "self" | "child") && node.status != "Current");
    // A broken object explains more than one in progress, and a deeper one more than those above
    // it.
    let deepest = unhealthy.max_by_key(|node| (is_broken(node), depth(node, &life.tree)));
    let Some(node) = deepest else {
        return match life.state {
            KeyState::Delayed { left } => {
                let asked = match last_delay(entries) {
                    Some("requeue") => ", as its last reconcile requested",
                    _ => "",
                };
                fine(format!(
                    "{subject} is ready; it is reconciled again in {}{asked}.",
                    span(left)
                ))
            }
            _ if life.truncated => fine(format!(
                "{subject} is ready: it and the objects shown below it are current; there may be more."
            )),
            _ => fine(format!(
                "{subject} is ready: it and everything below it is current."
            )),
        };
    };
    let problem = problem(node);
    let name = format!("{} {}", node.kind, node.key);
    let sentence = if node.role == "self" {
        format!("{subject} is not ready: {problem}")
    } else {
        format!("{subject} is not ready because {name} is not: {problem}")
    };
    let sentence = end(sentence);
    if is_broken(node) {
        failing(sentence)
    } else {
        waiting(sentence)
    }
}

/// Returns the answer for every key of a controller if one of its informers does not follow the
/// server.
pub(super) fn blocked(watches: &[String], informers: &[Informer]) -> Option<Why> {
    let needed = |informer: &&Informer| watches.contains(&informer.kind);
    let stuck = informers
        .iter()
        .filter(needed)
        .find(|informer| !informer.is_healthy())?;
    let Informer {
        name, kind, reason, ..
    } = stuck;
    let forbidden = reason.contains("403");
    let help = if forbidden {
        format!("; grant the operator list and watch on {}", resource(name))
    } else {
        String::new()
    };
    let what = match stuck.state.as_str() {
        "syncing" => format!("Nothing is reconciled until the cache of {kind} is filled"),
        "behind" => format!("The cache of {kind} is out of date"),
        _ => format!("The informer of {kind} has ended, so its cache is frozen"),
    };
    let sentence = end(format!("{what}: {name} is {reason}{help}"));
    // The first list of a program that has just started takes a moment.
    let starting =
        stuck.state == "syncing" && !reason.contains("because") && !reason.contains("after");
    Some(if starting {
        waiting(sentence)
    } else {
        failing(sentence)
    })
}

/// Returns the resource in the description of an informer: `foos.example.com at cluster scope`.
fn resource(informer: &str) -> &str {
    informer.split(' ').next().unwrap_or(informer)
}

/// Returns the error of the last reconcile, if it failed.
pub(super) fn last_error(entries: &[Entry]) -> Option<String> {
    match &last_reconcile(entries)?.what {
        What::Reconcile { error, .. } => error.clone(),
        _ => None,
    }
}

fn last_reconcile(entries: &[Entry]) -> Option<&Entry> {
    let is_reconcile = |entry: &&Entry| matches!(entry.what, What::Reconcile { .. });
    entries.iter().rev().find(is_reconcile)
}

/// Returns the reason for the key's last wait.
fn last_delay(entries: &[Entry]) -> Option<&str> {
    entries.iter().rev().find_map(|entry| match &entry.what {
        What::Delay { reason, .. } => Some(reason.as_str()),
        _ => None,
    })
}

/// Returns the answer if the last reconcile failed.
fn failed(subject: &str, life: &KeyLife, own: Option<&Node>) -> Option<Why> {
    let entry = last_reconcile(&life.entries)?;
    let What::Reconcile {
        id,
        attempt,
        outcome,
        error,
        ..
    } = &entry.what
    else {
        return None;
    };
    if matches!(outcome.as_str(), "ok" | "requeue") {
        return None;
    }
    let error = error.as_deref().unwrap_or("no message");
    let what = match (
        refused(&life.entries, *id, outcome, error),
        outcome.as_str(),
    ) {
        (Some(refused), _) => refused,
        (None, "panic") => format!("its reconcile panicked: {error}"),
        (None, "timeout") => format!("its reconcile took too long: {error}"),
        (None, _) => format!("its reconcile failed: {error}"),
    };
    let named: Vec<_> = life
        .tree
        .iter()
        .filter(|node| node.role == "named" && own.is_none_or(|own| own.uid != node.uid))
        .filter(|node| what.contains(&format!("{:?}", name_of(node))))
        .map(belongs)
        .collect();
    let named = match named.first() {
        Some(first) => format!("; {first}"),
        None => String::new(),
    };
    let next = match life.state {
        KeyState::Delayed { left } => {
            format!("It is retried in {} (attempt {}).", span(left), attempt + 1)
        }
        KeyState::Ready { .. } | KeyState::Processing { .. } => {
            format!("It is retried now (attempt {}).", attempt + 1)
        }
        _ if outcome == "terminal" => "It is not retried until something changes.".to_owned(),
        _ => String::new(),
    };
    let sentence = end(format!("{subject} is not ready: {what}{named}"));
    Some(failing(format!("{sentence} {next}").trim_end().to_owned()))
}

/// Describes the failed write that a reconcile's error is about. A reconcile may tolerate other
/// failed writes, such as a conflict, and fail for its own reasons.
fn refused(entries: &[Entry], reconcile: u64, outcome: &str, failure: &str) -> Option<String> {
    let is_reason = |status: u16, message: &str| {
        // A long message was shortened when it was recorded.
        let message = message.trim_end_matches('…');
        let mentioned = !message.is_empty() && failure.contains(message);
        mentioned || (status == 0 && outcome == "timeout")
    };
    entries.iter().rev().find_map(|entry| match &entry.what {
        What::Write {
            id,
            verb,
            kind,
            object,
            subresource,
            status,
            error: Some(error),
            ..
        } if *id == reconcile && is_reason(*status, error) => {
            let part = match subresource.as_str() {
                "" => String::new(),
                subresource => format!("the {subresource} of "),
            };
            let target = format!("{verb} {part}{kind} {object}");
            Some(match status {
                0 => format!("the API server did not answer when asked to {target}: {error}"),
                status => format!("the API server refused to {target}: {status} {error}"),
            })
        }
        _ => None,
    })
}

/// Describes which controller an object named by an error belongs to.
fn belongs(node: &Node) -> String {
    let name = format!("{} {}", node.kind, node.key);
    match node.controller.as_str() {
        "" => format!("{name} exists and has no controller"),
        controller => format!("{name} belongs to {controller}"),
    }
}

fn name_of(node: &Node) -> &str {
    node.key.rsplit('/').next().unwrap_or(&node.key)
}

fn deleting(subject: &str, own: &Node) -> Why {
    let finalizers = own.object.pointer("/metadata/finalizers");
    let names: Vec<_> = finalizers
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if names.is_empty() {
        return waiting(format!("{subject} is being deleted."));
    }
    waiting(format!(
        "{subject} is being deleted and waits for its finalizers: {}.",
        names.join(", ")
    ))
}

fn depth(node: &Node, tree: &[Node]) -> usize {
    let mut depth = 0;
    let mut at = node;
    while let Some(parent) = tree.iter().find(|one| one.uid == at.parent)
        && depth < tree.len()
    {
        depth += 1;
        at = parent;
    }
    depth
}

/// Returns whether waiting alone will probably not help.
fn is_broken(node: &Node) -> bool {
    node.status == "Failed" || failure(node).is_some() || crash(node).is_some()
}

/// Describes what is wrong with an object, as specifically as possible.
fn problem(node: &Node) -> String {
    let known = crash(node).or_else(|| failure(node));
    known.unwrap_or_else(|| match node.message.as_str() {
        "" => format!("its status is {}", node.status),
        message => message.to_owned(),
    })
}

/// Describes a container that cannot run.
fn crash(node: &Node) -> Option<String> {
    if node.kind != "Pod" {
        return None;
    }
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = lists
        .iter()
        .filter_map(|list| node.object.pointer(list)?.as_array())
        .flatten();
    containers.into_iter().find_map(|container| {
        let text = |at: &str| container.pointer(at).and_then(Value::as_str);
        let reason = text("/state/waiting/reason")?;
        if matches!(reason, "ContainerCreating" | "PodInitializing") {
            return None;
        }
        let name = text("/name").unwrap_or("?");
        if reason != "CrashLoopBackOff" {
            let message = text("/state/waiting/message");
            let message = message.map(|message| format!(": {message}"));
            return Some(format!(
                "container {name} cannot start, {reason}{}",
                message.unwrap_or_default()
            ));
        }
        let restarts = container.get("restartCount").and_then(Value::as_i64);
        let exit = container
            .pointer("/lastState/terminated/exitCode")
            .and_then(Value::as_i64);
        let exit = exit.map(|code| format!(" with exit code {code}"));
        Some(format!(
            "container {name} keeps crashing{} and was restarted {} times (CrashLoopBackOff)",
            exit.unwrap_or_default(),
            restarts.unwrap_or_default()
        ))
    })
}

/// Describes a condition that explains why children cannot be created.
fn failure(node: &Node) -> Option<String> {
    let conditions = node.object.pointer("/status/conditions")?.as_array()?;
    let failure = conditions
        .iter()
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")?;
    let message = failure["message"].as_str().unwrap_or_default();
    Some(format!("it cannot create its Pods: {message}"))
}

/// Formats seconds for a sentence.
fn span(seconds: f64) -> String {
    if seconds < 0.1 {
        "less than 0.1 s".to_owned()
    } else if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.0} h", seconds / 3600.0)
    }
}

/// Ends a sentence with a full stop.
fn end(mut sentence: String) -> String {
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

fn failing(sentence: String) -> Why {
    Why {
        verdict: Verdict::Failing,
        sentence,
    }
}

fn waiting(sentence: String) -> Why {
    Why {
        verdict: Verdict::Waiting,
        sentence,
    }
}

fn fine(sentence: String) -> Why {
    Why {
        verdict: Verdict::Fine,
        sentence,
    }
}

#[cfg(test)]
mod tests;
