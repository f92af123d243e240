use super::*;

fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
    let labels = labels
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    LabelSelector::parse(selector).unwrap().matches(&labels)
}

/// Proves lists/selectors.
#[test]
fn parses_and_matches_every_operator() {
    let pod = [("app", "web"), ("tier", "front")];
    for yes in [
        "",
        "app=web",
        "app==web",
        "app in (web,db)",
        "app notin (db)",
        "app",
        "!gone",
        "gone!=x",
        "gone notin (x)",
        "app = web , tier",
        "tier in (front)",
    ] {
        assert!(matches(yes, &pod), "{yes}");
    }
    for no in [
        "app=db",
        "app!=web",
        "gone",
        "!app",
        "app in (db)",
        "app notin (web,db)",
        "app=web,gone",
    ] {
        assert!(!matches(no, &pod), "{no}");
    }
    assert!(matches("n>3,n<5", &[("n", "4")]));
    for bad in [
        "=", "a b", "a in b", "a in (b", "a=b=c", ",", "a,,b", "a=b/c", "!", "a/b/c", "a>x",
    ] {
        assert!(LabelSelector::parse(bad).is_err(), "{bad}");
    }
}
