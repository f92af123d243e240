//! Bodies in Kubernetes' protobuf encoding. The first byte selects the kind.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pintle_fuzz::Server;

const PATHS: [&str; 6] = [
    "/api/v1/namespaces/default/configmaps?dryRun=All",
    "/api/v1/namespaces/default/pods?dryRun=All",
    "/apis/apps/v1/namespaces/default/deployments?dryRun=All",
    "/api/v1/namespaces/default/services?dryRun=All",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?dryRun=All",
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?dryRun=All",
];

static SERVER: LazyLock<Server> = LazyLock::new(Server::new);

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else {
        return;
    };
    let path = PATHS[usize::from(*choice) % PATHS.len()];
    SERVER.send("POST", path, "application/vnd.kubernetes.protobuf", body);
});
