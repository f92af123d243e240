//! Server-side apply of a stored object, with and without force.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pintle_fuzz::{Server, deployment};

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::new();
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    let body = deployment().to_string();
    let kind = "application/apply-patch+yaml";
    let (code, _) = server.send(
        "PATCH",
        &format!("{path}?fieldManager=a"),
        kind,
        body.as_bytes(),
    );
    assert_eq!(code, 201);
    server
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, applied)) = input.split_first() else {
        return;
    };
    // Manager `a` owns all fields and drops those it leaves out; manager `b` gets conflicts.
    let manager = if choice & 1 == 0 { "a" } else { "b" };
    let force = choice & 2 == 0;
    let path = format!(
        "/apis/apps/v1/namespaces/default/deployments/web?dryRun=All&fieldManager={manager}&force={force}"
    );
    SERVER.send("PATCH", &path, "application/apply-patch+yaml", applied);
});
