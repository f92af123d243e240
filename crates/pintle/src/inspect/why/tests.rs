use serde_json::json;

use super::*;

fn controller() -> Controller {
    Controller {
        name: "foos".to_owned(),
        kind: "Foo".to_owned(),
        watches: vec!["Foo".to_owned(), "Deployment".to_owned()],
        workers: 2,
        ..Controller::default()
    }
}

fn life(state: KeyState, entries: Vec<What>, tree: Vec<Node>) -> KeyLife {
    let entry = |what| Entry {
        at: 1.0,
        times: 1,
        since: None,
        what,
    };
    KeyLife {
        kind: "Foo".to_owned(),
        key: "default/a".to_owned(),
        state,
        entries: entries.into_iter().map(entry).collect(),
        tree,
        ..KeyLife::default()
    }
}

fn run(outcome: &str, error: Option<&str>) -> What {
    What::Reconcile {
        id: 7,
        cause: "Foo updated".to_owned(),
        attempt: 4,
        seconds: 0.01,
        outcome: outcome.to_owned(),
        error: error.map(str::to_owned),
    }
}

fn write(status: u16, error: &str) -> What {
    What::Write {
        id: 7,
        verb: "create".to_owned(),
        kind: "Deployment".to_owned(),
        object: "default/web".to_owned(),
        subresource: String::new(),
        fields: vec![],
        seconds: 0.01,
        status,
        error: Some(error.to_owned()),
    }
}

fn node(kind: &str, role: &str, parent: &str, status: &str) -> Node {
    Node {
        kind: kind.to_owned(),
        key: "default/a".to_owned(),
        uid: kind.to_owned(),
        parent: parent.to_owned(),
        role: role.to_owned(),
        status: status.to_owned(),
        ..Node::default()
    }
}

fn sentence(life: &KeyLife, verdict: Verdict) -> String {
    let why = why(life, &controller(), &[]);
    assert_eq!(why.verdict, verdict, "{}", why.sentence);
    why.sentence
}

/// Proves inspect/why.
#[test]
fn forbidden_informer_explains_every_key() {
    let informer = Informer {
        name: "deployments.apps at cluster scope".to_owned(),
        kind: "Deployment".to_owned(),
        state: "syncing".to_owned(),
        reason: "retrying in 3.2 s because 403 Forbidden on deployments.apps".to_owned(),
        ..Informer::default()
    };
    let why = why(
        &life(KeyState::Idle, vec![], vec![]),
        &controller(),
        &[informer],
    );
    assert_eq!(why.verdict, Verdict::Failing);
    assert_eq!(
        why.sentence,
        "Nothing is reconciled until the cache of Deployment is filled: deployments.apps at cluster \
         scope is retrying in 3.2 s because 403 Forbidden on deployments.apps; grant the operator \
         list and watch on deployments.apps."
    );
}

#[test]
fn informers_of_other_controllers_do_not_matter() {
    let informer = Informer {
        kind: "Secret".to_owned(),
        state: "syncing".to_owned(),
        ..Informer::default()
    };
    assert!(blocked(&controller().watches, &[informer]).is_none());
}

/// Proves inspect/why.
#[test]
fn rejected_write_names_the_request_and_the_response() {
    let write = write(403, "exceeded quota: small");
    let error = "creating the Deployment: ApiError: exceeded quota: small: Forbidden";
    let failed = run("error", Some(error));
    let life = life(
        KeyState::Delayed { left: 12.0 },
        vec![write, failed],
        vec![],
    );
    assert_eq!(
        sentence(&life, Verdict::Failing),
        "Foo default/a is not ready: the API server refused to create Deployment default/web: 403 \
         exceeded quota: small. It is retried in 12 s (attempt 5)."
    );
}

/// Proves inspect/why.
#[test]
fn tolerated_error_response_is_not_the_reason() {
    let exists = write(409, "deployments.apps \"web\" already exists");
    let of = |write: &What, outcome: &str, error: &str| {
        let entries = vec![write.clone(), run(outcome, Some(error))];
        sentence(&life(KeyState::Idle, entries, vec![]), Verdict::Failing)
    };
    assert_eq!(
        of(&exists, "error", "registry unreachable"),
        "Foo default/a is not ready: its reconcile failed: registry unreachable."
    );
    let late = of(&exists, "timeout", "no result within 30s");
    assert!(late.contains("took too long: no result"), "{late}");
    let unanswered = write(0, "connection refused");
    let late = of(&unanswered, "timeout", "no result within 30s");
    assert!(late.contains("did not answer when asked"), "{late}");
    let other = of(&unanswered, "error", "registry unreachable");
    assert!(other.contains("registry unreachable"), "{other}");
    let silent = of(&write(500, ""), "error", "registry unreachable");
    assert!(silent.contains("registry unreachable"), "{silent}");
}

/// Proves inspect/why.
#[test]
fn owner_of_an_object_in_the_error_is_named() {
    let mut foreign = node("Deployment", "named", "", "Current");
    foreign.key = "default/web".to_owned();
    let own = node("Foo", "self", "", "InProgress");
    let error = r#"Resource "web" already exists and is not managed by Foo"#;
    let of = |foreign: &Node| {
        let tree = vec![own.clone(), foreign.clone()];
        let state = KeyState::Delayed { left: 1.0 };
        life(state, vec![run("error", Some(error))], tree)
    };
    let alone = sentence(&of(&foreign), Verdict::Failing);
    assert!(
        alone.contains("Deployment default/web exists and has no controller"),
        "{alone}"
    );
    foreign.controller = "Foo default/b".to_owned();
    let owned = sentence(&of(&foreign), Verdict::Failing);
    assert!(
        owned.contains("Deployment default/web belongs to Foo default/b"),
        "{owned}"
    );
}

/// Proves inspect/why.
#[test]
fn deepest_broken_object_explains_the_others() {
    let mut set = node("ReplicaSet", "child", "Deployment", "InProgress");
    let ready = vec![
        node("Foo", "self", "", "InProgress"),
        node("Deployment", "child", "Foo", "InProgress"),
    ];
    set.object = json!({"status": {"conditions": [{
        "type": "ReplicaFailure", "status": "True",
        "message": "pods \"web-x\" is forbidden: exceeded quota: small",
    }]}});
    let tree = [ready.clone(), vec![set.clone()]].concat();
    let text = sentence(
        &life(KeyState::Idle, vec![run("ok", None)], tree),
        Verdict::Failing,
    );
    assert_eq!(
        text,
        "Foo default/a is not ready because ReplicaSet default/a is not: it cannot create its Pods: \
         pods \"web-x\" is forbidden: exceeded quota: small."
    );

    let mut pod = node("Pod", "child", "ReplicaSet", "InProgress");
    pod.object = json!({"status": {"containerStatuses": [{
        "name": "web", "restartCount": 5,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}},
    }]}});
    set.object = json!({});
    let tree = [ready, vec![set, pod]].concat();
    let text = sentence(
        &life(KeyState::Idle, vec![run("ok", None)], tree),
        Verdict::Failing,
    );
    assert_eq!(
        text,
        "Foo default/a is not ready because Pod default/a is not: container web keeps crashing with \
         exit code 1 and was restarted 5 times (CrashLoopBackOff)."
    );
}

#[test]
fn waits_are_explained() {
    let own = vec![node("Foo", "self", "", "Current")];
    let of = |state, verdict| sentence(&life(state, vec![run("ok", None)], own.clone()), verdict);
    let ready = KeyState::Ready {
        seconds: 3.0,
        ahead: 20,
    };
    let text = of(ready, Verdict::Waiting);
    assert!(
        text.contains("all 2 workers are busy and up to 20 keys"),
        "{text}"
    );
    let text = of(KeyState::Parked { seconds: 1.0 }, Verdict::Waiting);
    assert!(
        text.contains("for the caches to show what its last reconcile wrote"),
        "{text}"
    );
    let text = of(KeyState::Processing { seconds: 30.0 }, Verdict::Failing);
    assert!(text.contains("has not returned"), "{text}");
    let text = of(KeyState::Delayed { left: 300.0 }, Verdict::Fine);
    assert!(text.contains("reconciled again in 5 min"), "{text}");
    let text = of(KeyState::Idle, Verdict::Fine);
    assert_eq!(
        text,
        "Foo default/a is ready: it and everything below it is current."
    );
}

#[test]
fn only_a_requeue_is_called_requested() {
    let own = vec![node("Foo", "self", "", "Current")];
    let of = |reason: &str| {
        let delay = What::Delay {
            reason: reason.to_owned(),
            seconds: 300.0,
        };
        let entries = vec![run("ok", None), delay];
        let state = KeyState::Delayed { left: 300.0 };
        sentence(&life(state, entries, own.clone()), Verdict::Fine)
    };
    assert_eq!(
        of("requeue"),
        "Foo default/a is ready; it is reconciled again in 5 min, as its last reconcile requested."
    );
    assert_eq!(
        of("backOff"),
        "Foo default/a is ready; it is reconciled again in 5 min."
    );
}

#[test]
fn truncated_tree_is_not_called_complete() {
    let own = vec![
        node("Foo", "self", "", "Current"),
        node("Deployment", "child", "Foo", "Current"),
    ];
    let mut life = life(KeyState::Idle, vec![run("ok", None)], own);
    life.truncated = true;
    assert_eq!(
        sentence(&life, Verdict::Fine),
        "Foo default/a is ready: it and the objects shown below it are current; there may be more."
    );
}

#[test]
fn deletion_names_the_finalizers() {
    let mut own = node("Foo", "self", "", "Terminating");
    own.object = json!({"metadata": {
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/backup"],
    }});
    let text = sentence(
        &life(KeyState::Idle, vec![run("ok", None)], vec![own]),
        Verdict::Waiting,
    );
    assert!(
        text.ends_with("waits for its finalizers: example.com/backup."),
        "{text}"
    );
}

#[test]
fn replica_without_workers_is_explained() {
    let idle = Controller {
        workers: 0,
        ..controller()
    };
    let ready = KeyState::Ready {
        seconds: 1.0,
        ahead: 0,
    };
    let answer = why(&life(ready, vec![], vec![]), &idle, &[]);
    assert_eq!(answer.verdict, Verdict::Waiting);
    assert!(
        answer.sentence.contains("does not lead"),
        "{}",
        answer.sentence
    );
}
