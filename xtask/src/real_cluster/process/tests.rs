use super::*;

fn spawn(folder: &Path, script: &str) -> Process {
    let args = ["-c".to_owned(), script.to_owned()];
    Process::spawn("sh", Path::new("/bin/sh"), &args, &folder.join("log")).unwrap()
}

#[test]
fn process_is_stopped_once() {
    let folder = tempfile::tempdir().unwrap();
    let process = spawn(folder.path(), "sleep 60; true");
    assert!(process.is_alive());
    assert!(process.stop().unwrap());
    assert!(!process.is_alive());
    assert!(!process.stop().unwrap());
}

#[test]
fn reused_pid_is_not_signalled() {
    let folder = tempfile::tempdir().unwrap();
    let process = spawn(folder.path(), "sleep 60; true");
    let older = Process {
        started: "1".into(),
        ..process.clone()
    };
    let other = Process {
        command: "/bin/sh -c true".into(),
        ..process.clone()
    };
    assert!(!older.stop().unwrap());
    assert!(!other.stop().unwrap());
    assert!(process.is_alive());
    process.stop().unwrap();
}

#[test]
fn restart_keeps_the_flags() {
    let folder = tempfile::tempdir().unwrap();
    let first = spawn(folder.path(), "echo begun; sleep 60; true");
    while !first.last_words().contains("begun") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = first.restart().unwrap();
    assert!(!first.is_alive());
    assert!(second.is_alive());
    assert_eq!(second.command, first.command);
    while second.last_words().matches("begun").count() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    second.stop().unwrap();
}

#[test]
fn end_of_log_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo one; echo listen: address already in use >&2; sleep 60; true";
    let process = spawn(folder.path(), script);
    while !process.lost_its_port() {
        std::thread::sleep(Duration::from_millis(5));
    }
    process.stop().unwrap();
    assert!(process.last_words().contains("one"));
}
