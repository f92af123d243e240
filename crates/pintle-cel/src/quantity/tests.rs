use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn canonical_forms_match_upstream() {
    let cases = [
        ("0", "0"),
        ("0.0", "0"),
        ("000", "0"),
        ("0Mi", "0"),
        ("1", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("100m", "100m"),
        ("1500", "1500"),
        ("1000", "1k"),
        ("12e6", "12e6"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1E+3", "1E+3"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1Ki", "1Ki"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("-1.5Gi", "-1536Mi"),
        ("1.5Ei", "1536Pi"),
        ("0.5Ki", "512"),
        ("64Mi", "64Mi"),
        ("100000m", "100"),
        ("05", "05"),
        ("1.1Ki", "1126400m"),
        ("0.0000000001Ki", "103n"),
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("+5", "+5"),
        ("1000Ki", "1000Ki"),
        ("1000000Mi", "1000000Mi"),
        ("12345Mi", "12345Mi"),
        ("123456Ki", "123456Ki"),
        ("16Ei", "9223372036854775807"),
        ("9007199254740993.5Ki", "9223372036854775807"),
        ("1e20", "100e18"),
        ("1e400", "10e399"),
        ("1e-10", "1e-9"),
        ("100E", "100E"),
        ("1.23456789012", "1234567891n"),
        ("0.0001", "100u"),
        ("1000000001", "1000000001"),
        ("1001000", "1001k"),
        ("8Mi", "8Mi"),
        ("007m", "007m"),
        ("1.000", "1"),
        ("1e-3", "1e-3"),
        ("1e1", "10"),
        ("0.3Gi", "322122547200m"),
        ("123456e-7", "12345600e-9"),
        ("5000000k", "5G"),
        ("-0.5", "-500m"),
        ("12345678901234567890", "12345678901234567890"),
        ("1234567890123456789e285", "1234567890123456789e285"),
        (
            "123456789012345678901234567890123456789.5",
            "123456789012345678901234567890123456789500m",
        ),
        ("0.12345678901234567890123456789", "123456790n"),
        ("99999999999999999999Ki", "9223372036854775807"),
        (
            "-99999999999999999999999999999999999999999Ki",
            "-9223372036854775807",
        ),
        // Upstream drops a power of ten that has no suffix.
        ("1000E", "1"),
        ("1000000000000000000000", "1"),
        ("1e4294967296", "1e4294967296"),
        // A missing number is zero.
        ("+", "0"),
        ("-", "0"),
        (".", "0"),
        ("m", "0"),
        ("e5", "0"),
    ];
    for (text, shown) in cases {
        assert_eq!(quantity(text).to_string(), shown, "{text}");
    }
}

#[test]
fn invalid_quantities_are_rejected() {
    use QuantityError::{Format, Number, Suffix};
    for (text, error) in [
        ("", Format),
        ("lots", Format),
        ("1.2.3", Format),
        ("1 5", Format),
        (" 1", Format),
        ("1 ", Format),
        ("1_0", Format),
        ("１", Format),
        ("e-20", Number),
        ("-e-20", Number),
        ("e", Suffix),
        ("1e", Suffix),
        ("1i", Suffix),
        ("1ki", Suffix),
        ("1Kii", Suffix),
        ("1e99999999999999999999", Suffix),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(error), "{text}");
    }
}

#[test]
fn integers_are_those_upstream_stores_as_integers() {
    for (text, whole) in [
        ("5", Some(5)),
        ("50k", Some(50_000)),
        ("1E3", Some(1_000)),
        ("1Gi", Some(1 << 30)),
        ("-1Gi", Some(-(1 << 30))),
        ("123456789012345678", Some(123_456_789_012_345_678)),
        ("1e4294967296", Some(1)),
        ("+", Some(0)),
        ("m", None),
        ("1000m", None),
        ("1.0", None),
        ("1Ei", None),
        ("1234567890123456789", None),
        ("9223372036854775807", None),
        ("1e30", None),
    ] {
        assert_eq!(quantity(text).as_integer(), whole, "{text}");
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "the rounding is what is tested")]
fn floats_round_as_upstream() {
    for (text, float) in [
        ("0.5", 0.5),
        ("1Ei", 1.152_921_504_606_847e18),
        ("1234567890123456789", 1.234_567_890_123_457e18),
        ("1000000000000000000000", 1.000_000_000_000_000_1e21),
        ("0.12345678901234567890123456789", 0.123_456_790_000_000_01),
        ("0.0000000001Ki", 1.030_000_000_000_000_1e-7),
        (
            "123456789012345678901234567890123456789012345678901234567890",
            1.234_567_890_123_457e59,
        ),
        ("1e95", 1e95),
        ("1e308", 1e308),
        ("1e400", f64::INFINITY),
        // The number is stored in billionths, which overflows first.
        ("1234567890123456789e285", f64::INFINITY),
        ("-1.5Gi", -1_610_612_736.0),
    ] {
        assert_eq!(quantity(text).as_approximate_float(), float, "{text}");
    }
}

#[test]
fn sums_and_differences_match_upstream() {
    for (a, b, sum, difference) in [
        (
            "9223372036854775807",
            "1",
            "9223372036854775808",
            "9223372036854775806",
        ),
        (
            "123456789012345678901234567890123456789012345",
            "1",
            "123456789012345678901234567890123456789012346",
            "123456789012345678901234567890123456789012344",
        ),
        ("1e30", "-1e30", "0", "2e30"),
        ("0", "1Gi", "1Gi", "-1Gi"),
        (
            "1Gi",
            "1e30",
            "931322574615478515626Gi",
            "-931322574615478515624Gi",
        ),
        ("8Ei", "8Ei", "18446744073709551614", "0"),
        ("1Ki", "0.5", "1024500m", "1023500m"),
        (
            "1e18",
            "1n",
            "1000000000000000000000000001e-9",
            "999999999999999999999999999e-9",
        ),
        ("-1Gi", "1Mi", "-1023Mi", "-1025Mi"),
        (
            "900000000000000000",
            "900000000000000000k",
            "900900P",
            "-899100P",
        ),
    ] {
        let (a, b) = (quantity(a), quantity(b));
        assert_eq!(a.plus(&b).unwrap().to_string(), sum);
        assert_eq!(a.minus(&b).unwrap().to_string(), difference);
    }
}

#[test]
fn quantities_compare_across_suffixes() {
    for (one, other) in [
        ("1", "2"),
        ("500m", "1"),
        ("1Ki", "1025"),
        ("-1", "0"),
        ("-2", "-1"),
        ("1M", "1Mi"),
        ("1e2147483647", "2e2147483647"),
        (
            "123456789012345678901234567890123456789",
            "123456789012345678901234567890123456790",
        ),
    ] {
        assert!(quantity(one) < quantity(other), "{one} {other}");
        assert!(quantity(other) > quantity(one), "{other} {one}");
    }
    assert_eq!(quantity("1k"), quantity("1000"));
    assert_eq!(quantity("1000m"), quantity("1.000"));
}

/// A sum has one digit per power of ten from the largest to the smallest operand.
#[test]
fn sums_with_too_many_digits_return_none() {
    assert!(quantity("1e2147483647").plus(&quantity("1")).is_none());
    assert_eq!(quantity("1500m").rounded_up().to_string(), "2");
    assert_eq!(quantity("-1500m").rounded_up().to_string(), "-2");
    assert_eq!(quantity("1e-2147483647").to_string(), "1e-9");
}

proptest! {
    #[test]
    fn canonical_form_is_stable(
        text in "[+-]?[0-9]{0,5}(\\.[0-9]{0,4})?([numkMGTPE]|[KMGTPE]i|e-?[0-9])?",
    ) {
        if let Ok(once) = text.parse::<Quantity>() {
            let twice: Quantity = once.to_string().parse().unwrap();
            prop_assert_eq!(twice.to_string(), once.to_string());
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,20}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = quantity.to_string();
        }
    }

    #[test]
    fn arithmetic_is_exact(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000) {
        // Too many digits for an integer, so that the decimal form is used.
        let decimal = |n: i64| quantity(&format!("{n}.000000000000000000000"));
        let sum = decimal(a).plus(&decimal(b)).unwrap();
        prop_assert_eq!(&sum, &Quantity::from(a + b));
        prop_assert_eq!(sum.minus(&decimal(b)).unwrap(), Quantity::from(a));
        prop_assert_eq!(decimal(a).cmp(&decimal(b)), a.cmp(&b));
    }
}

#[test]
fn sums_with_tens_of_thousands_of_digits_are_shown() {
    let almost = format!("{}8976", "9".repeat(59_996));
    let sum = quantity("1Ki").plus(&quantity(&almost)).unwrap();
    assert_eq!(sum.to_string(), "1");
}
