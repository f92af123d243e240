use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn outcome(script: &str) -> Outcome {
    run(
        "sh",
        &mut sh(script),
        Duration::from_secs(20),
        &Interrupt::default(),
    )
}

#[test]
fn last_line_is_the_result() {
    let Outcome::Line(line) = outcome("echo warming up; echo '{\"count\":3}'") else {
        panic!("expected a result line");
    };
    assert_eq!(line["count"], 3);
}

#[test]
fn unsupported_is_not_a_failure() {
    let Outcome::Cannot(why) = outcome("echo no index >&2; exit 3") else {
        panic!("expected `Cannot`");
    };
    assert_eq!(why, "no index");
    assert!(matches!(outcome("exit 1"), Outcome::Failed(_)));
    assert!(matches!(outcome("echo hello"), Outcome::Failed(_)));
}

#[test]
fn dropping_a_process_kills_it() {
    let mut running = Running::start("sh", &mut sh("echo ready; sleep 60; true")).unwrap();
    assert_eq!(running.line(Duration::from_secs(20)).unwrap(), "ready");
    let pid = running.pid();
    assert!(running.is_alive());
    drop(running);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn timeout_kills_the_process() {
    let slow = run(
        "sh",
        &mut sh("sleep 60; true"),
        Duration::from_millis(50),
        &Interrupt::default(),
    );
    assert!(matches!(slow, Outcome::Failed(why) if why.contains("not finished within")));
}
