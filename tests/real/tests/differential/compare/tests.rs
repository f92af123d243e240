use serde_json::json;

use super::*;

#[test]
fn every_field_is_compared() {
    let real = json!({"a": [1, {"b/c": 2}], "d": 3});
    let ours = json!({"a": [1, {"b/c": 4}, 5]});
    let paths: Vec<String> = differences(&real, &ours)
        .into_iter()
        .map(|difference| difference.path)
        .collect();
    assert_eq!(paths, ["/a/1/b~1c", "/a/2", "/d"]);
    let codes = differences(&json!({"code": 201}), &json!({"code": 501}));
    assert_eq!(codes[0].path, "/code=501");
    assert!(differences(&real, &real).is_empty());
}

#[test]
#[should_panic(expected = "no reason")]
fn accepted_difference_requires_a_reason() {
    accepted("area/scenario/1 /body/a []");
}

#[test]
#[should_panic(expected = "no value of ours")]
fn accepted_difference_requires_our_value() {
    accepted("area/scenario/1 /body/a shorter");
}

#[test]
fn accepted_difference_matches_no_other() {
    let list = accepted("a/b/1 /body/message \"is wrong\" shorter\na/b/1 /body/c nothing none");
    let difference = |path: &str, ours: Option<Value>| Difference {
        path: path.to_owned(),
        real: Some("x".into()),
        ours,
    };
    let message = |text: &str| difference("/body/message", Some(text.into()));
    assert!(list[0].matches("a/b/1", &message("the name is wrong")));
    assert!(!list[0].matches("a/b/1", &message("nonsense")));
    assert!(!list[0].matches("a/b/1", &difference("/body/message", None)));
    assert!(!list[0].matches("a/b/2", &message("the name is wrong")));
    assert!(list[1].matches("a/b/1", &difference("/body/c", None)));
    assert!(!list[1].matches("a/b/1", &difference("/body/c", Some(1.into()))));
}
