use super::*;

/// Proves crd/schema.
#[test]
fn formats_accept_valid_and_reject_invalid_values() {
    let cases = [
        ("date-time", "2014-12-15T19:30:20.000Z", "2014-12-15 19:30"),
        (
            "date-time",
            "2024-01-01T10:00:00,5Z",
            "2024-01-01T10:00:00Z\n",
        ),
        (
            "date-time",
            "2024-01-01t10:00:00z",
            "2024-01-01Tx10:00:00Zy",
        ),
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7"),
        ("hostname", "example.com", "-bad-"),
        ("email", "a@example.com", "nobody"),
        ("uri", "https://example.com/x", "not a uri"),
        ("uri", "/a b", "http://h:abc"),
        ("uri", "*", "http://[::1"),
        ("uri", "http://[fe80::1%25en0]:80/", "http://h/%zz"),
        ("byte", "aGVsbG8=", "a*b"),
        ("byte", "QR==", ""),
        ("ssn", "123-45-6789", "123456789"),
        ("email", "Ada <ada@example.com>", "ada@example..com"),
        ("email", "\"a b\"@[127.0.0.1]", "a b@example.com"),
        ("duration", "1h30m", "soon"),
        ("duration", "2 Weeks and 3 days", "1 fortnight"),
        ("duration", "1 hourglass", "99999999999999999999d"),
        ("isbn10", "0321751043", "0321751044"),
        ("isbn13", "978-0321751041", "978-0321751042"),
        ("k8s-short-name", "a-b", "a.b"),
        ("k8s-long-name", "a.b", "A"),
        ("hexcolor", "#fff", "#ggg"),
    ];
    for (format, good, bad) in cases {
        assert!(matches(format, good), "{format} should accept {good}");
        assert!(!matches(format, bad), "{format} should reject {bad}");
    }
    assert!(matches("unheard-of", "anything"));
}
