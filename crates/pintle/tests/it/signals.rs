//! `shutdown_on_signal`, tested in a child process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// Set for the child, which runs `shutdown_on_signal` instead of the test.
const CHILD: &str = "PINTLE_TEST_SIGNAL_CHILD";

/// Starts this test binary again as a child that runs only `test`, and waits until it listens.
fn child(test: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("listening")));
    (child, lines)
}

fn send(signal: &str, child: &Child) {
    let command = format!("kill {signal} {}", child.id());
    let status = Command::new("sh").args(["-c", &command]).status();
    assert!(status.unwrap().success());
}

/// How a `main` uses the token.
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
async fn serve() {
    let shutdown = pintle::signals::shutdown_on_signal().unwrap();
    println!("listening");
    shutdown.cancelled().await;
    println!("draining");
    // Work that only a second signal interrupts.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
}

/// Returns whether the tests run under nohup, which the child inherits.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1)
}

/// Proves shutdown/signals.
#[tokio::test]
async fn first_signal_cancels_the_token_second_exits() {
    if std::env::var_os(CHILD).is_some() {
        return serve().await;
    }
    for signal in ["-TERM", "-INT", "-HUP"] {
        if signal == "-HUP" && ignores_hangup() {
            continue;
        }
        let (mut child, mut lines) = child("signals::first_signal_cancels_the_token_second_exits");
        send(signal, &child);
        assert!(lines.any(|line| line.ends_with("draining")), "{signal}");
        assert!(child.try_wait().unwrap().is_none(), "still draining");
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{signal}");
    }
}
