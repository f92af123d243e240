use super::*;
use proptest::prelude::*;

#[test]
fn canonical_forms_match_upstream() {
    let cases = [
        ("0", "0"),
        ("0.0", "0"),
        ("1", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("100m", "100m"),
        ("1500", "1500"),
        ("1000", "1k"),
        ("12e6", "12e6"),
        ("1e3", "1e3"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("1Ki", "1Ki"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("64Mi", "64Mi"),
        ("100000m", "100"),
        ("05", "05"),
        ("1.1Ki", "1126400m"),
        ("8Ei", "9223372036854775807"),
        ("+5", "+5"),
        ("1000Ki", "1000Ki"),
        ("1000000Mi", "1000000Mi"),
        ("12345Mi", "12345Mi"),
        ("123456Ki", "123456Ki"),
        ("16Ei", "9223372036854775807"),
        ("1e20", "100e18"),
        ("100E", "100E"),
        ("1.23456789012", "1234567891n"),
        ("0.0001", "100u"),
        ("2048", "2048"),
        ("1000000001", "1000000001"),
        ("1001000", "1001k"),
        ("8Mi", "8Mi"),
        ("16Gi", "16Gi"),
        ("24Ki", "24Ki"),
        ("007m", "007m"),
        ("1.0", "1"),
        ("10.0", "10"),
        ("1.000", "1"),
        ("1e-3", "1e-3"),
        ("1e1", "10"),
        ("12345678901234567890", "12345678901234567890"),
        ("99999999999999999999Ki", "9223372036854775807"),
        ("0.3Gi", "322122547200m"),
        ("1e4", "10e3"),
        ("123456e-7", "12345600e-9"),
        ("12e18", "12e18"),
        ("3Gi", "3Gi"),
        ("1500Mi", "1500Mi"),
        ("0.25", "250m"),
        ("9e2", "900"),
        ("1000k", "1M"),
        ("5000000k", "5G"),
        ("1.5k", "1500"),
        ("-0.5", "-500m"),
        (" 5 ", "5"),
    ];
    for (text, stored) in cases {
        assert_eq!(canonical(text).as_deref(), Ok(stored), "{text}");
    }
}

#[test]
fn invalid_quantities_are_rejected() {
    for text in ["", "lots", "1.2.3", ".", "-", "1 5"] {
        assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
    }
    assert_eq!(canonical("1Kii"), Err(QuantityError::Suffix));
    assert_eq!(canonical("1ki"), Err(QuantityError::Suffix));
}

#[test]
fn quantities_compare_across_suffixes() {
    for (one, other) in [
        ("1", "2"),
        ("500m", "1"),
        ("1Ki", "1025"),
        ("-1", "0"),
        ("1M", "1Mi"),
    ] {
        assert_eq!(less(one, other), Some(true), "{one} {other}");
        assert_eq!(less(other, one), Some(false), "{other} {one}");
    }
    assert_eq!(less("1k", "1000"), Some(false));
    assert_eq!(less("", "1"), None);
}

proptest! {
    #[test]
    fn canonical_form_is_stable(text in "[+-]?[0-9]{0,5}(\\.[0-9]{0,4})?([numkMGTPE]|[KMGTPE]i|e-?[0-9])?") {
        if let Ok(once) = canonical(&text) {
            prop_assert_eq!(canonical(&once), Ok(once.clone()));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,20}") {
        let _ = canonical(&text);
    }
}
