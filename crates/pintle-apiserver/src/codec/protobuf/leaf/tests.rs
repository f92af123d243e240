use super::*;

#[test]
fn durations_format_as_in_go() {
    let cases = [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (1_500_000_000, "1.5s"),
        (90_000_000_000, "1m30s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1, "-1ns"),
    ];
    for (nanos, text) in cases {
        assert_eq!(span(nanos), text);
    }
}
