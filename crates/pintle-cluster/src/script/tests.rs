use std::time::Duration;

use super::*;

/// Proves cluster/script.
#[test]
fn script_is_read_from_yaml_and_json() {
    let yaml = r#"
nodes:
- name: gpu-0
  labels: { disk: ssd }
  taints: [{ key: gpu, value: "true", effect: NoSchedule }]
  allocatable: { cpu: "4" }
  behavior: disk-full
pods:
- selector: app=web
  namespace: prod
  behavior: exit code=3 after=5s
- logs: |
    one
    two
- logs: [one, { after: 5s, line: two }]
"#;
    let script = Script::parse(yaml).unwrap();
    let expected = NodeTemplate::new("gpu-0")
        .label("disk", "ssd")
        .taint("gpu", "true", TaintEffect::NoSchedule)
        .allocatable("cpu", "4");
    let disk_full = NodeBehavior::healthy().disk_full();
    assert_eq!(script.nodes, [(expected, disk_full)]);
    let [web, plain, timed] = script.pods.as_slice() else {
        panic!("{script:?}");
    };
    assert_eq!(web.namespace.as_deref(), Some("prod"));
    let exit = Behavior::exit(3).after(Duration::from_secs(5));
    assert_eq!(web.behavior, Some(exit));
    let lines = vec![LogLine::from("one"), LogLine::from("two")];
    assert_eq!(plain.logs, Some(lines));
    let two = LogLine::from("two").after(Duration::from_secs(5));
    assert_eq!(timed.logs, Some(vec![LogLine::from("one"), two]));

    let json = r#"{"pods": [{"selector": "app=web", "behavior": "crash-loop"}]}"#;
    assert_eq!(Script::parse(json).unwrap().pods.len(), 1);
    assert!(Script::parse("").unwrap().pods.is_empty());
}

/// Proves cluster/script.
#[test]
fn invalid_script_is_explained() {
    for (text, why) in [
        ("pod: []", "unknown field `pod`"),
        (
            "pods: [{ selector: a }]",
            "pods[0]: neither behavior nor logs is set",
        ),
        (
            "pods: [{ selector: 'a in (', behavior: run }]",
            "pods[0]: unable to parse",
        ),
        (
            "pods: [{ behavior: run fast=yes }]",
            "pods[0]: invalid behavior",
        ),
        (
            "pods: [{ logs: [{ after: soon, line: x }] }]",
            "pods[0]: not a duration",
        ),
        (
            "nodes: [{ name: a, behavior: aflame }]",
            "nodes[0]: invalid node behavior",
        ),
        (
            "nodes: [{ name: a, allocatable: { cpu: lots } }]",
            "nodes[0]: invalid amount of cpu",
        ),
        (
            "nodes: [{ name: a, taints: [{ key: k, effect: Never }] }]",
            "nodes[0]: unknown taint effect \"Never\"",
        ),
        ("pods: [", ""),
    ] {
        let error = Script::parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// Proves cluster/script.
#[test]
fn claims_of_a_script_are_read() {
    let text = "claims: [{ selector: app=db, namespace: prod, behavior: never-bind }]";
    let script = Script::parse(text).unwrap();
    let [rule] = script.claims.as_slice() else {
        panic!("{script:?}");
    };
    assert_eq!(rule.behavior, ClaimBehavior::never_bind());
    assert_eq!(rule.namespace.as_deref(), Some("prod"));
    let error = Script::parse("claims: [{ behavior: bind later=1s }]").unwrap_err();
    let why = r#"claims[0]: invalid behavior "bind later=1s": unknown option "later=1s""#;
    assert_eq!(error.to_string(), why);
    let error = Script::parse("claims: [{ selector: app in, behavior: bind }]").unwrap_err();
    assert!(error.to_string().starts_with("claims[0]: "), "{error}");
}
