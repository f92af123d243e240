use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::*;

fn decode(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

#[test]
fn pod_has_a_realistic_size() {
    let pod = pod(4711, None, FIRST_VERSION, Form::Item);
    assert!((5800..6600).contains(&pod.len()), "{}", pod.len());
    let mut value: serde_json::Value = serde_json::from_str(&pod).unwrap();
    value["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    let bare = value.to_string().len();
    assert!((3700..4400).contains(&bare), "{bare}");
}

#[test]
fn unique_fields_are_unique() {
    let pods: Vec<Pod> = (0..3000)
        .map(|i| decode(&pod(i, None, FIRST_VERSION, Form::Whole)))
        .collect();
    let distinct = |of: &dyn Fn(&Pod) -> String| {
        let all: BTreeSet<String> = pods.iter().map(of).collect();
        all.len()
    };
    assert_eq!(distinct(&|pod| pod.metadata.name.clone().unwrap()), 3000);
    assert_eq!(distinct(&|pod| pod.metadata.uid.clone().unwrap()), 3000);
    let status = |pod: &Pod| pod.status.clone().unwrap();
    assert_eq!(distinct(&|pod| status(pod).pod_ip.unwrap()), 3000);
    let node = |pod: &Pod| pod.spec.clone().unwrap().node_name.unwrap();
    assert_eq!(distinct(&node), 3000 / GROUP);
}

#[test]
fn new_pod_omits_server_fields() {
    let pod = decode(&pod(7, Some("seven"), 0, Form::New));
    assert_eq!(pod.metadata.name.as_deref(), Some("seven"));
    assert!(pod.metadata.uid.is_none() && pod.metadata.managed_fields.is_none());
    assert!(pod.status.is_some());
}
