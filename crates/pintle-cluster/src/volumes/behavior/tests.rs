use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn claim(behavior: Option<&str>) -> PersistentVolumeClaim {
    let annotations = behavior.map(|it| json!({ ClaimBehavior::ANNOTATION: it }));
    serde_json::from_value(json!({ "metadata": {
        "name": "data", "namespace": "default", "labels": { "app": "db" },
        "creationTimestamp": at(0).to_string(), "annotations": annotations,
    }}))
    .unwrap()
}

/// Proves volumes/script.
#[test]
fn behaviors_survive_a_round_trip() {
    for text in ["bind", "bind after=30s", "never-bind"] {
        let parsed: ClaimBehavior = text.parse().unwrap();
        assert_eq!(parsed.to_string().parse(), Ok(parsed), "{text}");
    }
    for text in ["", "never", "bind after", "bind after=soon", "bind now=1s"] {
        assert!(text.parse::<ClaimBehavior>().is_err(), "{text}");
    }
}

/// Proves volumes/script.
#[test]
fn newest_script_wins_over_older_ones_and_the_annotation() {
    let scripts = ClaimScripts::default();
    let claims = Claims::new(scripts.clone());
    let held = |text, now| scripts.hold(&claim(text), at(now));
    assert_eq!(held(None, 0), Ok(Hold::Free));
    assert_eq!(held(Some("never-bind"), 0), Ok(Hold::Forever));
    let five = Duration::from_secs(5);
    assert_eq!(held(Some("bind after=30s"), 25), Ok(Hold::For(five)));
    assert_eq!(held(Some("bind after=30s"), 30), Ok(Hold::Free));
    assert!(held(Some("bnid"), 0).is_err());

    claims.never_bind().unwrap();
    assert_eq!(held(Some("bind"), 0), Ok(Hold::Forever));
    let databases = claims.clone().matching("app=db").in_namespace("default");
    databases.behave(ClaimBehavior::bind()).unwrap();
    assert_eq!(held(None, 0), Ok(Hold::Free));
    databases.reset().unwrap();
    let elsewhere = claims.clone().in_namespace("other");
    elsewhere.behave(ClaimBehavior::bind()).unwrap();
    assert_eq!(held(None, 0), Ok(Hold::Forever));
    assert!(claims.matching("app in").never_bind().is_err());
}
