use super::*;

#[test]
fn durations_parse_as_in_go() {
    for (text, millis) in [
        ("5s", 5_000),
        ("1m30s", 90_000),
        ("1.5s", 1_500),
        ("250ms", 250),
        ("0", 0),
        ("0s", 0),
        ("-1s", 0),
        ("+2s", 2_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for (text, why) in [
        ("", "invalid duration \"\""),
        ("soon", "invalid duration \"soon\""),
        ("5", "missing unit in duration \"5\""),
        ("5x", "unknown unit \"x\" in duration \"5x\""),
        ("1m2", "missing unit in duration \"1m2\""),
    ] {
        assert_eq!(duration(text), Err(format!("time: {why}")));
    }
}
