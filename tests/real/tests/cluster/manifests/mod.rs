//! A corpus of small manifests, applied to kube-controller-manager's cluster and to ours: the end
//! states are equal.
//!
//! The directory `manifests` has a file for each kind. Each case has its own namespace, and several
//! run concurrently. A case is compared once both sides have reached what it expects, and again
//! after each further step; the sides must be equal and have settled.

mod case;
mod side;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use pintle::clock::Clock;
use pintle_cluster::{Cluster, Loops};
use real_tests::TestNamespace;
use serde_json::{Value, from_value, json};
use tokio::time::{Instant, sleep};

use self::case::{Case, File, Kubelet, Step, has, placed};
use self::side::{Side, State, comparable};
use super::pair::difference;

/// The number of cases of a file that run concurrently.
const CONCURRENCY: usize = 16;
/// How long both sides may take to agree.
const TIMEOUT: Duration = Duration::from_mins(3);
/// How long both sides must stay the same to have settled.
const SETTLED: Duration = Duration::from_millis(1200);
const POLL: Duration = Duration::from_millis(300);
/// How often nodes report.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Runs the cases of a file.
async fn run(name: &str) {
    let file = File::read(name);
    // The real control plane has neither nodes nor a scheduler, and no storage driver.
    let loops = Loops::ALL.without(Loops::PODS | Loops::PROVISIONER);
    let builder = Cluster::builder().loops(loops).nodes(0).root_ca("CA");
    let cluster = builder.start().await;
    let failed: Vec<String> = stream::iter(&file.cases)
        .map(|case| Box::pin(play(case, &file, &cluster)))
        .buffer_unordered(CONCURRENCY)
        .filter_map(async |result| result.err())
        .collect()
        .await;
    cluster.stop().await;
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A case on both sides.
struct Played<'a> {
    case: &'a Case,
    file: &'a File,
    sides: [Side; 2],
}

/// Runs a case. Fails with the difference.
async fn play(case: &Case, file: &File, cluster: &Cluster) -> Result<(), String> {
    let namespace = TestNamespace::create().await;
    let name = namespace.name();
    let ours = Api::<Namespace>::all(cluster.client());
    let object = from_value(json!({ "metadata": { "name": name } })).unwrap();
    let params = PostParams::default();
    ours.create(&params, &object).await.unwrap();
    let side = |client| Side {
        client,
        namespace: name.clone(),
    };
    let played = Played {
        case,
        file,
        sides: [side(namespace.client()), side(cluster.client())],
    };
    for side in &played.sides {
        until_accounts(side).await;
    }
    let first = Step {
        create: [&*file.each, &*case.create].concat(),
        expect: case.expect.clone(),
        ..Step::default()
    };
    let mut kubelet = &case.pods;
    let mut result = Ok(());
    for (number, step) in std::iter::once(&first).chain(&case.then).enumerate() {
        kubelet = step.pods.as_ref().unwrap_or(kubelet);
        for side in &played.sides {
            played.act(side, step).await;
        }
        result = played.agree(number, step, kubelet).await;
        if result.is_err() {
            break;
        }
    }
    // The contents of the namespace are deleted with it.
    played.sides[0].delete_unscoped().await;
    result
}

/// Waits for the default service account, which Pods need.
async fn until_accounts(side: &Side) {
    let kinds = ["ServiceAccount".to_owned()];
    real_tests::eventually("the service account", async || {
        let state = side.state(&kinds).await;
        (!state["ServiceAccount"].is_empty()).then_some(())
    })
    .await;
}

impl Played<'_> {
    async fn act(&self, side: &Side, step: &Step) {
        let namespace = &side.namespace;
        for object in &step.create {
            side.create(&self.file.complete(object, namespace)).await;
        }
        let patches = [
            ("", &step.patch),
            ("/status", &step.status),
            ("/approval", &step.approval),
        ];
        for (subresource, patches) in patches {
            for (id, patch) in patches {
                let id = id.replace("{ns}", namespace);
                side.patch(&id, subresource, &placed(patch, namespace))
                    .await;
            }
        }
        for (id, policy) in &step.delete {
            side.delete(&id.replace("{ns}", namespace), policy).await;
        }
    }

    /// Waits until both sides have what the step expects, are equal, and have settled.
    async fn agree(&self, number: usize, step: &Step, kubelet: &Kubelet) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        let mut settled: Option<(Instant, Value)> = None;
        let mut reported = Instant::now();
        loop {
            let [real, ours] = &self.sides;
            if reported.elapsed() >= HEARTBEAT {
                reported = Instant::now();
                for side in &self.sides {
                    self.beat(side).await;
                }
            }
            let (real, ours) = tokio::join!(
                self.observe(real, step, kubelet),
                self.observe(ours, step, kubelet)
            );
            let is_done = real.1 && ours.1 && real.0 == ours.0;
            match &settled {
                Some((since, state)) if is_done && *state == real.0 => {
                    if since.elapsed() >= SETTLED {
                        return Ok(());
                    }
                }
                _ => settled = is_done.then(|| (Instant::now(), real.0.clone())),
            }
            if Instant::now() > deadline {
                let text = |value| serde_json::to_string_pretty(value).unwrap();
                let differences = difference(&text(&real.0), &text(&ours.0));
                let reached = |reached| if reached { "" } else { " (not as expected)" };
                return Err(format!(
                    "{}, step {number}: Kubernetes{}, ours{}\n{differences}",
                    self.case.name,
                    reached(real.1),
                    reached(ours.1),
                ));
            }
            sleep(POLL).await;
        }
    }

    /// Lets the nodes of the case report.
    async fn beat(&self, side: &Side) {
        let now = Clock::system().now().to_string();
        let created = self.file.each.iter().chain(&self.case.create);
        for node in created.filter(|it| it["kind"] == "Node") {
            let node = self.file.complete(node, &side.namespace);
            side.beat(node["metadata"]["name"].as_str().unwrap(), &now)
                .await;
        }
    }

    /// Returns the comparable state of a side, and whether it is as expected.
    async fn observe(&self, side: &Side, step: &Step, kubelet: &Kubelet) -> (Value, bool) {
        let state = side.state(&self.file.kinds).await;
        let busy = side.run_pods(kubelet, &state).await;
        let reached = !busy && is_reached(&step.expect, &state, &side.namespace);
        (comparable(&state, &self.case.accept), reached)
    }
}

fn is_reached(expected: &BTreeMap<String, Value>, state: &State, namespace: &str) -> bool {
    expected.iter().all(|(id, expected)| {
        let id = id.replace("{ns}", namespace);
        let (kind, name) = id.split_once('/').unwrap_or((&id, ""));
        let objects = state
            .get(kind)
            .unwrap_or_else(|| panic!("{kind} is not compared"));
        if let Some(count) = expected.as_u64() {
            return u64::try_from(objects.len()) == Ok(count);
        }
        let named = objects.iter().find(|it| it["metadata"]["name"] == name);
        match named {
            Some(object) => !expected.is_null() && has(expected, object),
            None => expected.is_null(),
        }
    })
}

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                run(stringify!($name)).await;
            }
        )*
    };
}

// Proves cluster/end-states.
files!(
    autoscalers,
    budgets,
    certificates,
    cron_jobs,
    daemon_sets,
    deployments,
    garbage,
    jobs,
    quotas,
    replica_sets,
    replication_controllers,
    service_accounts,
    services,
    stateful_sets,
    volumes,
);
