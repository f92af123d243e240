//! Installs real CRDs on kube-apiserver and on our server, creates the same objects on both, and
//! compares every response.
//!
//! The CRDs and their samples come from the modules in `corpus/modules.txt`; `cargo xtask
//! test-real` fetches them. Further objects are generated from the schemas, see [`generate`]: valid
//! ones, and for every constraint one that violates it. A run sends a fixed selection of these;
//! `cargo xtask test-real --full-corpus` sends them all.
//!
//! A different response fails the test unless `corpus/accepted.txt` lists it with a reason. An
//! entry there that no longer applies also fails the test.

mod generate;
mod load;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use futures::{StreamExt as _, stream};
use pintle_apiserver::ApiServer;
use pintle_apiserver::crd::Crd;
use real_tests::{FULL_CORPUS_VARIABLE, client_of, corpus_client};
use serde_json::Value;

use self::generate::cases;
use self::load::{Definition, load};
use self::server::{Answer, Server};
use crate::differential::compare::{Accepted, Difference, accepted, differences};

/// The number of CRDs compared concurrently.
const CONCURRENCY: usize = 6;

/// How many violations are sent for one version of a CRD.
const SELECTION: usize = 14;
const FULL_SELECTION: usize = 1_000;

/// How many CRDs of one module are installed, unless the full corpus is.
const PER_MODULE: usize = 30;

/// The minimum number of CRDs in the corpus.
const FEWEST: usize = 500;

/// The comparisons made so far.
#[derive(Default)]
struct Figures {
    crds: usize,
    crds_identical: usize,
    objects: usize,
    objects_identical: usize,
    objects_accepted: usize,
    rules: usize,
    costs: usize,
    costs_identical: usize,
}

#[derive(Default)]
struct Results {
    figures: Figures,
    compared: BTreeSet<String>,
    /// The entries of `accepted.txt` that no comparison has matched yet.
    open: Vec<Accepted>,
    unaccepted: Vec<(String, Difference)>,
}

impl Results {
    fn new() -> Self {
        let path = format!("{}/corpus/accepted.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self {
            open: accepted(&text),
            ..Self::default()
        }
    }

    /// Records a comparison. Returns whether the responses are identical.
    fn compare(&mut self, label: String, real: &Answer, ours: &Answer) -> bool {
        let all = differences(&real.compared(), &ours.compared());
        let identical = all.is_empty();
        for difference in all {
            let known = self.open.iter();
            if let Some(index) = known.clone().position(|it| it.matches(&label, &difference)) {
                drop(self.open.remove(index));
            } else {
                // A run takes minutes, so differences are shown when they are found.
                show(&format!("{label}\n{difference}\n"));
                self.unaccepted.push((label.clone(), difference));
            }
        }
        self.compared.insert(label);
        identical
    }
}

/// Writes to standard error directly, because the test harness captures `eprintln!`.
fn show(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// Real CRDs are stored alike, and objects of their kinds get the same responses.
///
/// Proves crd/corpus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_crds_behave_alike() {
    let full = std::env::var_os(FULL_CORPUS_VARIABLE).is_some();
    let definitions = load(if full { usize::MAX } else { PER_MODULE });
    assert!(definitions.len() >= FEWEST, "{} CRDs", definitions.len());
    let only = std::env::var("PINTLE_CRD_CORPUS_ONLY").unwrap_or_default();
    let embedded = ApiServer::builder().build();
    let bound = embedded.serve("127.0.0.1:0").await.unwrap();
    let (real, ours) = (
        Server::new(corpus_client().await),
        Server::new(client_of(&bound.kubeconfig()).await),
    );
    let results = Mutex::new(Results::new());
    stream::iter(definitions.iter().filter(|it| it.name().contains(&only)))
        .for_each_concurrent(CONCURRENCY, |definition| async {
            try_definition(&real, &ours, definition, full, &results).await;
        })
        .await;
    bound.shutdown().await;
    report(&results.into_inner().unwrap(), only.is_empty());
}

async fn try_definition(
    real: &Server,
    ours: &Server,
    definition: &Definition,
    full: bool,
    results: &Mutex<Results>,
) {
    let name = definition.name();
    let most = if full { FULL_SELECTION } else { SELECTION };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let create = format!("{crds}?fieldManager=corpus");
    let dry_run = format!("{create}&dryRun=All");
    let path = format!("{crds}/{name}");

    let mut identical = true;
    if definition.has_webhook() {
        let original = &definition.object;
        let (a, b) = tokio::join!(real.post(&dry_run, original), ours.post(&dry_run, original));
        let label = format!("{name}/dry-run");
        identical = results.lock().unwrap().compare(label, &a, &b);
    }
    if definition.has_rules() {
        try_costs(real, ours, definition, full, results).await;
    }
    // No conversion webhook is running.
    let plain = definition.without_webhook();
    let (a, b) = tokio::join!(real.post(&create, &plain), ours.post(&create, &plain));
    let accepted = a.code == 201;
    if accepted && b.code == 201 {
        let (a, b) = tokio::join!(real.established(&path), ours.established(&path));
        identical &= results
            .lock()
            .unwrap()
            .compare(format!("{name}/stored"), &a, &b);
        try_objects(real, ours, definition, &plain, most, results).await;
    } else {
        identical &= results
            .lock()
            .unwrap()
            .compare(format!("{name}/create"), &a, &b);
    }
    {
        let figures = &mut results.lock().unwrap().figures;
        figures.crds += 1;
        figures.crds_identical += usize::from(identical);
        if accepted {
            figures.rules += definition.rules();
        }
    }
    tokio::join!(real.delete(&path), ours.delete(&path));
}

/// Compares estimated costs: without limits in the schema, rules exceed their budget, and the
/// message says by how much.
async fn try_costs(
    real: &Server,
    ours: &Server,
    definition: &Definition,
    full: bool,
    results: &Mutex<Results>,
) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let variants = if full { usize::MAX } else { 1 };
    for (label, changed) in definition.costly().into_iter().take(variants) {
        let (a, b) = tokio::join!(real.post(path, &changed), ours.post(path, &changed));
        let mut results = results.lock().unwrap();
        let label = format!("{}/{label}", definition.name());
        let identical = results.compare(label, &a, &b);
        results.figures.costs += 1;
        results.figures.costs_identical += usize::from(identical);
    }
}

async fn try_objects(
    real: &Server,
    ours: &Server,
    definition: &Definition,
    plain: &Value,
    most: usize,
    results: &Mutex<Results>,
) {
    let Ok(crd) = Crd::from_value(plain.clone()) else {
        return;
    };
    let name = definition.name();
    for version in definition.versions().filter(|it| it["served"] == true) {
        let version_name = version["name"].as_str().unwrap_or_default();
        let schema = &version["schema"]["openAPIV3Schema"];
        let api_version = format!("{}/{version_name}", definition.group());
        let mut all: Vec<(String, Value)> = cases(&crd, schema, &api_version, most)
            .into_iter()
            .map(|case| (case.label, case.object))
            .collect();
        let samples = definition.samples.iter().enumerate();
        let samples = samples.filter(|(_, it)| it["apiVersion"] == api_version.as_str());
        all.extend(samples.map(|(index, it)| (format!("sample-{index}"), it.clone())));
        for (label, mut object) in all {
            let path = definition.collection(version_name, &mut object);
            let strict = if label.starts_with("unknown") {
                "&fieldValidation=Strict"
            } else {
                ""
            };
            let path = format!("{path}?dryRun=All&fieldManager=corpus{strict}");
            let (a, b) = tokio::join!(
                real.post_when_served(&path, &object),
                ours.post(&path, &object)
            );
            let mut results = results.lock().unwrap();
            let label = format!("{name}/{version_name}/{label}");
            let identical = results.compare(label, &a, &b);
            results.figures.objects += 1;
            results.figures.objects_identical += usize::from(identical);
            results.figures.objects_accepted += usize::from(a.code == 201);
        }
    }
}

/// Prints the figures. Panics if there are unaccepted differences or stale entries in
/// `accepted.txt`, if only part of the corpus was compared, or if over 0.5 % of the responses to
/// objects differ.
fn report(results: &Results, whole: bool) {
    let figures = &results.figures;
    show(&format!(
        "corpus: {}/{} CRDs identical, {} rules type-checked, {}/{} cost estimates identical, \
         {}/{} responses to objects identical ({} of them accepted)\n",
        figures.crds_identical,
        figures.crds,
        figures.rules,
        figures.costs_identical,
        figures.costs,
        figures.objects_identical,
        figures.objects,
        figures.objects_accepted,
    ));
    let mut report = String::new();
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for (label, difference) in &results.unaccepted {
        let kind = label.rsplit('/').next().unwrap_or_default();
        let kind = kind.split(['.', '-']).next().unwrap_or_default();
        *groups
            .entry(format!("{kind} {}", difference.path))
            .or_default() += 1;
    }
    for (group, count) in groups {
        let _ = writeln!(report, "{count} times {group}");
    }
    let stale = results.open.iter();
    for line in stale.filter(|line| results.compared.contains(&line.step)) {
        let _ = writeln!(
            report,
            "{} {}\n  is listed in accepted.txt but does not differ that way",
            line.step, line.path
        );
    }
    assert!(report.is_empty(), "the servers differ\n{report}");
    assert!(whole, "only part of the corpus was compared");
    let identical = figures.objects_identical * 1000;
    assert!(identical >= figures.objects * 995, "too many differences");
}
