use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::real_cluster::credentials::Credentials;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn credentials_are_readable_by_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let dir = RunDir::open(&parent.path().join("a")).unwrap();
    dir.prepare().unwrap();
    let credentials = Credentials::create(&dir.credentials()).unwrap();
    credentials
        .write_kubeconfigs(&dir.kubeconfig(), 6443)
        .unwrap();
    assert_eq!(mode(dir.path()), 0o700);
    assert_eq!(mode(&dir.kubeconfig()), 0o600);
    for file in std::fs::read_dir(dir.credentials()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn stopped_control_plane_leaves_only_logs() {
    let parent = tempfile::tempdir().unwrap();
    let dir = RunDir::open(&parent.path().join("a")).unwrap();
    dir.prepare().unwrap();
    let state = State {
        api_server_port: 1,
        bin: "bin".into(),
        elector: "elector".into(),
        processes: Vec::new(),
    };
    dir.write_state(&state).unwrap();
    assert_eq!(dir.state().unwrap().unwrap().api_server_port, 1);
    std::fs::write(dir.logs().join("etcd.log"), "words").unwrap();
    dir.clear().unwrap();
    assert!(dir.state().unwrap().is_none());
    let mut left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["lock", "logs"]);
}

#[test]
fn directory_in_use_is_not_idle() {
    let parent = tempfile::tempdir().unwrap();
    let used = RunDir::open(&parent.path().join("test-1")).unwrap();
    drop(RunDir::open(&parent.path().join("test-2")).unwrap());
    drop(RunDir::open(&parent.path().join("default")).unwrap());
    let idle = RunDir::idle(parent.path(), "test-").unwrap();
    let names: Vec<_> = idle
        .iter()
        .filter_map(|dir| dir.path().file_name())
        .collect();
    assert_eq!(names, ["test-2"]);
    drop(used);
}
