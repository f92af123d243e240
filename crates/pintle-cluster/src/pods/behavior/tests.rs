use serde_json::json;

use super::*;

fn pod(metadata: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// Proves pods/script.
#[test]
fn annotation_is_parsed() {
    let seconds = Duration::from_secs;
    for (text, expected) in [
        ("run", Behavior::run()),
        (
            "run ready-after=1m30s",
            Behavior::run().ready_after(seconds(90)),
        ),
        ("never-ready", Behavior::never_ready()),
        (
            "run unready-after=9s",
            Behavior::run().unready_after(seconds(9)),
        ),
        ("evict after=9s", Behavior::evict().after(seconds(9))),
        ("fail-image-pull", Behavior::fail_image_pull()),
        ("exit", Behavior::exit(0)),
        ("crash-loop after=2s", Behavior::exit(1).after(seconds(2))),
        ("oom-kill", Behavior::exit(137).reason("OOMKilled")),
        (
            "  exit code=3  reason=Evicted after=500ms ",
            Behavior::exit(3)
                .reason("Evicted")
                .after(Duration::from_millis(500)),
        ),
    ] {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        assert_eq!(expected.to_string().parse(), Ok(expected), "{text}");
    }
}

/// Proves pods/script.
#[test]
fn invalid_annotation_is_explained() {
    for (text, why) in [
        ("", "a verb is missing"),
        ("explode", r#"unknown verb "explode""#),
        ("exit 3", r#"expected option=value instead of "3""#),
        (
            "exit code=256",
            r#"the code must be between 0 and 255: "256""#,
        ),
        ("exit after=-1s", r#"not a duration such as 5s: "-1s""#),
        ("run after=1s", r#"unknown option "after""#),
    ] {
        let error = text.parse::<Behavior>().unwrap_err();
        assert_eq!(error.why, why);
        assert_eq!(
            error.to_string(),
            format!("invalid behavior {text:?}: {why}")
        );
    }
}

/// Proves pods/script.
#[test]
fn pods_of_jobs_complete_by_default() {
    let owner = |kind: &str, version: &str| {
        json!({ "ownerReferences": [{
            "apiVersion": version, "kind": kind, "name": "it", "uid": "u", "controller": true,
        }]})
    };
    assert_eq!(
        Behavior::of(&pod(&owner("Job", "batch/v1"))),
        Behavior::exit(0)
    );
    assert_eq!(
        Behavior::of(&pod(&owner("Job", "example.com/v1"))),
        Behavior::run()
    );
    assert_eq!(
        Behavior::of(&pod(&owner("ReplicaSet", "apps/v1"))),
        Behavior::run()
    );
    let mut annotated = owner("Job", "batch/v1");
    annotated["annotations"] = json!({ Behavior::ANNOTATION: "exit code=7" });
    assert_eq!(Behavior::of(&pod(&annotated)), Behavior::exit(7));
}
