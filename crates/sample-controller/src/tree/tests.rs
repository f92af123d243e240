use super::*;

fn node(kind: &str, uid: &str, parent: &str, status: &str) -> Node {
    Node {
        kind: kind.to_owned(),
        key: format!("default/{uid}"),
        uid: uid.to_owned(),
        parent: parent.to_owned(),
        role: if parent.is_empty() { "self" } else { "child" }.to_owned(),
        status: status.to_owned(),
        ..Node::default()
    }
}

/// Removes escape codes.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, text)| text));
    }
    text
}

#[test]
fn tree_shows_why_and_every_object() {
    let mut life = KeyLife::default();
    life.why.verdict = Verdict::Failing;
    life.why.sentence = "Foo default/a is not ready.".to_owned();
    life.tree = vec![
        node("Foo", "a", "", "InProgress"),
        node("Deployment", "web", "a", "InProgress"),
        node("ReplicaSet", "web-1", "web", "InProgress"),
        node("Pod", "web-1-x", "web-1", "Failed"),
        node("Pod", "web-1-y", "web-1", "Current"),
    ];
    let lines = frame(&[life], &["created".to_owned()], "try this");
    let lines: Vec<_> = lines.iter().map(|line| plain(line)).collect();
    assert_eq!(
        lines,
        [
            "",
            "● Foo default/a is not ready.",
            "  Foo/a  InProgress",
            "  └─ Deployment/web  InProgress",
            "     └─ ReplicaSet/web-1  InProgress",
            "        ├─ Pod/web-1-x  Failed",
            "        └─ Pod/web-1-y  Current",
            "",
            "created",
            "try this",
        ]
    );
}

#[test]
fn sentences_are_wrapped_at_words() {
    assert_eq!(wrap("one two three", 7), ["one two", "three"]);
}

#[test]
fn text_of_objects_cannot_control_the_terminal() {
    let evil = "\x1b]52;c;x\x07";
    let mut life = KeyLife::default();
    life.why.sentence = evil.to_owned();
    life.tree = vec![node(evil, evil, "", evil)];
    for line in frame(&[life], &[evil.to_owned()], "") {
        assert!(
            !line.contains("\x1b]") && !line.contains('\x07'),
            "{line:?}"
        );
    }
}
