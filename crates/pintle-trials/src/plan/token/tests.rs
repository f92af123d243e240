use super::*;

#[test]
fn tokens_round_trip() {
    for text in [
        "no-fault;pace=rapid",
        "crash-after@patch/configmaps/default/web#1;pace=paced;steps=0,2",
        "delay-3000ms@ADDED/pods/default/web-0#2;pace=rapid;seed=7",
        "crash-before@create/pods/d/a-*#1+error-500@delete/pods/d/b#1;pace=rapid",
        "drift-delete@end/services/default/web;pace=paced",
        "stopped@step/3;pace=paced",
        "held-finalizer@step/6;pace=paced;steps=0,6",
        "late-write@delete/pods/d/a#1;pace=rapid",
        "crash-after@step/2/create/pods/d/a#1;pace=paced;steps=0,2",
        "gone@step/0/ADDED/pods/d/a#3;pace=paced",
        "errors-503x3@update/foos.example.com/d/a/status#2;pace=paced",
    ] {
        let plan: Plan = text.parse().unwrap();
        assert_eq!(plan.to_string(), text);
    }
}

#[test]
fn invalid_tokens_are_rejected_with_the_reason() {
    for (text, expected) in [
        ("crash-after", "expected fault@point"),
        ("smash@get/pods/d/a#1", "unknown fault \"smash\""),
        ("cut@ADDED/pods/d/a", "has no #occurrence"),
        ("cut@ADDED/pods/d/a#x", "\"x\" is not a number"),
        ("cut@step/x/ADDED/pods/d/a#1", "\"x\" is not a number"),
        ("cut@step/1/ADDED/pods/d/a", "has no #occurrence"),
        ("no-fault;page=paced", "unknown part"),
    ] {
        let error = text.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
