//! The program logs failures and shuts down gracefully on SIGTERM.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use pintle_cluster::Cluster;
use tokio::task::block_in_place;

/// The CRD is missing, which is a common mistake.
///
/// Proves shutdown/signals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_logged_and_sigterm_is_graceful() {
    let cluster = Cluster::start().await;
    let bound = cluster.server().serve("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    block_in_place(|| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_crontab"))
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(program.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("CustomResourceDefinition installed?") {
            assert!(log.read_line(&mut text).unwrap() > 0, "exited: {text}");
        }
        assert!(text.contains("crontabs.stable.example.com"), "{text}");
        let pid = program.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -s TERM $0", &pid])
            .status();
        assert!(sent.unwrap().success());
        log.read_to_string(&mut text).unwrap();
        assert!(program.wait().unwrap().success(), "{text}");
    });
    bound.shutdown().await;
}
