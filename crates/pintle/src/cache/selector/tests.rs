use super::*;

/// Proves cache/label-selectors.
#[test]
fn selector_follows_the_kubectl_syntax() {
    let labels = [("app", "web"), ("example.com/tier", "front"), ("empty", "")];
    for (selector, selected) in [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web , example.com/tier=front", true),
        ("app=api", false),
        ("app!=web", false),
        ("app!=api", true),
        ("other!=x", true),
        ("app in (web,api)", true),
        ("app in (api)", false),
        ("app notin (web, api)", false),
        ("other notin (x)", true),
        ("app", true),
        ("other", false),
        ("!other", true),
        ("! app", false),
        ("empty=", true),
        ("empty in ()", true),
        ("app=web,other", false),
        ("in in (in)", false),
    ] {
        let parsed: Selector = selector.parse().unwrap();
        assert_eq!(parsed.matches(labels), selected, "{selector}");
        let printed: Selector = parsed.to_string().parse().unwrap();
        assert_eq!(
            printed.matches(labels),
            selected,
            "{selector} displayed as {parsed}"
        );
    }
    for text in [
        "=a", "a=b=c", "a in b", "a in (b", "a b", ",a", "a,", "!", "-a", "a=-", "A/b", "a/b/c",
        "a=b c",
    ] {
        assert!(text.parse::<Selector>().is_err(), "{text:?} parsed");
    }
}

/// Proves cache/label-selectors.
#[test]
fn keys_and_values_follow_the_server_rules() {
    let name = |length: usize| "n".repeat(length);
    // 253 characters, the maximum length of a prefix.
    let prefix = [63, 63, 63, 61].map(name).join(".");
    for valid in [
        name(63),
        format!("{prefix}/{}", name(63)),
        "a.B_c-9".to_owned(),
        "a-1.b/c".to_owned(),
        format!("a={}", name(63)),
        "a in (1.2_3-4,)".to_owned(),
    ] {
        assert!(valid.parse::<Selector>().is_ok(), "{valid:?}");
    }
    for invalid in [
        name(64),
        format!("{prefix}n/a"),
        format!("a/{}", name(64)),
        format!("a={}", name(64)),
    ] {
        assert!(invalid.parse::<Selector>().is_err(), "{invalid:?} parsed");
    }
    for invalid in [
        "a-",
        "_a",
        "a+b",
        "\u{e4}",
        "/a",
        "a/",
        "a/-b",
        "a..b/c",
        ".a/b",
        "a./b",
        "-a/b",
        "a-/b",
        "a_b/c",
        "a=b-",
        "a=.b",
        "a=b+c",
        "a!=b/c",
        "a in (b-)",
        "a in (b c)",
        "a<b",
    ] {
        assert!(invalid.parse::<Selector>().is_err(), "{invalid:?} parsed");
    }
}

#[test]
fn selector_displays_in_canonical_form() {
    for (text, printed) in [
        ("", ""),
        ("a,!b , c==d,e != f", "a,!b,c=d,e!=f"),
        ("a in (y,x,y)", "a in (x,y)"),
        ("a notin (y,x)", "a notin (x,y)"),
        ("a in (x),b notin (y)", "a=x,b!=y"),
    ] {
        assert_eq!(text.parse::<Selector>().unwrap().to_string(), printed);
    }
    let nothing: Selector = Selector::nothing().to_string().parse().unwrap();
    assert!(!nothing.matches([]) && !nothing.matches([("a", "x")]));
}

#[test]
fn everything_and_nothing_are_recognized() {
    let (all, none) = (Selector::everything(), Selector::nothing());
    let some = Selector::everything().equals("a", "x").equals("b", "y");
    assert!(all.is_everything() && !none.is_everything() && !some.is_everything());
    assert!(!all.is_nothing() && none.is_nothing() && !some.is_nothing());
    for (labels, selected) in [
        (&[][..], false),
        (&[("a", "x")], false),
        (&[("a", "x"), ("b", "y")], true),
    ] {
        let labels = labels.iter().copied();
        assert!(all.matches(labels.clone()) && !none.matches(labels.clone()));
        assert_eq!(some.matches(labels), selected);
    }
    assert!(!none.equals("a", "x").matches([("a", "x")]));
}

#[test]
fn workload_selector_is_converted() {
    let selector: LabelSelector = serde_json::from_value(serde_json::json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["back"]},
            {"key": "test", "operator": "DoesNotExist"},
        ],
    }))
    .unwrap();
    let selector = Selector::try_from(&selector).unwrap();
    assert_eq!(selector.to_string(), "app=web,tier!=back,!test");
    assert!(selector.matches([("app", "web")]));
    assert!(!selector.matches([("app", "web"), ("tier", "back")]));
    assert!(
        Selector::try_from(&LabelSelector::default())
            .unwrap()
            .is_everything()
    );
    let expression = |operator: &str, values: &[&str]| {
        let expression = serde_json::json!([{"key": "a", "operator": operator, "values": values}]);
        let selector = serde_json::json!({"matchExpressions": expression});
        Selector::try_from(&serde_json::from_value(selector).unwrap())
    };
    for (operator, values, printed) in [
        ("In", &["y", "x", "y"][..], "a in (x,y)"),
        ("NotIn", &["y", "x"], "a notin (x,y)"),
        ("Exists", &[], "a"),
        ("DoesNotExist", &[], "!a"),
    ] {
        assert_eq!(expression(operator, values).unwrap().to_string(), printed);
        let other: &[&str] = if values.is_empty() { &["x"] } else { &[] };
        let error = expression(operator, other).unwrap_err();
        assert!(error.to_string().contains(operator), "{error}");
    }
    assert!(expression("Gt", &["1"]).is_err());
}
