//! The default log output when the cluster is misconfigured: no CRD, wrong credentials, no
//! permissions, no server.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use pintle_apiserver::ApiServer;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::timeout,
};

use crate::program::{Program, TIMEOUT};

/// Reads the log until `enough` returns true, then stops the program and returns the whole log.
async fn logged(mut program: Program, mut enough: impl FnMut(&str) -> bool) -> String {
    let mut log = BufReader::new(program.process.stderr.take().unwrap());
    let mut text = String::new();
    let read = async {
        while !enough(&text) {
            let mut line = String::new();
            assert!(
                log.read_line(&mut line).await.unwrap() > 0,
                "exited: {text}"
            );
            text += &line;
        }
        program.signal(Signal::TERM);
        log.read_to_string(&mut text).await.unwrap();
        program.process.wait().await.unwrap()
    };
    let ended = timeout(TIMEOUT, read).await;
    assert!(ended.expect("timed out").success(), "{text}");
    text
}

/// Returns the warnings about one of the two kinds the controller watches.
fn warnings<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines
        .filter(|line| line.contains(" WARN ") && line.contains(kind))
        .collect()
}

const FOOS: &str = "foos.samplecontroller.k8s.io";
const DEPLOYMENTS: &str = "deployments.apps";

fn both(text: &str) -> bool {
    !warnings(text, FOOS).is_empty() && !warnings(text, DEPLOYMENTS).is_empty()
}

fn on(kubeconfig: &Path) -> Program {
    Program::start(&["--kubeconfig", kubeconfig.to_str().unwrap()])
}

/// Proves sample/says-what-is-wrong, reflector/status.
#[tokio::test]
async fn missing_crd_is_one_warning() {
    let bound = ApiServer::builder().build().serve("127.0.0.1:0").await;
    let (bound, folder) = (bound.unwrap(), tempfile::tempdir().unwrap());
    let kubeconfig = folder.path().join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    let log = logged(on(&kubeconfig), |text| !warnings(text, FOOS).is_empty()).await;
    let logged = warnings(&log, FOOS);
    assert_eq!(logged.len(), 1, "{log}");
    for part in [
        "cannot list or watch; retrying",
        "404",
        "is its CustomResourceDefinition installed?",
    ] {
        assert!(logged[0].contains(part), "{part:?} is missing in {log}");
    }
    assert!(warnings(&log, DEPLOYMENTS).is_empty(), "{log}");
    bound.shutdown().await;
}

/// Proves sample/says-what-is-wrong, reflector/status.
#[tokio::test]
async fn wrong_token_and_untrusted_certificate_are_warnings() {
    let bound = ApiServer::builder().build().serve("127.0.0.1:0").await;
    let other = ApiServer::builder().build().serve("127.0.0.1:0").await;
    let (bound, other) = (bound.unwrap(), other.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    let right = std::fs::read_to_string(&kubeconfig).unwrap();
    let token = right.lines().find(|line| line.trim().starts_with("token:"));
    let wrong = right.replace(token.expect("a token"), "    token: wrong");
    std::fs::write(&kubeconfig, wrong).unwrap();
    let log = logged(on(&kubeconfig), both).await;
    for kind in [FOOS, DEPLOYMENTS] {
        let logged = warnings(&log, kind);
        assert_eq!(logged.len(), 1, "{log}");
        assert!(logged[0].contains("401 Unauthorized"), "{log}");
    }

    std::fs::write(&kubeconfig, right.replace(&bound.url(), &other.url())).unwrap();
    let log = logged(on(&kubeconfig), both).await;
    for kind in [FOOS, DEPLOYMENTS] {
        let logged = warnings(&log, kind);
        assert_eq!(logged.len(), 1, "{log}");
        assert!(logged[0].contains("certificate"), "{log}");
    }
    bound.shutdown().await;
    other.shutdown().await;
}

/// Proves sample/says-what-is-wrong, reflector/status.
#[tokio::test]
async fn unreachable_server_is_a_warning() {
    // A port that was just free and is now closed.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let log = logged(Program::start(&["--master", &url]), both).await;
    for kind in [FOOS, DEPLOYMENTS] {
        let logged = warnings(&log, kind);
        assert!(logged[0].contains("cannot reach the API server"), "{log}");
    }
    assert!(!log.contains("kube_client"), "kube repeats it: {log}");
}

fn forbidden() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": "User \"alice\" cannot list this",
    });
    let (status, code) = (status.to_string(), "403 Forbidden");
    format!(
        "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{status}",
        status.len()
    )
}

/// Proves sample/says-what-is-wrong, reflector/status.
#[tokio::test]
async fn missing_permissions_are_logged_at_a_falling_rate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&requests);
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let requests = Arc::clone(&counting);
            tokio::spawn(async move {
                // Answers one request per connection.
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                    line.clear();
                }
                requests.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(forbidden().as_bytes()).await;
            });
        }
    });
    // There is one warning per reflector, even after several retries.
    let many = Arc::clone(&requests);
    let program = Program::start(&["--master", &url]);
    let waiting = tokio::spawn(async move {
        while many.load(Ordering::SeqCst) < 8 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    timeout(TIMEOUT, waiting)
        .await
        .expect("eight requests in time")
        .unwrap();
    let log = logged(program, both).await;
    for kind in [FOOS, DEPLOYMENTS] {
        let logged = warnings(&log, kind);
        assert_eq!(logged.len(), 1, "{log}");
        assert_eq!(logged[0].matches("cannot list this").count(), 1, "{log}");
        assert!(logged[0].contains("403 Forbidden"), "{log}");
    }
    serving.abort();
}
