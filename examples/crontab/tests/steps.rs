//! `docs/your-own-crd.md`, typed from its first line to its last, with the program itself at work.
//!
//! The cluster is in this process, and what kubectl would be asked goes to it directly: not everybody
//! who runs the tests has one. `tutorial.rs` does the same with kubectl and the program
//! `pintle-cluster`, where `cargo xtask test-real` brings them.

#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod reader;

use std::fs;

use k8s_openapi::api::batch::v1::CronJob;
use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, PostParams},
};
use pintle_cluster::Cluster;
use reader::{Desk, Step, steps, wait_for};
use tokio::{runtime::Handle, task::block_in_place};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

/// What `kubectl apply` does with a file that is new to the cluster.
async fn apply(client: &Client, yaml: &str) -> kube::Result<DynamicObject> {
    let object: DynamicObject = serde_saphyr::from_str(yaml).expect("an object");
    let kind = object.types.clone().expect("a kind");
    let kind = kind.try_into().expect("a group and a version");
    let known = Discovery::new(client.clone()).run().await?;
    let (resource, of) = known.resolve_gvk(&kind).expect("a known kind");
    let api: Api<DynamicObject> = match of.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        kube::discovery::Scope::Namespaced => {
            Api::default_namespaced_with(client.clone(), &resource)
        }
    };
    api.create(&PostParams::default(), &object).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reader_types_works() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let desk = Desk::new("steps");
    let mut terminal = desk.terminal(".");
    let folder = desk.folder.join("crontab");
    let (mut bound, mut controller) = (None, None);
    for step in steps() {
        match step {
            Step::File { name, text } if name == "crd.yaml" => {
                let printed = fs::read_to_string(folder.join(&name)).expect("printed");
                assert_eq!(printed, text, "{name}");
            }
            Step::File { name, text } => {
                let path = folder.join(&name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, text).expect("written");
            }
            Step::Type(line) if line.starts_with("cargo run -p pintle-cluster") => {
                let (_, kubeconfig) = line.split_once(" --kubeconfig ").expect("a file");
                let listening = block_on(cluster.serve("127.0.0.1:0")).expect("a port");
                let written = listening.write_kubeconfig(desk.own(kubeconfig));
                written.expect("written");
                bound = Some(listening);
            }
            Step::Type(line) if line == "cargo run" => {
                let kubeconfig = terminal.line("echo $KUBECONFIG");
                let running = desk.start("crontab", &line, kubeconfig.trim(), "working on https");
                controller = Some(running);
            }
            Step::Type(line) | Step::See { line, .. } if line.starts_with("kubectl") => {
                // What is got is looked at in document.rs.
                if let Some((_, file)) = line.split_once("kubectl apply -f ") {
                    let yaml = fs::read_to_string(folder.join(file)).expect("a file");
                    let applied = block_on(apply(&client, &yaml));
                    assert_eq!(applied.is_err(), file.starts_with("broken"), "{applied:?}");
                }
            }
            Step::Type(line) => drop(terminal.line(&desk.own(&line))),
            Step::See { line, .. } => panic!("shown without kubectl: {line}"),
        }
    }

    let jobs = Api::<CronJob>::default_namespaced(client);
    wait_for("the CronJob", || {
        block_on(jobs.get("my-new-cron-object")).is_ok()
    });
    block_in_place(|| controller.expect("it runs").interrupt());

    // What the reader has now is a package of its own, whose dependencies are where it says.
    let described = terminal.line("cargo metadata --no-deps --offline --format-version=1");
    let described: serde_json::Value = serde_json::from_str(&described).expect("JSON");
    let package = &described["packages"][0];
    let targets = package["targets"].as_array().expect("targets");
    let targets: Vec<_> = targets
        .iter()
        .filter_map(|t| t["kind"][0].as_str())
        .collect();
    assert_eq!(targets, ["lib", "bin", "test"]);
    for dependency in package["dependencies"].as_array().expect("dependencies") {
        if let Some(path) = dependency["path"].as_str() {
            assert!(fs::exists(path).expect("a path"), "{path} is not there");
        }
    }
    drop(bound);
}
