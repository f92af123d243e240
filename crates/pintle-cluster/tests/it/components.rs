//! Component statuses, as in `kubectl get componentstatuses`.

use std::collections::BTreeMap;

use crate::support::{virtual_cluster, virtual_server};
use k8s_openapi::api::core::v1::ComponentStatus;
use kube::{Api, Client};
use pintle_cluster::Loops;

/// Returns the health of each component by name.
async fn healthy(client: Client) -> BTreeMap<String, bool> {
    let statuses: Api<ComponentStatus> = Api::all(client);
    let list = statuses.list(&kube::api::ListParams::default()).await;
    let items = list.unwrap().items.into_iter();
    items
        .map(|status| {
            let healthy = status.conditions.unwrap()[0].status == "True";
            (status.metadata.name.unwrap(), healthy)
        })
        .collect()
}

fn expected(manager: bool, scheduler: bool) -> BTreeMap<String, bool> {
    let all = [
        ("controller-manager", manager),
        ("etcd-0", true),
        ("scheduler", scheduler),
    ];
    all.map(|(name, healthy)| (name.to_owned(), healthy)).into()
}

/// Proves bootstrap/objects.
#[tokio::test(start_paused = true)]
async fn components_are_healthy_while_their_loops_run() {
    let server = virtual_server();
    assert_eq!(healthy(server.client()).await, expected(false, false));
    let cluster = virtual_cluster().server(server.clone()).start().await;
    assert_eq!(healthy(server.client()).await, expected(true, true));
    cluster.stop().await;
    assert_eq!(healthy(server.client()).await, expected(false, false));
    let pods = Loops::PODS | Loops::NODES;
    let cluster = virtual_cluster().server(server.clone()).loops(pods);
    let cluster = cluster.start().await;
    assert_eq!(healthy(server.client()).await, expected(false, true));
    drop(cluster);
    assert_eq!(healthy(server.client()).await, expected(false, false));
}
