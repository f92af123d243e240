//! The small Pod of the benchmarks without a server.

/// Returns Pod number `i`, the same for every peer.
pub(crate) fn pod(i: usize, version: u64) -> String {
    let group = i / 20;
    format!(
        r#"{{"metadata":{{"name":"{}","namespace":"{}","uid":"00000000-0000-4000-8000-{i:012x}","resourceVersion":"{version}","labels":{{"app":"web-{group}","tier":"backend","pod-template-hash":"{group:08x}"}}}},"spec":{{"nodeName":"node-{group}","containers":[{{"name":"web","image":"registry.example/web:1.0"}}]}},"status":{{"phase":"Running"}}}}"#,
        name(i),
        namespace(i),
    )
}

pub(crate) fn name(i: usize) -> String {
    format!("pod-{i}")
}

pub(crate) fn namespace(i: usize) -> String {
    format!("ns-{}", i % 50)
}
