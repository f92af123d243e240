use proptest::prelude::*;

use super::*;

fn event(line: &str) -> Result<WatchEvent, BodyError> {
    parse_event(&Bytes::copy_from_slice(line.as_bytes()))
}

#[test]
fn event_type_comes_from_the_envelope() {
    for line in [
        "{\"type\":\"ADDED\",\"object\":{\"a\":\"}\"}}\n",
        r#" { "object" : {"a":"}"} , "type" : "ADDED", "more": 1 } "#,
    ] {
        assert_eq!(
            event(line).unwrap(),
            WatchEvent::Added(Bytes::from_static(br#"{"a":"}"}"#))
        );
    }
    assert!(matches!(
        event(r#"{"type":"NEW","object":{}}"#),
        Ok(WatchEvent::Unknown { .. })
    ));
    for line in [
        "{}",
        "x",
        r#"{"type":"ADDED"}"#,
        r#"{"type":1,"object":{}}"#,
    ] {
        assert_eq!(event(line), Err(BodyError::NotAnEvent), "{line}");
    }
}

/// Proves reflector/watchlist-atomic.
#[test]
fn initial_events_end_needs_the_exact_annotation() {
    let ends = |annotations: &str| {
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"5"{annotations}}}}}}}"#
        );
        match event(&line).unwrap() {
            WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                assert_eq!(resource_version, "5");
                initial_events_end
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(ends(
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    ));
    assert!(!ends(
        r#","annotations":{"k8s.io/initial-events-end":"yes"}"#
    ));
    assert!(!ends(r#","annotations":{"other":"true"}"#));
    assert!(!ends(""));
}

#[test]
fn error_event_carries_the_status() {
    let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}"#;
    assert_eq!(
        event(line).unwrap(),
        WatchEvent::Error(ApiError::new(410, "Expired", "old"))
    );
}

#[test]
fn line_limit_is_inclusive() {
    let mut lines = Lines::new(4);
    lines.push(b"\nabcd\n\r\nabc");
    assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"abcd\n"[..]));
    assert_eq!(lines.next_line(), Ok(None));
    assert!(lines.has_partial_line());
    let mut whole = Lines::new(4);
    whole.push(b"abcde\n");
    assert!(whole.next_line().is_err());
    lines.push(b"de");
    assert!(matches!(
        lines.next_line(),
        Err(BodyError::TooLarge { limit: 4, .. })
    ));
}

#[test]
fn object_type_is_found_anywhere_in_the_object() {
    let object = br#"{"metadata":{"kind":"no"},"kind":"Pod","apiVersion":"v1"}"#;
    assert_eq!(peek_type(object), (Some("v1"), Some("Pod")));
    assert_eq!(peek_type(b"{}"), (None, None));
    assert_eq!(
        peek_resource_version(br#"{"metadata":{"resourceVersion":"9"}}"#),
        Some("9".into())
    );
}

// Proves source/chunking.
proptest! {
    #[test]
    fn chunking_of_lines_does_not_matter(
        lines in prop::collection::vec("[a-z\"{}]{1,9}", 0..8),
        size in 1usize..12,
    ) {
        let body = lines.join("\n") + "\n";
        let mut splitter = Lines::new(100);
        let mut found = Vec::new();
        for chunk in body.as_bytes().chunks(size) {
            splitter.push(chunk);
            while let Some(line) = splitter.next_line().unwrap() {
                found.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
        }
        prop_assert_eq!(found, lines);
    }

    #[test]
    fn any_line_is_an_event_or_an_error(
        line in prop::collection::vec(
            prop_oneof![prop::sample::select(&b"{}[]\",:\\typeobjc"[..]), any::<u8>()], 0..100),
    ) {
        let line = Bytes::from(line);
        let _ = parse_event(&line);
        let _ = peek_type(&line);
        let _ = peek_resource_version(&line);
    }
}
