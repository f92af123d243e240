//! Label and field selectors, in the library and in a request. The first byte selects the
//! parameter.

#![no_main]

use std::{fmt::Write, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use pintle::cache::Selector;
use pintle_fuzz::{Server, deployment};

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::new();
    server.create(
        "/apis/apps/v1/namespaces/default/deployments",
        &deployment(),
    );
    server
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, text)) = input.split_first() else {
        return;
    };
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(selector) = text.parse::<Selector>()
    {
        let shown = selector.to_string();
        let again: Selector = shown.parse().expect("a selector must parse its own text");
        assert_eq!(again.to_string(), shown);
        let labels = [("app", "web"), ("tier", "")];
        assert_eq!(again.matches(labels), selector.matches(labels));
    }
    let parameter = if choice & 1 == 0 {
        "labelSelector"
    } else {
        "fieldSelector"
    };
    let mut path = format!("/apis/apps/v1/deployments?{parameter}=");
    for byte in text {
        let _ = write!(path, "%{byte:02x}");
    }
    SERVER.send("GET", &path, "application/json", b"");
});
