use pintle::inspect::{Controller, Informer, KeyRow};

use super::*;

#[test]
fn frame_shows_queues_rates_and_reasons() {
    let mut before = Now {
        program: "shop".to_owned(),
        now: 10.0,
        controllers: vec![Controller {
            name: "foos".to_owned(),
            workers: 2,
            ..Controller::default()
        }],
        ..Now::default()
    };
    before.controllers[0].totals.reconciles = 100;
    let mut now = before.clone();
    now.now = 12.0;
    now.controllers[0].totals.reconciles = 150;
    now.controllers[0].queue.ready = 7;
    now.informers.push(Informer {
        name: "pods".to_owned(),
        state: "syncing".to_owned(),
        reason: "403".to_owned(),
        ..Informer::default()
    });
    now.keys.push(KeyRow {
        key: "default/a".to_owned(),
        state: KeyState::Delayed { left: 3.2 },
        why: "it is broken".to_owned(),
        ..KeyRow::default()
    });
    let text = frame(&now, Some(&before)).join("\n");
    for part in [
        "25.0",
        " 7 ",
        "pods is syncing: 403",
        "default/a",
        "waits 3 s",
        "it is broken",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn text_of_the_operator_cannot_control_the_terminal() {
    let evil = "\x1b]52;c;x\x07\n".to_owned();
    let mut now = Now {
        program: evil.clone(),
        ..Now::default()
    };
    now.controllers.push(Controller {
        name: evil.clone(),
        ..Controller::default()
    });
    now.informers.push(Informer {
        name: evil.clone(),
        state: evil.clone(),
        reason: evil.clone(),
        ..Informer::default()
    });
    now.keys.push(KeyRow {
        key: evil.clone(),
        why: evil.clone(),
        ..KeyRow::default()
    });
    for line in frame(&now, None) {
        assert!(
            !line.contains("\x1b]") && !line.contains(['\x07', '\n']),
            "{line:?}"
        );
    }
}

#[test]
fn last_url_is_deleted_only_by_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pintle").join("inspector-url");
    let first = LastUrl::write_to(Some(path.clone()), "http://127.0.0.1:1/");
    let second = LastUrl::write_to(Some(path.clone()), "http://127.0.0.1:2/");
    drop(first);
    assert_eq!(fs::read_to_string(&path).unwrap(), "http://127.0.0.1:2/");
    drop(second);
    assert!(!path.exists());
}
