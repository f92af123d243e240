//! Checks `docs/your-own-crd.md`: its files equal those of this package, and its objects, errors
//! and tables are what the cluster accepts and returns.

use std::{fs, path::Path, time::Duration};

use crontab::CronTab;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResourceExt,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use pintle_cluster::Cluster;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the code block that follows the line "`name`:".
fn block(name: &str) -> String {
    let document = read("../../docs/your-own-crd.md");
    let heading = format!("`{name}`:\n\n```");
    let (_, rest) = document
        .split_once(&heading)
        .unwrap_or_else(|| panic!("no code block after `{name}`:"));
    let (_, rest) = rest.split_once('\n').expect("a block");
    let (block, _) = rest.split_once("```").expect("the end of the block");
    block.to_owned()
}

#[test]
fn document_contains_the_files_of_this_package() {
    for file in ["src/lib.rs", "src/main.rs", "tests/controller.rs"] {
        assert_eq!(block(file), read(file), "{file}");
    }
    // The reader works in a folder beside the clone, not inside it.
    let manifest = read("Cargo.toml").replace("../../crates/", "../pintle/crates/");
    let (manifest, _) = manifest.split_once("\n# Below: ").expect("the rest");
    let manifest = manifest.replace("publish = false\n", "");
    let manifest = manifest.replace("http = \"1.5\"\n", "");
    assert_eq!(block("Cargo.toml"), manifest);
}

#[test]
fn document_contains_the_printed_crd() {
    let printed = serde_saphyr::to_string(&CronTab::crd()).expect("YAML");
    assert_eq!(block("crd.yaml"), printed);
}

async fn apply(client: &Client, yaml: &str) -> kube::Result<DynamicObject> {
    let object: DynamicObject = serde_saphyr::from_str(yaml).expect("an object");
    let resource = ApiResource::erase::<CronTab>(&());
    let api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    api.create(&PostParams::default(), &object).await
}

/// Returns the cells that `kubectl get` prints.
async fn table(client: &Client, path: &str) -> Vec<Vec<String>> {
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .expect("a request");
    let response = client.request_text(request).await.expect("a response");
    let table: Value = serde_json::from_str(&response).expect("JSON");
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let mut lines = vec![
        columns
            .iter()
            .map(|column| text(&column["name"]).to_uppercase())
            .collect(),
    ];
    for row in table["rows"].as_array().expect("rows") {
        lines.push(
            row["cells"]
                .as_array()
                .expect("cells")
                .iter()
                .map(text)
                .collect(),
        );
    }
    lines
}

#[tokio::test(start_paused = true)]
async fn documented_steps_have_the_documented_results() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let definition = serde_saphyr::from_str(&block("crd.yaml")).expect("a definition");
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("created");

    let result = apply(&client, &block("broken-crontab.yaml")).await;
    let error = result.expect_err("two violations").to_string();
    let shown = block("rejected");
    let mut shown = shown.lines();
    // kubectl's own line, then one line per cause.
    assert_eq!(shown.next(), Some(r#"The CronTab "broken" is invalid:"#));
    for line in shown {
        let cause = line.strip_prefix("* ").expect("a cause");
        assert!(error.contains(cause), "{cause:?} is not in {error}");
    }

    let shutdown = CancellationToken::new();
    let (running, stop) = (client.clone(), shutdown.clone());
    let controller = tokio::spawn(async move { crontab::run(running, &stop).await });
    apply(&client, &block("my-crontab.yaml"))
        .await
        .expect("created");
    tokio::time::sleep(Duration::from_secs(5)).await;

    for (name, path) in [
        (
            "kubectl get ct",
            "/apis/stable.example.com/v1/namespaces/default/crontabs",
        ),
        (
            "kubectl get cronjobs",
            "/apis/batch/v1/namespaces/default/cronjobs",
        ),
    ] {
        let shown = block(name);
        let table = table(&client, path).await;
        // Cells are separated by at least two spaces. The last one is the age, which varies.
        let split = |line: &str| -> Vec<String> {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect()
        };
        for (line, row) in shown.lines().zip(&table) {
            let shown = split(line);
            let row: Vec<_> = row.iter().take(shown.len()).cloned().collect();
            let known = shown.len() - usize::from(shown.last() != row.last());
            assert_eq!(shown[..known], row[..known], "{name}");
        }
        assert_eq!(shown.lines().count(), table.len(), "{name}");
    }
    shutdown.cancel();
    controller
        .await
        .expect("no panic")
        .expect("a clean shutdown");
}
