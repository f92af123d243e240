//! The program `pintle-cluster`: options, kubeconfig, signals.

#![cfg(unix)]
use std::{
    io::Read as _,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Kubectl, is_ready, program::Program, wait_for};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

async fn config(program: &Program) -> Config {
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.unwrap()
}

async fn client(program: &Program) -> Client {
    Client::try_from(config(program).await).unwrap()
}

/// Proves cluster/program.
#[tokio::test]
async fn options_set_node_count_and_pod_delay() {
    let program = Program::start(&["--nodes", "2", "--pod-ready-after", "2"]);
    assert!(program.greeting.contains("https://127.0.0.1:"));
    assert!(program.greeting.contains("kubectl create deployment"));
    let mode = std::fs::metadata(&program.kubeconfig)
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "contains a token");

    let client = client(&program).await;
    let nodes = Api::<Node>::all(client.clone());
    let names = wait_for("the nodes", async || {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        let names: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
        (names.len() > 1).then_some(names)
    })
    .await;
    assert_eq!(names, ["node-0", "node-1"]);

    let kubectl = Kubectl::new(client);
    kubectl
        .create::<Pod>(json!({
            "metadata": { "name": "web" },
            "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
        }))
        .await;
    let pod = wait_for("the Pod to run", async || {
        Some(kubectl.get::<Pod>("web").await).filter(is_ready)
    })
    .await;
    let status = pod.status.unwrap();
    let mut conditions = status.conditions.unwrap().into_iter();
    let ready = conditions.find(|c| c.type_ == "Ready").unwrap();
    let (start, ready) = (
        status.start_time.unwrap(),
        ready.last_transition_time.unwrap(),
    );
    let took = ready.0.duration_since(start.0).as_secs();
    assert!((2..6).contains(&took), "{took} s");
    assert!(program.stop("INT").await.success());
}

/// Proves cluster/program, rbac/defaults.
#[test]
fn unknown_authorization_modes_are_rejected() {
    let output = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"))
        .args(["--authorization-mode", "Webhook"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error
            .contains("authorization mode \"Webhook\" is not implemented; use RBAC or AlwaysAllow"),
        "{error}"
    );
}

/// Returns whether the tests run under nohup, which the program inherits.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1)
}

/// Proves cluster/program.
#[tokio::test]
async fn every_signal_cleans_up() {
    for signal in ["INT", "TERM", "HUP"] {
        if signal == "HUP" && ignores_hangup() {
            continue;
        }
        let program = Program::start(&[]);
        let directory = program.kubeconfig.parent().unwrap().to_owned();
        assert!(directory.exists());
        assert!(program.stop(signal).await.success(), "{signal}");
        assert!(!directory.exists(), "the token is left behind");
    }
}

/// Proves cluster/program, auth/kubeconfig.
#[tokio::test]
async fn context_is_added_to_the_kubeconfig_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let foreign = "apiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster:\n    \
                   server: https://prod.example.com\ncurrent-context: prod\n";
    std::fs::write(&path, foreign).unwrap();
    let program = Program::start(&["--kubeconfig", path.to_str().unwrap(), "--context", "trial"]);
    assert!(
        program.greeting.contains("was: prod"),
        "{}",
        program.greeting
    );
    let during = Kubeconfig::read_from(&path).unwrap();
    assert_eq!(during.current_context.as_deref(), Some("trial"));
    let names = |config: &Kubeconfig| -> Vec<String> {
        config
            .clusters
            .iter()
            .map(|cluster| cluster.name.clone())
            .collect()
    };
    assert_eq!(names(&during), ["prod", "trial"]);
    let nodes = Api::<Node>::all(client(&program).await);
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(program.stop("INT").await.success());
    let after = Kubeconfig::read_from(&path).unwrap();
    assert_eq!(after.current_context.as_deref(), Some("prod"));
    assert_eq!(names(&after), ["prod"]);
}

/// Proves cluster/program.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn ignored_sighup_does_not_stop_the_program() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' HUP; exec \"$0\"",
        env!("CARGO_BIN_EXE_pintle-cluster"),
    ]);
    let program = Program::spawn(command);
    program.signal("HUP");
    let nodes = Api::<Node>::all(client(&program).await);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        nodes.list(&ListParams::default()).await.unwrap();
    }
    assert!(program.stop("TERM").await.success());
}

/// Proves cluster/program, auth/kubeconfig.
#[test]
fn context_is_removed_when_the_greeting_cannot_be_printed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let foreign = "apiVersion: v1\nkind: Config\ncurrent-context: prod\n";
    std::fs::write(&path, foreign).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"))
        .arg("--kubeconfig")
        .arg(&path)
        .stdout(writer)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
    let after = Kubeconfig::read_from(&path).unwrap();
    assert_eq!(after.current_context.as_deref(), Some("prod"));
    assert!(after.clusters.is_empty(), "{:?}", after.clusters);
}

/// Proves cluster/program, auth/kubeconfig.
#[tokio::test]
async fn context_is_removed_after_a_short_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let lock = directory.path().join("config.lock");
    let program = Program::start(&["--kubeconfig", path.to_str().unwrap()]);
    std::fs::write(&lock, "").unwrap();
    let release = async {
        // Longer than the program takes to stop, shorter than it waits for the lock.
        tokio::time::sleep(Duration::from_millis(500)).await;
        std::fs::remove_file(&lock).unwrap();
    };
    let (status, ()) = tokio::join!(program.stop("TERM"), release);
    assert!(status.success());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Proves cluster/program, auth/certificate-names.
#[tokio::test]
async fn listens_beyond_loopback_on_request() {
    let program = Program::start(&["--listen", "0.0.0.0:0", "--tls-san", "ci.example.com"]);
    let greeting = &program.greeting;
    assert!(greeting.contains("listening on 0.0.0.0:"), "{greeting}");
    assert!(
        greeting.contains("(local: https://127.0.0.1:"),
        "{greeting}"
    );
    let mut config = config(&program).await;
    config.tls_server_name = Some("ci.example.com".to_owned());
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(program.stop("TERM").await.success());
}

/// Proves cluster/program, auth/kubeconfig.
#[tokio::test]
async fn second_cluster_does_not_take_over_the_context() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let program = Program::start(&["--kubeconfig", path.to_str().unwrap()]);
    let before = std::fs::read_to_string(&path).unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"))
        .arg("--kubeconfig")
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut why, mut stderr) = (String::new(), second.stderr.take().unwrap());
    let mut status = None;
    for _ in 0..600 {
        status = second.try_wait().unwrap();
        if status.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    second.kill().unwrap();
    stderr.read_to_string(&mut why).unwrap();
    assert_eq!(status.expect("still running").code(), Some(1), "{why}");
    assert!(why.contains("choose another context name"), "{why}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let nodes = Api::<Node>::all(client(&program).await);
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(program.stop("TERM").await.success());
    assert!(!path.exists());
}

/// Runs `pintle-cluster validate` on a CRD of Foos with a rule, and on samples.
fn validate(rule: &str, samples: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "kind": "Foo" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object", "properties": { "spec": {
                    "type": "object", "properties": { "replicas": { "type": "integer" } },
                    "x-kubernetes-validations": [{ "rule": rule, "message": "too many" }],
                } } } } }],
        },
    });
    let crds = directory.path().join("crds");
    std::fs::create_dir(&crds).unwrap();
    std::fs::write(crds.join("foo.json"), crd.to_string()).unwrap();
    let path = directory.path().join("sample.yaml");
    std::fs::write(&path, samples).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"))
        .args(["validate".as_ref(), crds.as_os_str(), path.as_os_str()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let prefix = format!("{}/", directory.path().display());
    (output.status.code(), text.replace(&prefix, ""))
}

/// Returns the YAML of a ConfigMap and a Foo.
fn samples(version: &str, replicas: i64) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: example.com/{version}\nkind: Foo\n\
         metadata: {{name: a}}\nspec: {{replicas: {replicas}}}\n"
    )
}

/// Proves cluster/validate.
#[test]
fn validate_reports_problems_of_crds_and_samples() {
    let (code, text) = validate("self.replicas <= 5", &samples("v1", 3));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        text,
        "1 CRDs and 1 objects checked, 1 objects of other kinds skipped: 0 problems\n"
    );
    let (code, text) = validate("self.replicas <= 5", &samples("v1", 6));
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(
            "sample.yaml: Foo.example.com \"a\" is invalid: spec: Invalid value: too many"
        ),
        "{text}"
    );
    let (code, text) = validate("self.replcias <= 5", &samples("v1", 6));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("undefined field 'replcias'"), "{text}");
}

/// Proves cluster/validate.
#[test]
fn validate_rejects_versions_that_are_not_served() {
    let (code, text) = validate("self.replicas <= 5", &samples("v2", 3));
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(
        text,
        "sample.yaml: Foo \"a\": foos.example.com does not serve \"Foo\" of \
         \"example.com/v2\"\n\
         1 CRDs and 1 objects checked, 1 objects of other kinds skipped: 1 problems\n"
    );
}

/// Proves cluster/validate.
#[test]
fn validate_lists_objects_of_invalid_crds() {
    let (code, text) = validate("self.replcias <= 5", &samples("v1", 3));
    assert_eq!(code, Some(1), "{text}");
    let expected = "sample.yaml: Foo \"a\": not checked, because its CRD is invalid\n\
        1 CRDs and 0 objects checked, 1 objects of invalid CRDs not checked, 1 objects of other \
        kinds skipped: 1 problems\n";
    assert!(text.ends_with(expected), "{text}");
}

/// Proves cluster/script, cluster/program.
#[tokio::test]
async fn script_adds_nodes_and_invalid_scripts_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.yaml");
    std::fs::write(&path, "nodes: [{ name: gpu-0, labels: { disk: ssd } }]").unwrap();
    let options = ["--nodes", "1", "--script", path.to_str().unwrap()];
    let program = Program::start(&options);
    let nodes = Api::<Node>::all(client(&program).await);
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = nodes
        .iter()
        .map(|node| node.metadata.name.clone())
        .collect();
    assert_eq!(names, [Some("gpu-0".to_owned()), Some("node-0".to_owned())]);
    assert!(program.stop("INT").await.success());

    std::fs::write(&path, "pods: [{ behavior: fly }]").unwrap();
    let failed = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"))
        .args(options)
        .output()
        .unwrap();
    let message = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success());
    assert!(
        message.contains("script.yaml") && message.contains("unknown verb"),
        "{message}"
    );
}
