use proptest::{collection, prelude::*};

use super::{nesting::Nesting, *};
use crate::testing::any_json;

fn end_of(chunks: &[&str]) -> (usize, bool) {
    let mut value = ValueEnd::default();
    let mut total = 0;
    for chunk in chunks {
        let (len, ended) = value.advance(chunk.as_bytes());
        total += len;
        if ended {
            return (total, true);
        }
    }
    (total, false)
}

#[test]
fn value_ends_at_its_own_bracket_or_quote() {
    assert_eq!(end_of(&[r#"{"a":"}\"]"},"#]), (12, true));
    assert_eq!(end_of(&["[[],{}]x"]), (7, true));
    assert_eq!(end_of(&[r#""a\\"b"#]), (5, true));
    assert_eq!(end_of(&["12.5,"]), (4, true));
    assert_eq!(end_of(&["null"]), (4, false));
}

#[test]
fn escape_may_be_split_between_chunks() {
    assert_eq!(end_of(&[r#"{"a":"\"#, r#""}"#, r#""}tail"#]), (11, true));
    assert_eq!(end_of(&[r#""a\"#, r#"""#, r#"b","#]), (6, true));
}

#[test]
fn members_are_visited_in_order() {
    let object = br#" { "kind" : "Pod", "n":1,"metadata":{"a":[1]} } "#;
    let found: Vec<_> = members(object).collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], (&b"kind"[..], &br#""Pod""#[..]));
    assert_eq!(found[2], (&b"metadata"[..], &br#"{"a":[1]}"#[..]));
}

#[test]
fn members_end_where_the_object_is_malformed_or_cut() {
    assert_eq!(members(b"[1]").count(), 0);
    assert_eq!(members(b"{}").count(), 0);
    assert_eq!(members(br#"{"a":}"#).count(), 0);
    assert_eq!(members(br#"{"a":1,"b":{"c":"#).count(), 1);
    assert_eq!(members(br#"{"a":1 "b":2}"#).count(), 1);
}

#[test]
fn container_end_does_not_depend_on_block_boundaries() {
    for filler in 0..200 {
        let text = format!(
            r#"{{"{}":["}}]","\\","\"]}}",{{"a":[]}}]}}"#,
            "x".repeat(filler)
        );
        for after in ["", "}", "]}\"", ",{}"] {
            let whole = format!("{text}{after}");
            let end = Nesting::length(whole.as_bytes());
            assert_eq!(end, Some(text.len()), "{whole}");
        }
        for cut in 0..text.len() {
            assert_eq!(Nesting::length(&text.as_bytes()[..cut]), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // The end of text written by serde_json is found, whatever follows and wherever it is split.
    #[test]
    fn end_of_any_json_is_found(items in collection::vec(any_json(), 0..6), pretty: bool) {
        let write = if pretty { serde_json::to_string_pretty } else { serde_json::to_string };
        let text = write(&items).unwrap();
        let whole = format!("{text},{text}");
        prop_assert_eq!(Nesting::length(whole.as_bytes()), Some(text.len()));
        for cut in 0..text.len() {
            let (before, after) = whole.as_bytes().split_at(cut);
            let mut nesting = Nesting::default();
            prop_assert_eq!(nesting.advance(before), None);
            prop_assert_eq!(nesting.advance(after), Some(text.len() - cut));
        }
    }
}

proptest! {
    #[test]
    fn blocks_agree_with_bytes(text in r#"[\{\[]([\{\}\[\]"\\a,:]|[a-z]{1,9}){0,200}"#) {
        let mut bytewise = Nesting::default();
        prop_assert_eq!(Nesting::length(text.as_bytes()), bytewise.scan_bytes(text.as_bytes()));
    }

    #[test]
    fn pieces_agree_with_the_whole(
        text in r#"[\{\[]([\{\}\[\]"\\a,:]|[a-z]{1,9}){0,200}"#,
        size in 1usize..200,
    ) {
        let (mut nesting, mut before) = (Nesting::default(), 0);
        let mut end = None;
        for piece in text.as_bytes().chunks(size) {
            end = nesting.advance(piece).map(|end| before + end);
            before += piece.len();
            if end.is_some() {
                break;
            }
        }
        prop_assert_eq!(end, Nesting::length(text.as_bytes()));
    }
}
