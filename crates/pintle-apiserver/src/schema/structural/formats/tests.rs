use super::*;

/// Proves crd/schema.
#[test]
fn formats_accept_and_reject() {
    let cases = [
        ("date-time", "2014-12-15T19:30:20.000Z", "2014-12-15 19:30"),
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7"),
        ("hostname", "example.com", "-bad-"),
        ("email", "a@example.com", "nobody"),
        ("uri", "https://example.com/x", "not a uri"),
        ("byte", "aGVsbG8=", "a*b"),
        ("duration", "1h30m", "soon"),
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
