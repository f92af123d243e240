//! Follows `docs/your-own-crd.md` from beginning to end with the compiled program.
//!
//! The cluster runs in this process and kubectl is simulated, so the test needs neither program.
//! `tests/real` does the same with kubectl and `pintle-cluster`.

use std::fs;

use k8s_openapi::api::batch::v1::CronJob;
use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, PostParams},
};
use pintle_cluster::Cluster;
use tokio::{runtime::Handle, task::block_in_place};

use crate::reader::{Desk, Step, steps, wait_for};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

/// Creates an object like `kubectl apply`.
async fn apply(client: &Client, yaml: &str) -> kube::Result<DynamicObject> {
    let object: DynamicObject = serde_saphyr::from_str(yaml).expect("an object");
    let kind = object.types.clone().expect("a kind");
    let kind = kind.try_into().expect("a group and a version");
    let discovery = Discovery::new(client.clone()).run().await?;
    let (resource, capabilities) = discovery.resolve_gvk(&kind).expect("a known kind");
    let api: Api<DynamicObject> = match capabilities.scope {
        kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        kube::discovery::Scope::Namespaced => {
            Api::default_namespaced_with(client.clone(), &resource)
        }
    };
    api.create(&PostParams::default(), &object).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tutorial_works_without_kubectl() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let desk = Desk::new();
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
                fs::create_dir_all(path.parent().expect("a folder")).expect("created");
                fs::write(path, text).expect("written");
            }
            Step::Type(line) if line.starts_with("cargo run --bin pintle-cluster") => {
                let (_, kubeconfig) = line.split_once(" --kubeconfig ").expect("a file");
                let listener = block_on(cluster.serve("127.0.0.1:0")).expect("a port");
                let written = listener.write_kubeconfig(desk.localize(kubeconfig));
                written.expect("written");
                bound = Some(listener);
            }
            Step::Type(line) if line == "cargo run" => {
                let kubeconfig = terminal.line("echo $KUBECONFIG");
                let running = desk.start("crontab", &line, kubeconfig.trim(), "working on https");
                controller = Some(running);
            }
            Step::Type(line) | Step::See { line, .. } if line.starts_with("kubectl") => {
                // document.rs checks the output of `kubectl get`.
                if let Some((_, file)) = line.split_once("kubectl apply -f ") {
                    let yaml = fs::read_to_string(folder.join(file)).expect("a file");
                    let applied = block_on(apply(&client, &yaml));
                    assert_eq!(applied.is_err(), file.starts_with("broken"), "{applied:?}");
                }
            }
            Step::Type(line) => drop(terminal.line(&desk.localize(&line))),
            Step::See { line, .. } => panic!("output of another program: {line}"),
        }
    }

    let jobs = Api::<CronJob>::default_namespaced(client);
    wait_for("the CronJob", || {
        block_on(jobs.get("my-new-cron-object")).is_ok()
    });
    block_in_place(|| controller.expect("running").interrupt());

    // The result is a separate package whose path dependencies exist.
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
            assert!(fs::exists(path).expect("a path"), "{path} does not exist");
        }
    }
    drop(bound);
}
