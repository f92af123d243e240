use super::*;

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

#[test]
fn sums_are_canonical() {
    for (a, b, sum) in [
        ("0", "1Gi", "1Gi"),
        ("1Gi", "512Mi", "1536Mi"),
        ("500m", "500m", "1"),
        ("1", "100m", "1100m"),
        ("1G", "1G", "2G"),
        ("1e3", "1", "1001"),
        ("1Gi", "1", "1073741825"),
        ("100Mi", "0", "100Mi"),
    ] {
        assert_eq!(amount(a).plus(&amount(b)).to_string(), sum, "{a} + {b}");
    }
    assert_eq!(Amount::of(3).to_string(), "3");
    assert_eq!(amount("-2").to_string(), "-2");
}

#[test]
fn differences_are_never_negative() {
    assert_eq!(amount("3").minus(&amount("1")), amount("2"));
    assert_eq!(amount("1").minus(&amount("3")), Amount::default());
}

#[test]
fn fractions_round_up() {
    assert_eq!(amount("1500m").rounded_up().to_string(), "2");
    assert_eq!(amount("2").rounded_up().to_string(), "2");
}

#[test]
fn order_ignores_the_format() {
    assert!(amount("1Ki") > amount("1k"));
    assert_eq!(amount("1024"), amount("1Ki"));
    assert_eq!(amount("2").ratio(&amount("500m")), Some(4.0));
    assert_eq!(amount("2").ratio(&Amount::default()), None);
}

#[test]
fn invalid_quantity_does_not_parse() {
    for text in ["", "x", "1Xi", "--1", "1.2.3"] {
        assert!(Amount::parse(text).is_none(), "{text}");
    }
}
