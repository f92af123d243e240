use super::*;

fn dns(name: &str) -> Name {
    Name::Dns(name.to_owned())
}

/// Proves auth/certificate-names.
#[test]
fn names_are_addresses_or_dns_names() {
    let parse = |text: &str| text.parse::<Name>();
    assert_eq!(
        parse("10.1.2.3").unwrap(),
        Name::Address([10, 1, 2, 3].into())
    );
    assert_eq!(
        parse("::1").unwrap(),
        Name::Address(Ipv6Addr::LOCALHOST.into())
    );
    assert_eq!(parse("Host.Example.com").unwrap(), dns("host.example.com"));
    assert_eq!(parse("*.example.com").unwrap(), dns("*.example.com"));
    for wrong in ["", "a b", "https://a", "a_b", "-", "*", "10.0.0.1:443"] {
        assert!(
            matches!(parse(wrong), Err(ServeError::InvalidName(name)) if name == wrong),
            "{wrong:?}"
        );
    }
}

/// Proves auth/certificate-names.
#[test]
fn wildcard_certificate_names_loopback_and_extra_names() {
    let more = ["build.example.com".to_owned(), "127.0.0.1".to_owned()];
    let names = all(Ipv4Addr::UNSPECIFIED.into(), &more).unwrap();
    for wanted in [
        dns("localhost"),
        Name::Address(Ipv4Addr::LOCALHOST.into()),
        Name::Address(Ipv6Addr::LOCALHOST.into()),
        dns("build.example.com"),
    ] {
        let count = names.iter().filter(|name| **name == wanted).count();
        assert_eq!(count, 1, "{wanted:?}");
    }
    let loopback = all(Ipv4Addr::LOCALHOST.into(), &[]).unwrap();
    assert_eq!(loopback.len(), NAMES.len() + 2);
}

#[test]
fn url_of_a_wildcard_listener_uses_loopback() {
    let dial = |text: &str| dialable(text.parse().unwrap()).to_string();
    assert_eq!(dial("0.0.0.0:6443"), "127.0.0.1:6443");
    assert_eq!(dial("[::]:6443"), "[::1]:6443");
    assert_eq!(dial("192.0.2.7:6443"), "192.0.2.7:6443");
}
