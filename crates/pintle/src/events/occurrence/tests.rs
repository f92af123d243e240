use super::*;

/// Proves events/name-and-fields.
#[test]
fn invalid_event_name_falls_back_to_a_uuid() {
    let rng = Rng::with_seed(1);
    assert_eq!(event_name("web-0", 0x1f, &rng), "web-0.1f");
    assert_eq!(event_name("system.node", 255, &rng), "system.node.ff");
    for odd in ["system:node:a", "", "Web", "-a", "a..b", &"x".repeat(251)] {
        let name = event_name(odd, 31, &rng);
        assert!(is_dns_subdomain(&name), "{odd:?} gave {name:?}");
        assert_eq!(name.len(), 36);
        assert_eq!(name.as_bytes()[14], b'4', "version of {name}");
        assert!(
            matches!(name.as_bytes()[19], b'8' | b'9' | b'a' | b'b'),
            "variant of {name}"
        );
    }
}
