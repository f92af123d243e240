//! The small Pod of the benchmarks without a server.

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::runtime::{reflector::store::Writer, watcher::Event};

/// Returns Pod number `i`, the same for every peer.
pub fn pod(i: usize, version: usize) -> Pod {
    let group = i / 20;
    let labels = [
        ("app", format!("web-{group}")),
        ("tier", "backend".to_owned()),
        ("pod-template-hash", format!("{group:08x}")),
    ];
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("pod-{i}")),
            namespace: Some(format!("ns-{}", i % 50)),
            uid: Some(format!("00000000-0000-4000-8000-{i:012x}")),
            resource_version: Some(version.to_string()),
            labels: Some(
                labels
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(format!("node-{group}")),
            containers: vec![Container {
                name: "web".to_owned(),
                image: Some("registry.example/web:1.0".to_owned()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Running".to_owned()),
            ..PodStatus::default()
        }),
    }
}

/// Fills a store like a first list.
pub fn fill(writer: &mut Writer<Pod>, objects: usize) {
    writer.apply_watcher_event(&Event::Init);
    for i in 0..objects {
        writer.apply_watcher_event(&Event::InitApply(pod(i, 1)));
    }
    writer.apply_watcher_event(&Event::InitDone);
}
