use k8s_openapi::api::{
    apps::v1::ReplicaSetSpec,
    core::v1::{ContainerStatus, PodCondition, PodSpec, PodStatus, PodTemplateSpec},
};
use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn set(replicas: i32) -> ReplicaSet {
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some("web-abc".into()),
            namespace: Some("default".into()),
            uid: Some("set".into()),
            generation: Some(4),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            template: Some(PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some([("app".to_owned(), "web".to_owned())].into()),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec::default()),
            }),
            ..ReplicaSetSpec::default()
        }),
        status: None,
    }
}

/// Returns a Pod that has been ready since second zero, on its own node.
fn pod(uid: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(uid.into()),
            uid: Some(uid.into()),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            creation_timestamp: Some(Time(at(0))),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(format!("node-of-{uid}")),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: "True".into(),
                last_transition_time: Some(Time(at(0))),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
    }
}

fn with(mut pod: Pod, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    change(&mut pod);
    Arc::new(pod)
}

fn not_ready(pod: &mut Pod) {
    pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".into();
}

fn on(node: &str) -> impl FnOnce(&mut Pod) {
    let node = node.to_owned();
    move |pod| pod.spec.as_mut().unwrap().node_name = Some(node)
}

/// Returns the UID of the Pod that is deleted when one of two must be.
fn deleted_first(a: Arc<Pod>, b: Arc<Pod>, related: &[Arc<Pod>]) -> String {
    for order in [[a.clone(), b.clone()], [b, a]] {
        let related = [related, &order].concat();
        let Plan::Delete(pods) = plan(&set(1), &order, &related, at(100_000)) else {
            panic!("one of two must be deleted");
        };
        assert_eq!(pods.len(), 1);
        if pods[0].metadata.uid.as_deref() != Some("victim") {
            return pods[0].metadata.uid.clone().unwrap();
        }
    }
    "victim".into()
}

/// Proves replicaset/scale.
#[test]
fn difference_to_the_desired_count_is_created_or_deleted() {
    let pods: Vec<_> = ["a", "b"].map(|uid| Arc::new(pod(uid))).into();
    assert_eq!(plan(&set(2), &pods, &pods, at(1)), Plan::None);
    assert_eq!(plan(&set(5), &pods, &pods, at(1)), Plan::Create(3));
    assert_eq!(
        plan(&set(0), &pods, &pods, at(1)),
        Plan::Delete(pods.clone())
    );
    assert_eq!(plan(&set(9999), &[], &[], at(1)), Plan::Create(BURST));
}

/// Proves replicaset/scale.
#[test]
fn creations_start_slowly() {
    assert_eq!(slow_start(0).collect::<Vec<_>>(), Vec::<usize>::new());
    assert_eq!(slow_start(1).collect::<Vec<_>>(), [1]);
    assert_eq!(slow_start(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
    assert_eq!(slow_start(9999).max(), Some(BURST));
}

/// Proves replicaset/scale.
#[test]
fn least_valuable_pod_is_deleted_first() {
    let victim = || pod("victim");
    let other = || Arc::new(pod("other"));

    let unbound = with(victim(), on(""));
    let bound_but_pending = with(pod("other"), |pod| {
        pod.status.as_mut().unwrap().phase = Some("Pending".into());
    });
    assert_eq!(
        deleted_first(unbound, bound_but_pending, &[]),
        "victim",
        "unbound before bound"
    );

    let pending = with(victim(), |pod| {
        pod.status.as_mut().unwrap().phase = Some("Pending".into());
    });
    assert_eq!(
        deleted_first(pending, other(), &[]),
        "victim",
        "pending before running"
    );

    assert_eq!(
        deleted_first(with(victim(), not_ready), other(), &[]),
        "victim",
        "not ready"
    );

    let cheap = with(victim(), |pod| {
        pod.metadata.annotations = Some([(DELETION_COST.to_owned(), "-1".to_owned())].into());
    });
    assert_eq!(
        deleted_first(cheap, other(), &[]),
        "victim",
        "lower deletion cost"
    );

    let neighbor = with(pod("neighbor"), on("crowded"));
    let crowded = with(victim(), on("crowded"));
    assert_eq!(
        deleted_first(crowded, other(), &[neighbor]),
        "victim",
        "crowded node"
    );

    let fresh = with(victim(), |pod| {
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time =
            Some(Time(at(99_999)));
    });
    assert_eq!(
        deleted_first(fresh, other(), &[]),
        "victim",
        "ready for a shorter time"
    );

    let restless = with(victim(), |pod| {
        pod.status.as_mut().unwrap().container_statuses = Some(vec![ContainerStatus {
            restart_count: 3,
            ..ContainerStatus::default()
        }]);
    });
    assert_eq!(
        deleted_first(restless, other(), &[]),
        "victim",
        "more restarts"
    );

    let young = with(victim(), |pod| {
        pod.metadata.creation_timestamp = Some(Time(at(99_999)));
    });
    assert_eq!(deleted_first(young, other(), &[]), "victim", "younger");
}

/// Proves replicaset/scale.
#[test]
fn created_pod_is_controlled_by_its_set() {
    let set = set(1);
    let pod = pod_from_template(&set, meta::controller_reference(&set));
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("web-abc-"));
    let owner = meta::controller_of(&pod.metadata).unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.api_version.as_str()),
        ("ReplicaSet", "apps/v1")
    );
    assert_eq!(owner.uid, "set");
    assert_eq!(owner.block_owner_deletion, Some(true));
}

/// Proves replicaset/status.
#[test]
fn status_counts_labels_readiness_and_availability() {
    let mut set = set(4);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(10);
    let relabelled = with(pod("b"), |pod| pod.metadata.labels = None);
    let late = with(pod("c"), |pod| {
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time =
            Some(Time(at(12)));
    });
    let pods = [
        Arc::new(pod("a")),
        relabelled,
        late,
        with(pod("d"), not_ready),
    ];

    let status = status(&set, &pods, 2, None, at(15));
    assert_eq!(status.replicas, 4);
    assert_eq!(status.fully_labeled_replicas, Some(3));
    assert_eq!(status.ready_replicas, Some(3));
    assert_eq!(status.available_replicas, Some(2));
    assert_eq!(status.terminating_replicas, Some(2));
    assert_eq!(status.observed_generation, Some(4));
    assert_eq!(status.conditions, None);
    assert_eq!(
        next_availability(&set, &pods, at(15)),
        Some(Duration::from_secs(7))
    );
    assert_eq!(next_availability(&set, &pods, at(22)), None);
}

/// Proves replicaset/status.
#[test]
fn failure_is_a_condition_until_the_next_success() {
    let mut set = set(1);
    let failure = Failure {
        reason: "FailedCreate",
        message: "exceeded quota".into(),
    };
    let failed = status(&set, &[], 0, Some(&failure), at(1));
    assert_eq!(
        failed.conditions.as_ref().unwrap()[0].reason.as_deref(),
        Some("FailedCreate")
    );

    set.status = Some(failed.clone());
    let again = Failure {
        reason: "FailedCreate",
        message: "exceeded quota, again".into(),
    };
    assert_eq!(
        status(&set, &[], 0, Some(&again), at(9)),
        failed,
        "a repeated failure changes nothing"
    );
    assert_eq!(status(&set, &[], 0, None, at(10)).conditions, None);
}

fn any_pod() -> impl Strategy<Value = (bool, u8, bool, u8, i64, i64)> {
    (
        any::<bool>(),
        0..3u8,
        any::<bool>(),
        0..3u8,
        0..1000i64,
        0..1000i64,
    )
}

proptest! {
    // Proves replicaset/scale.
    #[test]
    fn unready_pods_are_deleted_before_ready_ones(
        shapes in proptest::collection::vec(any_pod(), 0..12),
        desired in 0..12i32,
    ) {
        let pods: Vec<Arc<Pod>> = shapes
            .into_iter()
            .enumerate()
            .map(|(i, (bound, phase, ready, node, created, since))| {
                with(pod(&format!("pod-{i}")), |pod| {
                    let node = if bound { format!("node-{node}") } else { String::new() };
                    pod.spec.as_mut().unwrap().node_name = Some(node);
                    pod.metadata.creation_timestamp = Some(Time(at(created)));
                    let status = pod.status.as_mut().unwrap();
                    status.phase = Some(["Pending", "Unknown", "Running"][usize::from(phase)].into());
                    let condition = &mut status.conditions.as_mut().unwrap()[0];
                    condition.status = if ready && bound && phase == 2 { "True" } else { "False" }.into();
                    condition.last_transition_time = Some(Time(at(since)));
                })
            })
            .collect();

        let outcome = plan(&set(desired), &pods, &pods, at(2000));
        let mut reversed = pods.clone();
        reversed.reverse();
        prop_assert_eq!(&outcome, &plan(&set(desired), &reversed, &pods, at(2000)), "input order must not matter");

        if let Plan::Delete(deleted) = outcome {
            prop_assert_eq!(deleted.len(), pods.len() - usize::try_from(desired).unwrap());
            let unready_left = pods.iter().any(|pod| !deleted.contains(pod) && !is_ready(pod));
            prop_assert!(!unready_left || deleted.iter().all(|pod| !is_ready(pod)));
        }
    }
}
