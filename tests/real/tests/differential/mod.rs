//! The differential: the same requests to the pinned kube-apiserver and to ours, the answers
//! compared field by field.
//!
//! The corpus is data, one file per area in `differential/`. Requests of one scenario build on each
//! other and have a namespace of their own; scenarios do not know each other. An answer that differs
//! fails the test of its area, unless `accepted.txt` lists that very field with a reason; a line
//! there that no longer differs fails it, too.
//!
//! The kube-apiserver is one without a controller manager: nothing but the requests changes what is
//! stored.

mod compare;
mod mask;
mod script;
mod side;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::{StreamExt as _, stream};
use kube::Client;
use pintle_apiserver::{ApiServer, PodDeletion};
use real_tests::{bare_client, bare_stranger, client_of, stranger_of};

use self::compare::{Accepted, Difference, accepted, differences};
use self::script::{Scenario, Step, parse};
use self::side::Side;

/// A file of the corpus.
fn file(name: &str) -> String {
    let path = format!("{}/differential/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn all_accepted() -> Vec<Accepted> {
    accepted(&file("accepted.txt"))
}

/// How many scenarios of an area run at a time.
const AT_A_TIME: usize = 4;

macro_rules! areas {
    ($($area:ident)*) => {
        const AREAS: &[&str] = &[$(stringify!($area)),*];

        $(
            #[tokio::test]
            async fn $area() {
                replay(stringify!($area)).await;
            }
        )*
    };
}

areas! {
    metadata
    concurrency
    patches
    apply
    deletion
    lists
    watches
    subresources
    accounts
    versions
    crds
    errors
    defaults
    tables
    discovery
    protobuf
    services
}

/// Promises of the API server that the corpus does not have to show, because a request and its
/// answer cannot, or because other tests do.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "connections and listeners",
        &[
            "auth/certificate-names",
            "auth/in-process",
            "auth/issuer",
            "auth/kubeconfig-merge",
            "auth/listener",
            "auth/secrets",
            "serve/connection-limit",
            "serve/load",
            "serve/timeouts",
            "wire/http",
            "wire/watch-websocket",
        ],
    ),
    (
        "time, memory and slow clients",
        &[
            "delete/observable",
            "objects/linear-installs",
            "watch/expired",
            "watch/history-bounded",
            "watch/slow",
        ],
    ),
    (
        "limits and choices of our own",
        &[
            "bootstrap/component-status",
            "bootstrap/no-aggregation",
            "crd/objects-outlive-versions",
            "errors/cel-stack",
            "errors/depth",
            "errors/no-panic",
            "errors/not-implemented",
            "objects/no-silent-storage",
            "testing/points",
            "wire/field-order-and-pretty",
        ],
    ),
    (
        "areas of the corpus that cite no single promise",
        &[
            "bootstrap/objects",
            "objects/autoscaler-versions",
            "objects/csr-requester",
            "objects/defaults",
            "objects/service-allocation",
            "objects/validation",
        ],
    ),
];

/// The promises that the corpus must show at least twice.
fn served() -> Vec<String> {
    let path = format!("{}/../../docs/guarantees.md", env!("CARGO_MANIFEST_DIR"));
    let promises = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    let section = promises
        .split("\n## ")
        .find(|section| section.starts_with("API server\n"));
    let ids = section.unwrap_or_default().lines().filter_map(|line| {
        let id = line.strip_prefix("- **")?.split_once("**")?.0;
        Some(id.to_owned())
    });
    let served: Vec<String> = ids
        .filter(|id| !ELSEWHERE.iter().any(|(_, ids)| ids.contains(&id.as_str())))
        .collect();
    assert!(served.len() > 70, "{served:?} of {path}");
    served
}

fn scenarios(area: &str) -> Vec<Scenario> {
    parse(area, &file(&format!("{area}.yaml")))
}

/// One word for this run, so that runs against one control plane do not meet. They do in the node
/// ports and the addresses that services ask for, which a control plane has but once. Nothing else
/// can have them: they are of those which a control plane gives to nobody who does not ask for them
/// by number, as long as it has others.
fn run_id() -> String {
    format!("{:05x}", std::process::id() % 0x10_0000)
}

async fn replay(area: &str) {
    let server = ApiServer::builder()
        .pod_deletion(PodDeletion::Leave)
        .build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let ours = [
        client_of(&bound.kubeconfig()).await,
        stranger_of(&bound.kubeconfig()).await,
    ];
    let real = [bare_client().await, bare_stranger().await];
    let found = stream::iter(scenarios(area).into_iter().enumerate())
        .map(|(index, scenario)| {
            // As long as any other, so that none is the beginning of another.
            let namespace = format!("{area}-{}-{index:03}", run_id());
            let sides = [real.clone(), ours.clone()];
            async move { scenario_differences(area, &namespace, &scenario, sides).await }
        })
        .buffer_unordered(AT_A_TIME)
        .concat()
        .await;
    bound.shutdown().await;
    judge(area, found);
}

/// What differed: the step, its request, and where.
type Found = Vec<(String, String, Difference)>;

async fn scenario_differences(
    area: &str,
    namespace: &str,
    scenario: &Scenario,
    [real, ours]: [[Client; 2]; 2],
) -> Found {
    let mut real = Side::model(real, namespace, scenario);
    let mut ours = Side::new(ours, namespace, scenario);
    let first: Step = serde_json::from_value(serde_json::json!({
        "do": "POST /api/v1/namespaces",
        "body": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}},
    }))
    .unwrap();
    let mut found = Found::new();
    for (index, step) in std::iter::once(&first).chain(&scenario.steps).enumerate() {
        let (a, b) = tokio::join!(real.run(step), ours.run(step));
        let name = format!("{area}/{}/{index}", scenario.scenario);
        let all = differences(&a, &b).into_iter();
        found.extend(all.map(|difference| (name.clone(), step.request.clone(), difference)));
    }
    found
}

/// Fails if anything differs that is not accepted, or anything accepted does not differ.
fn judge(area: &str, found: Found) {
    let prefix = format!("{area}/");
    let mut open: Vec<Accepted> = all_accepted()
        .into_iter()
        .filter(|line| line.step.starts_with(&prefix))
        .collect();
    let mut report = String::new();
    let mut last = String::new();
    for (step, request, difference) in found {
        if let Some(index) = open.iter().position(|line| line.is(&step, &difference)) {
            open.remove(index);
            continue;
        }
        let head = format!("{step} {request}");
        if head != last {
            let _ = writeln!(report, "{head}");
            last = head;
        }
        let _ = writeln!(report, "{difference}");
    }
    for line in open {
        let _ = writeln!(
            report,
            "{} {}\n  is accepted but no longer differs, or not so",
            line.step, line.path
        );
    }
    assert!(report.is_empty(), "{area}: the servers differ\n{report}");
}

/// The corpus is large enough, mostly writes and refusals, and shows every served line twice.
#[test]
fn the_corpus_covers_the_contract() {
    let mut cited: BTreeMap<String, usize> = BTreeMap::new();
    let (mut requests, mut writes) = (0, 0);
    let mut names = Vec::new();
    for area in AREAS {
        for scenario in scenarios(area) {
            for (index, step) in scenario.steps.iter().enumerate() {
                requests += 1;
                writes += usize::from(step.is_write());
                names.push(format!("{area}/{}/{}", scenario.scenario, index + 1));
                for line in step.w.split_whitespace() {
                    *cited.entry(line.to_owned()).or_default() += 1;
                }
            }
        }
    }
    let total = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), total, "scenarios have names of their own");
    for line in all_accepted() {
        assert!(names.contains(&line.step), "no such step: {}", line.step);
    }
    let served = served();
    let few: Vec<&String> = served
        .iter()
        .filter(|line| cited.get(*line).copied().unwrap_or(0) < 2)
        .collect();
    let unknown: Vec<&String> = cited.keys().filter(|line| !served.contains(line)).collect();
    // Told even of a test that passes.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!(
            "differential: {requests} requests, {writes} of them writes; {} accepted differences\n",
            all_accepted().len()
        ),
    );
    assert!(unknown.is_empty(), "lines that are not served: {unknown:?}");
    assert!(few.is_empty(), "lines shown less than twice: {few:?}");
    assert!(requests >= 400, "{requests} requests are too few");
    assert!(writes * 2 > requests, "{writes} of {requests} are writes");
}
