use super::*;

#[test]
fn name_rules_accept_and_reject() {
    let ok = |rule: NameRule, name| rule.problems(name, false).is_empty();
    assert!(ok(NameRule::Subdomain, "a.b-c.1"));
    assert!(!ok(NameRule::Subdomain, "A"));
    assert!(!ok(NameRule::Subdomain, "a..b"));
    assert!(!ok(NameRule::Label, "a.b"));
    assert!(ok(NameRule::Label, "1a"));
    assert!(!ok(NameRule::Label1035, "1a"));
    assert!(ok(NameRule::PathSegment, "system:node"));
    assert!(!ok(NameRule::PathSegment, ".."));
    assert!(NameRule::Label.problems("web-", true).is_empty());
    assert!(!ok(NameRule::Label, &"a".repeat(64)));
}

#[test]
fn validates_label_keys_and_values() {
    assert!(qualified_name("app.kubernetes.io/name").is_empty());
    assert!(qualified_name("Up_per.x").is_empty());
    for bad in ["", "/x", "a/b/c", "x/", "-a", "a b"] {
        assert!(!qualified_name(bad).is_empty(), "{bad:?}");
    }
    assert!(label_value("").is_empty());
    assert!(!label_value("a/b").is_empty());
}
