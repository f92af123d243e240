use super::*;

#[test]
fn continue_tokens_round_trip_and_others_are_rejected() {
    let page = parse_token(&token(7, "ns/a", "ns/"), "ns/").unwrap();
    assert_eq!(
        page,
        Page {
            revision: Some(7),
            start: "ns/a".into()
        }
    );
    let elsewhere = parse_token(&token(7, "ns/a", "ns/"), "other/").unwrap();
    assert_eq!(
        elsewhere.start, "other/a",
        "tokens are relative to the namespace"
    );
    assert_eq!(parse_token(&token(-1, "x", ""), "").unwrap().revision, None);
    let (none, empty, out) = (token(0, "x", ""), token(1, "", ""), token(1, "../x", ""));
    for bad in ["", "x", "e30", &none, &empty, &out] {
        assert!(parse_token(bad, "").is_err(), "{bad}");
    }
}
