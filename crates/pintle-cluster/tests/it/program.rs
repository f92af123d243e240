//! The program `pintle-cluster`: what its options do, and how it ends.

#![cfg(unix)]
use std::os::unix::fs::PermissionsExt;

use crate::support::{Kubectl, is_ready, program::Program, wait_for};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

async fn client(program: &Program) -> Client {
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Proves cluster/program.
#[tokio::test]
async fn the_options_set_the_nodes_and_the_pace_of_pods() {
    let program = Program::start(&["--nodes", "2", "--pod-ready-after", "2"]);
    assert!(program.greeting.contains("https://127.0.0.1:"));
    assert!(program.greeting.contains("kubectl create deployment"));
    let mode = std::fs::metadata(&program.kubeconfig)
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "it holds a secret");

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

/// Proves cluster/program.
#[tokio::test]
async fn both_ways_to_stop_it_leave_nothing_behind() {
    for signal in ["INT", "TERM"] {
        let program = Program::start(&[]);
        let directory = program.kubeconfig.parent().unwrap().to_owned();
        assert!(directory.exists());
        assert!(program.stop(signal).await.success(), "{signal}");
        assert!(!directory.exists(), "the secret goes with the program");
    }
}

/// Proves cluster/program, auth/kubeconfig-merge.
#[tokio::test]
async fn kubeconfig_gets_a_context_and_keeps_the_others() {
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

/// Proves cluster/program, auth/certificate-names.
#[tokio::test]
async fn program_listens_on_all_addresses_if_told_to() {
    let program = Program::start(&["--listen", "0.0.0.0:0", "--tls-san", "ci.example.com"]);
    assert!(
        program.greeting.contains("https://127.0.0.1:"),
        "{}",
        program.greeting
    );
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.tls_server_name = Some("ci.example.com".to_owned());
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(program.stop("TERM").await.success());
}
