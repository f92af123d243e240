//! Crashes the loops of Services, claims and `ReplicationController`s at every write, or fails the
//! write.

use std::time::Duration;

use crate::support::{
    Kubectl,
    faulty::{FaultyLoops, faults_at, run},
    gateway::Fault,
    wait_for,
};
use k8s_openapi::api::{
    core::v1::{
        Endpoints, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service,
    },
    discovery::v1::EndpointSlice,
};
use kube::{Api, api::ListParams};
use pintle_cluster::{Builder, Loops};
use serde_json::json;
use tokio::time::sleep;

fn loops(builder: Builder) -> Builder {
    let storage = Loops::VOLUMES | Loops::PROVISIONER;
    let pods = Loops::PODS | Loops::NODES | Loops::REPLICATION_CONTROLLER;
    builder.loops(storage | pods | Loops::ENDPOINTS)
}

/// The final state: the phases of the claim and of each volume, the number of endpoints in each
/// slice, and the number of `Endpoints` addresses.
type EndState = (String, Vec<String>, Vec<usize>, usize);

async fn end_state(kubectl: &Kubectl) -> Option<EndState> {
    let claim = kubectl.get::<PersistentVolumeClaim>("data").await;
    let volumes = Api::<PersistentVolume>::all(kubectl.client.clone());
    let volumes = volumes.list(&ListParams::default()).await.unwrap();
    let phases = volumes.items.into_iter();
    let phases = phases.filter_map(|volume| volume.status?.phase);
    let slices = kubectl.list::<EndpointSlice>().await.into_iter();
    let slices = slices.filter(|slice| slice.metadata.name.as_deref() != Some("kubernetes"));
    let endpoints = kubectl.api::<Endpoints>().get_opt("web").await.unwrap()?;
    let subsets = endpoints.subsets.unwrap_or_default().into_iter();
    Some((
        claim.status?.phase?,
        phases.collect(),
        slices
            .map(|slice| slice.endpoints.map_or(0, |it| it.len()))
            .collect(),
        subsets
            .map(|subset| subset.addresses.map_or(0, |it| it.len()))
            .sum(),
    ))
}

/// Creates a claim, a Service and its Pods, with or without a fault at one write of the loops.
/// Returns the writes.
async fn create(fault: Option<Fault>) -> Vec<String> {
    let (mut loops, kubectl) = FaultyLoops::start(fault, loops).await;
    sleep(Duration::from_secs(5)).await;
    loops.arm();
    let resources = json!({ "requests": { "storage": "1Gi" } });
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": resources });
    let claim = json!({ "metadata": { "name": "data" }, "spec": claim });
    kubectl.create::<PersistentVolumeClaim>(claim).await;
    let (app, ports) = (json!({ "app": "web" }), json!([{ "port": 80 }]));
    let service = json!({ "selector": app, "ports": ports });
    let service = json!({ "metadata": { "name": "web" }, "spec": service });
    kubectl.create::<Service>(service).await;
    let containers = json!([{ "name": "main", "image": "nginx" }]);
    let template = json!({ "metadata": { "labels": app }, "spec": { "containers": containers } });
    let controller = json!({ "replicas": 2, "template": template });
    let controller = json!({ "metadata": { "name": "web" }, "spec": controller });
    kubectl.create::<ReplicationController>(controller).await;
    loops.recover().await;
    let expected = ("Bound".to_owned(), vec!["Bound".to_owned()], vec![2], 2);
    wait_for(&format!("the end state after {fault:?}"), async || {
        (end_state(&kubectl).await? == expected).then_some(())
    })
    .await;
    loops.stop().await
}

/// Proves cluster/crash-safe.
#[test]
fn endpoints_and_claims_survive_a_fault_at_any_write() {
    let writes = run(create(None));
    assert!(writes.len() > 15, "{writes:#?}");
    for fault in (0..writes.len()).flat_map(faults_at) {
        run(create(Some(fault)));
    }
}
