use super::*;

#[test]
fn strings_are_quoted_as_go_does() {
    for (text, quoted) in [
        ("a\"b\\c", r#""a\"b\\c""#),
        ("\n\r\t\u{7}\u{8}\u{b}\u{c}", r#""\n\r\t\a\b\v\f""#),
        ("\0\u{7f}", r#""\x00\x7f""#),
        ("é日😀", "\"é日😀\""),
        ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
        ("\u{e0001}\u{378}", r#""\U000e0001\u0378""#),
    ] {
        assert_eq!(quote(text), quoted);
    }
}

#[test]
fn durations_parse_as_in_go() {
    for (text, nanos) in [
        ("0", 0),
        ("-0", 0),
        ("+5s", 5_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1µs", 1_000),
        ("1μs", 1_000),
        ("0.100000000000000000000h", 360_000_000_000),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.830103483285477580700h", 2_988_372_539_827),
        ("9223372036854775807ns", i64::MAX),
        ("9223372036854775.807us", i64::MAX),
        ("-9223372036854775808ns", i64::MIN),
        ("-9223372036s854ms775us808ns", i64::MIN),
    ] {
        assert_eq!(parse_duration(text), Ok(nanos), "{text}");
    }
    for (text, error) in [
        ("", r#"invalid duration """#),
        ("-", r#"invalid duration "-""#),
        (".s", r#"invalid duration ".s""#),
        ("1", r#"missing unit in duration "1""#),
        ("1s1", r#"missing unit in duration "1s1""#),
        ("1e3s", r#"unknown unit "e" in duration "1e3s""#),
        ("1µ", r#"unknown unit "\xc2\xb5" in duration "1\xc2\xb5""#),
        (
            "9223372036854775808ns",
            r#"invalid duration "9223372036854775808ns""#,
        ),
        (
            "9223372036854775809x",
            r#"invalid duration "9223372036854775809x""#,
        ),
        ("3000000h", r#"invalid duration "3000000h""#),
        (
            "9223372036s854ms775us808ns",
            r#"invalid duration "9223372036s854ms775us808ns""#,
        ),
        (
            "-9223372036854775809ns",
            r#"invalid duration "-9223372036854775809ns""#,
        ),
    ] {
        assert_eq!(parse_duration(text), Err(format!("time: {error}")));
    }
}

#[test]
fn loose_durations_find_numbers_and_units() {
    const DAY: i64 = 86_400_000_000_000;
    for (text, nanos) in [
        ("1h30m", Some(5_400_000_000_000)),
        ("1e3s", Some(3_000_000_000)),
        ("1d", Some(DAY)),
        ("-1d", Some(DAY)),
        ("1.5d", Some(5 * DAY)),
        ("2 Weeks and 3 days", Some(17 * DAY)),
        ("x 1 h y", Some(3_600_000_000_000)),
        ("1 MINUTES", Some(60_000_000_000)),
        ("1 hourglass", Some(3_600_000_000_000)),
        ("1 sect", Some(1_000_000_000)),
        ("1 nanobots", Some(1)),
        ("1 \t µs", Some(1_000)),
        ("1000000w", Some(-3_942_554_432_415_203_328)),
        ("3000000h", Some(-7_646_744_073_709_551_616)),
        ("", None),
        ("soon", None),
        ("1", None),
        ("1mi", None),
        ("1 hrs", None),
        ("1 fortnight", None),
        ("1\u{a0}h", None),
        ("99999999999999999999d", None),
        ("1d 99999999999999999999 bananas", None),
    ] {
        assert_eq!(parse_loose_duration(text), nanos, "{text}");
    }
}

#[test]
fn mail_addresses_parse_as_in_go() {
    for text in [
        "a@example.com",
        "a@b",
        "a+b@example.com",
        "a@-b-.com",
        "a@b_c",
        "a@ example.com",
        " a@example.com ",
        "ü@exämple.com",
        "\"a b\"@example.com",
        "\"a\\\"b\"@example.com",
        "a@[127.0.0.1]",
        "a@[::1]",
        "<bg@example.com>",
        "a<b@example.com>",
        "Barry Gibbs <bg@example.com>",
        "John (x) Doe <a@example.com>",
        "John \"Q\" Doe <a@example.com>",
        "a@example.com (comment)",
        "a@example.com ((nested) \\) ok)",
        "group: a@example.com;",
        "g: \"x\" <a@example.com> (c);",
        "=?utf-8?q?J=C3=B6rg?= <a@example.com>",
        // Not decodable in any character set, so a plain word.
        "=?koi8?q?J=C?= <a@example.com>",
        "=?koi8?b?Zm9?= <a@example.com>",
        "x =?koi8?q?J=C3=B6rg?= <a@example.com>",
        "a@example.com (=?utf-8?q?x?=)",
    ] {
        assert!(is_mail_address(text), "{text:?}");
    }
    for text in [
        "",
        " ",
        "nobody",
        ".a@example.com",
        "a.@example.com",
        "a..b@example.com",
        "a@example..com",
        "a@example.com.",
        "a b@example.com",
        "a @example.com",
        "a@example.com\n",
        "\"\"@example.com",
        "\"a\u{1}b\"@example.com",
        "a@[IPv6:::1]",
        "a@[example]",
        "a@example.com (comment",
        "a@example.com,b@example.com",
        "mailto:a@example.com",
        "<a@example.com",
        "<a@example.com> x",
        "group:;",
        "group: a@example.com, b@example.com;",
        "g: h: a@example.com;;",
        "=?koi8?q?J=C3=B6rg?= <a@example.com>",
        "=?koi8?b?Zm9v?= <a@example.com>",
        "a@example.com (=?koi8?q?x?=)",
    ] {
        assert!(!is_mail_address(text), "{text:?}");
    }
}
