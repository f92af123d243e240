//! JSON, merge and strategic merge patches of a stored object. The first byte selects the format.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pintle_fuzz::{Server, deployment};

const KINDS: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const PATHS: [&str; 2] = ["", "/status"];

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::new();
    server.create(
        "/apis/apps/v1/namespaces/default/deployments",
        &deployment(),
    );
    server
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, patch)) = input.split_first() else {
        return;
    };
    let kind = KINDS[usize::from(*choice) % KINDS.len()];
    let sub = PATHS[usize::from(*choice) / KINDS.len() % PATHS.len()];
    let path = format!("/apis/apps/v1/namespaces/default/deployments/web{sub}?dryRun=All");
    SERVER.send("PATCH", &path, kind, patch);
});
