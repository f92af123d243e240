use proptest::prelude::*;

use super::*;
use crate::testing::any_json;

fn split(chunks: &[&[u8]], limit: usize) -> Result<(Vec<String>, Page), BodyError> {
    let mut body = ListBody::new(limit);
    let mut items = Vec::new();
    for chunk in chunks {
        body.push(chunk, &mut |item| {
            items.push(match item {
                RawItem::Json(json) => String::from_utf8_lossy(json).into_owned(),
                RawItem::TooLarge { .. } => "too large".to_owned(),
            });
        })?;
    }
    Ok((items, body.finish()?))
}

fn whole(body: &str) -> Result<(Vec<String>, Page), BodyError> {
    split(&[body.as_bytes()], 1000)
}

#[test]
fn items_and_metadata_are_found_in_any_order() {
    let (items, page) = whole(
        r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t","x":[1]},"items":[{"a":"]"}, {"b":[{}]}]}"#,
    )
    .unwrap();
    assert_eq!(items, [r#"{"a":"]"}"#, r#"{"b":[{}]}"#]);
    assert_eq!(page.resource_version, "7");
    assert_eq!(page.continue_token.as_deref(), Some("t"));

    let (items, page) =
        whole(r#" { "items" : [ 1 , {} ] , "metadata":{"resourceVersion":"8"} } "#).unwrap();
    assert_eq!(items, ["1", "{}"]);
    assert_eq!(
        page,
        Page {
            resource_version: "8".into(),
            ..Page::default()
        }
    );
}

#[test]
fn empty_items_may_be_null() {
    assert_eq!(whole(r#"{"items":[]}"#).unwrap().0.len(), 0);
    assert_eq!(whole(r#"{"items":null}"#).unwrap().0.len(), 0);
}

#[test]
fn oversized_item_is_skipped() {
    let body = format!(
        r#"{{"items":[{{"a":1}},{{"b":"{}"}},{{"c":3}}]}}"#,
        "x".repeat(40)
    );
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(7).collect();
    for chunks in [&pieces[..], &[body.as_bytes()]] {
        let (items, _) = split(chunks, 20).unwrap();
        assert_eq!(items, [r#"{"a":1}"#, "too large", r#"{"c":3}"#]);
    }
}

#[test]
fn rest_of_oversized_item_is_not_an_item() {
    let body = format!(
        r#"{{"items":[{{"b":"{}"}},{{"c":3}}]}}"#,
        "x".repeat(25_000)
    );
    for size in [999, 4000, 10_001] {
        let chunks: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
        let (items, _) = split(&chunks, 10_000).unwrap();
        assert_eq!(items, ["too large", r#"{"c":3}"#]);
    }
}

/// Proves reflector/not-a-list.
#[test]
fn body_that_is_not_a_list_is_a_typed_error() {
    let error = |body: &str| whole(body).unwrap_err();
    assert_eq!(
        error(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#),
        BodyError::Table("Table".into())
    );
    assert_eq!(error(r#"{"kind":"Status"}"#), BodyError::NotAList);
    assert_eq!(
        error(r#"{"items":[{"a":"#),
        BodyError::CutOff {
            at: 15,
            inside: "an item"
        }
    );
    assert_eq!(
        error(r#"{"items":[{}"#),
        BodyError::CutOff {
            at: 12,
            inside: "the items"
        }
    );
    assert_eq!(
        error(""),
        BodyError::CutOff {
            at: 0,
            inside: "the list"
        }
    );
    assert!(matches!(
        error("<html>"),
        BodyError::Malformed { at: 0, .. }
    ));
    assert!(matches!(
        error(r#"{"items":{}}"#),
        BodyError::Malformed { at: 9, .. }
    ));
    assert!(matches!(
        error(r#"{"items":[]]"#),
        BodyError::Malformed { .. }
    ));
    assert!(matches!(
        error(r#"{"items":[]} x"#),
        BodyError::Malformed { .. }
    ));
    assert!(matches!(
        error(r#"{"metadata":1}"#),
        BodyError::Malformed { .. }
    ));
    let long = format!(r#"{{"metadata":{{"a":"{}"}}}}"#, "x".repeat(MEMBER_LIMIT));
    assert!(matches!(error(&long), BodyError::TooLarge { .. }));
}

fn cut(body: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| body[pair[0]..pair[1]].to_vec())
        .collect()
}

// Proves source/chunking.
proptest! {
    #[test]
    fn chunking_of_a_body_does_not_matter(
        strings in prop::collection::vec(".{0,12}", 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let items: Vec<_> =
            strings.iter().map(|text| serde_json::json!({"s": text, "n": [1, {"x": null}]})).collect();
        let body = serde_json::to_vec(
            &serde_json::json!({"kind": "L", "items": items, "metadata": {"resourceVersion": "1"}}),
        ).unwrap();
        let chunks = cut(&body, &cuts);
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let (found, page) = split(&chunks, 10_000).unwrap();
        let expected: Vec<String> = items.iter().map(ToString::to_string).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(page.resource_version, "1");
    }

    #[test]
    fn any_bytes_are_a_list_or_an_error(
        body in prop::collection::vec(
            prop_oneof![prop::sample::select(&b"{}[]\",:\\ n1itemskd"[..]), any::<u8>()], 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..5),
    ) {
        let chunks = cut(&body, &cuts);
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let pieces = split(&chunks, 20);
        let whole = split(&[&body], 20);
        prop_assert_eq!(pieces.is_ok(), whole.is_ok());
        if let (Ok(pieces), Ok(whole)) = (pieces, whole) {
            prop_assert_eq!(pieces, whole);
        }
    }

    #[test]
    fn damaged_list_never_panics(at in any::<usize>(), byte in any::<u8>()) {
        let mut body = br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":"b\\"},{}]}"#.to_vec();
        let at = at % body.len();
        body[at] = byte;
        let _ = split(&[&body], 1000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Items of any shape come out as serde_json wrote them, wherever a chunk ends.
    #[test]
    fn chunk_may_end_at_any_byte(items in prop::collection::vec(any_json(), 0..3)) {
        let expected: Vec<String> = items.iter().map(ToString::to_string).collect();
        let body = format!(
            r#"{{"items":[{}],"metadata":{{"resourceVersion":"1"}}}}"#, expected.join(","));
        for cut in 0..=body.len() {
            let (before, after) = body.as_bytes().split_at(cut);
            prop_assert_eq!(&split(&[before, after], 10_000).unwrap().0, &expected);
        }
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        prop_assert_eq!(&split(&bytes, 10_000).unwrap().0, &expected);
    }
}
