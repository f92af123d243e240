//! Sends the same requests to kube-apiserver and to our server and compares the responses field by
//! field.
//!
//! The corpus is data, one file per area in `differential/`. The requests of a scenario depend on
//! each other and share a namespace; scenarios are independent. A different response fails the test
//! of its area, unless `accepted.txt` lists that field with a reason. An entry there that no longer
//! applies also fails the test.
//!
//! The kube-apiserver runs without a controller manager, so that only the requests change objects.

pub(crate) mod compare;
mod mask;
mod program;
mod script;
mod side;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use futures::{StreamExt as _, stream};
use kube::Client;
use pintle_apiserver::{ApiServer, AuditEvent, PodDeletion};
use real_tests::{
    anonymous_client_of, bare_anonymous_client, bare_audit_log, bare_client, client_of,
};

use self::compare::{Accepted, Difference, accepted, differences};
use self::program::Program;
use self::script::{Scenario, Step, parse};
use self::side::{AuditEvents, Side};

/// Reads a file of the corpus.
fn file(name: &str) -> String {
    let path = format!("{}/differential/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn all_accepted() -> Vec<Accepted> {
    accepted(&file("accepted.txt"))
}

/// The number of concurrent scenarios per area.
const CONCURRENCY: usize = 4;

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
    rbac
    quota
    pod_security
    versions
    crds
    errors
    defaults
    tables
    discovery
    protobuf
    services
    webhooks
    admission
}

/// Guarantees of the API server that the corpus does not cite, because single requests cannot show
/// them or other tests do.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "connections and listeners",
        &[
            "auth/certificate-names",
            "auth/in-process",
            "auth/kubeconfig",
            "auth/listener",
            "serve/connection-limit",
            "serve/load",
            "serve/timeouts",
        ],
    ),
    (
        "time, memory and slow clients",
        &["objects/linear-installs", "watch/expired"],
    ),
    (
        "limits and decisions of our server",
        &[
            "apiserver/copy",
            "errors/depth",
            "objects/no-silent-storage",
            "testing/points",
        ],
    ),
    (
        "CEL, which is tested with Kubernetes' own cases and with the corpus of CRDs",
        &[
            "cel/budget",
            "cel/constants",
            "cel/patterns",
            "cel/timestamps",
            "crd/corpus",
            "crd/library",
            "crd/rules",
        ],
    ),
    (
        "webhooks in this process, and their limits",
        &["admission/bounds", "admission/builder"],
    ),
    (
        "not in the corpus yet",
        &[
            "mutating-policies/mutations",
            "policies/deny",
            "policies/authorizer",
            "policies/bounds",
            "policies/matching",
            "policies/permissions",
            "policies/type-checking",
        ],
    ),
    ("audit events, which no response shows", &["audit/events"]),
    (
        "covered by whole areas of the corpus",
        &[
            "objects/autoscaler-versions",
            "objects/csr-requester",
            "objects/defaults",
            "objects/service-allocation",
        ],
    ),
];

/// Returns the guarantees that the corpus must cite at least twice.
fn required() -> Vec<String> {
    let path = format!("{}/../../docs/guarantees.md", env!("CARGO_MANIFEST_DIR"));
    let guarantees =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let section = guarantees
        .split("\n## ")
        .find(|section| section.starts_with("API server\n"));
    let ids = section.unwrap_or_default().lines().filter_map(|line| {
        let id = line.strip_prefix("- **")?.split_once("**")?.0;
        Some(id.to_owned())
    });
    let required: Vec<String> = ids
        .filter(|id| !ELSEWHERE.iter().any(|(_, ids)| ids.contains(&id.as_str())))
        .collect();
    assert!(required.len() > 70, "{required:?} of {path}");
    required
}

fn scenarios(area: &str) -> Vec<Scenario> {
    parse(area, &file(&format!("{area}.yaml")))
}

/// Returns an ID of this run for namespaces, so that several runs can share a control plane.
///
/// Only the node ports and addresses requested by services are shared. They are from the ranges
/// that a control plane reserves for explicit requests.
fn run_id() -> String {
    format!("{:05x}", std::process::id() % 0x10_0000)
}

async fn replay(area: &str) {
    let events = Arc::<Mutex<Vec<AuditEvent>>>::default();
    let seen = Arc::clone(&events);
    let server = ApiServer::builder()
        .pod_deletion(PodDeletion::Leave)
        .audit(move |event| seen.lock().unwrap().push(event))
        .build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let ours = [
        client_of(&bound.kubeconfig()).await,
        anonymous_client_of(&bound.kubeconfig()).await,
    ];
    let real = [bare_client().await, bare_anonymous_client().await];
    let audits = [
        AuditEvents::Log(bare_audit_log()),
        AuditEvents::Observed(events),
    ];
    let program = Program::start();
    let found = stream::iter(scenarios(area).into_iter().enumerate())
        .map(|(index, scenario)| {
            // Fixed width, so that no namespace is a prefix of another.
            let namespace = format!("{}-{}-{index:03}", area.replace('_', "-"), run_id());
            let sides = [real.clone(), ours.clone()];
            let (program, audits) = (&program, audits.clone());
            async move {
                scenario_differences(area, &namespace, &scenario, program, sides, audits).await
            }
        })
        .buffer_unordered(CONCURRENCY)
        .concat()
        .await;
    bound.shutdown().await;
    report(area, found);
}

/// Differences with their step and request.
type Found = Vec<(String, String, Difference)>;

async fn scenario_differences(
    area: &str,
    namespace: &str,
    scenario: &Scenario,
    program: &Program,
    [real, ours]: [[Client; 2]; 2],
    [log, observed]: [AuditEvents; 2],
) -> Found {
    let mut real = Side::reference(real, log, namespace, scenario, &program.names);
    let mut ours = Side::new(ours, observed, namespace, scenario, &program.names);
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

/// Panics if there are unaccepted differences or stale entries in `accepted.txt`.
fn report(area: &str, found: Found) {
    let prefix = format!("{area}/");
    let mut open: Vec<Accepted> = all_accepted()
        .into_iter()
        .filter(|line| line.step.starts_with(&prefix))
        .collect();
    let mut report = String::new();
    let mut last = String::new();
    for (step, request, difference) in found {
        if let Some(index) = open
            .iter()
            .position(|line| line.matches(&step, &difference))
        {
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
            "{} {}\n  is listed in accepted.txt but does not differ that way",
            line.step, line.path
        );
    }
    assert!(report.is_empty(), "{area}: the servers differ\n{report}");
}

/// The corpus is large, contains mostly writes, and cites each required guarantee at least twice.
#[test]
fn corpus_covers_the_guarantees() {
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
    assert_eq!(names.len(), total, "scenario names must be unique");
    for line in all_accepted() {
        assert!(names.contains(&line.step), "no such step: {}", line.step);
    }
    let required = required();
    let few: Vec<&String> = required
        .iter()
        .filter(|line| cited.get(*line).copied().unwrap_or(0) < 2)
        .collect();
    let unknown: Vec<&String> = cited
        .keys()
        .filter(|line| !required.contains(line))
        .collect();
    // Printed even if the test passes.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!(
            "differential: {requests} requests, {writes} of them writes; {} accepted differences\n",
            all_accepted().len()
        ),
    );
    assert!(unknown.is_empty(), "unknown guarantees: {unknown:?}");
    assert!(few.is_empty(), "guarantees cited less than twice: {few:?}");
    assert!(requests >= 400, "only {requests} requests");
    assert!(
        writes * 2 > requests,
        "only {writes} of {requests} requests are writes"
    );
}
