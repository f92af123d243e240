//! Copies of a prepared server.

use crate::support::*;
use pintle_apiserver::ApiServer;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

/// Proves apiserver/copy.
#[tokio::test(start_paused = true)]
async fn copy_starts_with_the_same_objects() {
    let prepared = server();
    let original = http(&prepared);
    created(&original, DEFINITIONS, &foo_definition()).await;
    let before = created(&original, FOOS, &foo("a")).await;
    let copied = ApiServer::builder().seed(2).copy_of(&prepared).build();
    let copy = http(&copied);
    assert_eq!(copy.get(&format!("{FOOS}/a")).await, (200, before));
    assert_eq!(copied.resource_version(), prepared.resource_version());

    // Later changes of one are not seen by the other.
    let version = copied.resource_version();
    let path = format!("{FOOS}?watch=true&resourceVersion={version}");
    let (mut theirs, mut ours) = (original.watch(&path).await, copy.watch(&path).await);
    created(&original, FOOS, &foo("b")).await;
    created(&copy, FOOS, &foo("c")).await;
    assert_eq!(theirs.take(1).await, ["ADDED b"]);
    assert_eq!(ours.take(1).await, ["ADDED c"]);
    assert_eq!(copy.get(&format!("{FOOS}/b")).await.0, 404);
}
