//! Generations, deadlines, init and ephemeral containers of Pods.

use std::time::Duration;

use crate::support::{Kubectl, start, virtual_cluster, wait_for};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Event, Pod, PodStatus},
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

async fn create(kubectl: &Kubectl, spec: &Value) -> Pod {
    let containers = json!([{ "name": "main", "image": "nginx:1" }]);
    let mut pod = json!({
        "metadata": { "name": "web", "generation": 100, "labels": { "app": "web" } },
        // Merge patches replace the containers, and would drop a token mount.
        "spec": { "automountServiceAccountToken": false, "containers": containers },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    kubectl.create::<Pod>(pod).await
}

async fn status(kubectl: &Kubectl) -> PodStatus {
    kubectl.get::<Pod>("web").await.status.unwrap()
}

async fn observed(kubectl: &Kubectl, generation: i64) -> PodStatus {
    wait_for("the generation", async || {
        let status = status(kubectl).await;
        (status.observed_generation == Some(generation)).then_some(status)
    })
    .await
}

/// Proves pods/generation.
#[tokio::test(start_paused = true)]
async fn kubelet_observes_every_generation() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let spec = json!({ "initContainers": [{ "name": "init", "image": "busybox:1" }] });
    let pod = create(&kubectl, &spec).await;
    assert_eq!(pod.metadata.generation, Some(1));
    observed(&kubectl, 1).await;
    sleep(Duration::from_secs(5)).await;
    let toleration = json!({ "key": "foo", "operator": "Equal", "value": "bar",
        "effect": "NoSchedule" });
    let main = json!([{ "name": "main", "image": "nginx:2" }]);
    let init = json!([{ "name": "init", "image": "pause:1" }]);
    let mut tolerations = pod.spec.unwrap().tolerations.unwrap();
    tolerations.push(serde_json::from_value(toleration).unwrap());
    let mut generation = 1;
    for (patch, counts) in [
        (json!({}), false),
        (json!({ "spec": { "tolerations": tolerations } }), true),
        (json!({ "spec": { "activeDeadlineSeconds": 5000 } }), true),
        (json!({ "spec": { "containers": main } }), true),
        (json!({ "spec": { "initContainers": init } }), true),
        (
            json!({ "metadata": { "annotations": { "key": "value" } } }),
            false,
        ),
        (json!({ "metadata": { "generation": 1 } }), false),
    ] {
        let pod = kubectl.patch::<Pod>("web", patch.clone()).await;
        generation += i64::from(counts);
        assert_eq!(pod.metadata.generation, Some(generation), "{patch}");
        let status = observed(&kubectl, generation).await;
        assert_eq!(status.phase.as_deref(), Some("Running"));
        for condition in status.conditions.unwrap() {
            let seen = condition.observed_generation;
            assert_eq!(seen, Some(generation), "{patch} {}", condition.type_);
        }
    }
    let params = DeleteParams::default().grace_period(60);
    kubectl.delete::<Pod>("web", &params).await;
    cluster.stop().await;
}

/// Proves pods/generation.
#[tokio::test(start_paused = true)]
async fn deletion_counts_as_a_generation() {
    let builder = virtual_cluster().pod_stop_after(Duration::from_mins(1));
    let (cluster, kubectl) = start(builder).await;
    create(&kubectl, &json!({})).await;
    observed(&kubectl, 1).await;
    let params = DeleteParams::default().grace_period(60);
    kubectl.delete::<Pod>("web", &params).await;
    let pod = kubectl.get::<Pod>("web").await;
    assert_eq!(pod.metadata.generation, Some(2));
    cluster.stop().await;
}

/// Proves pods/generation.
#[tokio::test(start_paused = true)]
async fn generation_of_a_pod_that_cannot_start_is_observed() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let web = cluster.pods().matching("app=web");
    web.fail_image_pull().unwrap();
    create(&kubectl, &json!({})).await;
    let generations = |status: PodStatus| {
        let conditions = status.conditions.unwrap().into_iter();
        let seen: Vec<_> = conditions.map(|it| it.observed_generation).collect();
        seen
    };
    let status = observed(&kubectl, 1).await;
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(generations(status), [Some(1); 5]);
    web.reset().unwrap();
    let containers = json!([{ "name": "main", "image": "nginx:2" }]);
    let patch = json!({ "spec": { "containers": containers } });
    kubectl.patch::<Pod>("web", patch).await;
    assert_eq!(generations(observed(&kubectl, 2).await), [Some(2); 5]);

    let unfit = json!({ "metadata": { "name": "unfit" }, "spec": {
        "nodeSelector": { "disk": "none" }, "containers": [{ "name": "c", "image": "x" }] } });
    kubectl.create::<Pod>(unfit).await;
    sleep(Duration::from_secs(5)).await;
    let unfit = kubectl.get::<Pod>("unfit").await.status.unwrap();
    assert_eq!(generations(unfit), [Some(1)]);
    cluster.stop().await;
}

/// Proves pods/deadline.
#[tokio::test(start_paused = true)]
async fn pod_fails_after_its_active_deadline() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, &json!({ "activeDeadlineSeconds": 30 })).await;
    sleep(Duration::from_secs(28)).await;
    assert_eq!(status(&kubectl).await.phase.as_deref(), Some("Running"));
    sleep(Duration::from_secs(5)).await;
    let status = status(&kubectl).await;
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let exited = status.container_statuses.unwrap().remove(0).state.unwrap();
    assert!(exited.terminated.is_some());
    let events = kubectl.list::<Event>().await.into_iter();
    let mut events = events.filter(|it| it.reason.as_deref() == Some("DeadlineExceeded"));
    let message = events.next().unwrap().message.unwrap();
    assert_eq!(
        message,
        "Pod was active on the node longer than the specified deadline"
    );
    assert!(events.next().is_none());
    cluster.stop().await;
}

/// Proves pods/deadline.
#[tokio::test(start_paused = true)]
async fn deadline_can_be_set_later() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, &json!({})).await;
    sleep(Duration::from_secs(60)).await;
    let patch = json!({ "spec": { "activeDeadlineSeconds": 5 } });
    kubectl.patch::<Pod>("web", patch).await;
    sleep(Duration::from_secs(1)).await;
    let status = status(&kubectl).await;
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    cluster.stop().await;
}

/// Proves pods/resize.
#[tokio::test(start_paused = true)]
async fn kubelet_grants_a_resize_without_a_restart() {
    let (_cluster, kubectl) = start(virtual_cluster()).await;
    let with = |cpu: &str| {
        let resources = json!({ "requests": { "cpu": cpu, "memory": "64Mi" } });
        let containers = json!([{ "name": "main", "image": "nginx:1", "resources": resources }]);
        json!({ "containers": containers })
    };
    create(&kubectl, &with("100m")).await;
    observed(&kubectl, 1).await;
    sleep(Duration::from_secs(5)).await;
    let before = status(&kubectl).await.container_statuses.unwrap().remove(0);
    assert_eq!(before.allocated_resources.unwrap()["cpu"].0, "100m");

    let patch = Patch::Strategic(json!({ "spec": with("200m") }));
    let pods = kubectl.api::<Pod>();
    pods.patch_subresource("resize", "web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let after = observed(&kubectl, 2)
        .await
        .container_statuses
        .unwrap()
        .remove(0);
    let requests = after.resources.unwrap().requests.unwrap();
    assert_eq!(requests["cpu"].0, "200m");
    assert_eq!(after.allocated_resources.unwrap(), requests);
    assert_eq!((after.restart_count, after.state), (0, before.state));
}

/// Proves pods/ephemeral-containers.
#[tokio::test(start_paused = true)]
async fn ephemeral_containers_run_until_the_pod_ends() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    create(&kubectl, &json!({ "restartPolicy": "Never" })).await;
    observed(&kubectl, 1).await;
    sleep(Duration::from_secs(2)).await;
    let debugger =
        |name: &str| json!({ "name": name, "image": "busybox:1", "targetContainerName": "main" });
    let add = async |containers: Value| {
        let patch = Patch::Strategic(json!({ "spec": { "ephemeralContainers": containers } }));
        let pods = kubectl.api::<Pod>();
        pods.patch_ephemeral_containers("web", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    add(json!([debugger("one")])).await;
    sleep(Duration::from_secs(1)).await;
    let status = observed(&kubectl, 2).await;
    let one = status.ephemeral_container_statuses.unwrap().remove(0);
    let since = one.state.clone().unwrap().running.unwrap().started_at;
    assert!(!one.ready && since.is_some());
    let main = status.container_statuses.unwrap().remove(0);
    assert_eq!((main.ready, main.restart_count), (true, 0));

    add(json!([debugger("two")])).await;
    sleep(Duration::from_secs(1)).await;
    let both = observed(&kubectl, 3)
        .await
        .ephemeral_container_statuses
        .unwrap();
    let running = |name: &str| {
        let status = both.iter().find(|it| it.name == name).unwrap();
        status.state.clone().unwrap().running.unwrap().started_at
    };
    assert_eq!(running("one"), since);
    assert_ne!(running("two"), since);

    cluster.pods().matching("app=web").exit(0).unwrap();
    sleep(Duration::from_secs(5)).await;
    let status = self::status(&kubectl).await;
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    let ended = status.ephemeral_container_statuses.unwrap();
    assert!(
        ended
            .iter()
            .all(|it| it.state.as_ref().unwrap().terminated.is_some())
    );
    cluster.stop().await;
}

/// Proves pods/init-containers.
#[tokio::test(start_paused = true)]
async fn init_containers_and_sidecars_have_a_status() {
    let builder = virtual_cluster().pod_ready_after(Duration::from_secs(10));
    let (cluster, kubectl) = start(builder).await;
    let init = json!([
        { "name": "init", "image": "busybox:1" },
        { "name": "proxy", "image": "proxy:1", "restartPolicy": "Always" },
    ]);
    create(
        &kubectl,
        &json!({ "restartPolicy": "Never", "initContainers": init }),
    )
    .await;
    sleep(Duration::from_secs(5)).await;
    let states = async || {
        let statuses = status(&kubectl).await.init_container_statuses.unwrap();
        let states = statuses.into_iter().map(|it| {
            let state = it.state.unwrap();
            let waits = state.waiting.and_then(|it| it.reason);
            let exited = state.terminated.map(|it| it.exit_code);
            (waits, exited, it.ready)
        });
        states.collect::<Vec<_>>()
    };
    let waits = (Some("PodInitializing".to_owned()), None, false);
    assert_eq!(states().await, [waits.clone(), waits]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(states().await, [(None, Some(0), true), (None, None, true)]);
    cluster.pods().matching("app=web").exit(3).unwrap();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(
        states().await,
        [(None, Some(0), true), (None, Some(3), false)]
    );
    cluster.stop().await;
}

/// Proves pods/admission, statefulset/recreate.
#[tokio::test(start_paused = true)]
async fn stateful_set_recreates_a_pod_that_its_node_rejects() {
    let (cluster, kubectl) = start(virtual_cluster()).await;
    let ports = json!([{ "containerPort": 21017, "hostPort": 21017 }]);
    let containers = json!([{ "name": "main", "image": "db:1", "ports": ports }]);
    let spec = json!({ "nodeName": "node-1", "containers": containers });
    create(&kubectl, &spec).await;
    sleep(Duration::from_secs(5)).await;
    let template = json!({ "metadata": { "labels": { "app": "db" } }, "spec": spec });
    let spec = json!({ "replicas": 1, "serviceName": "db", "template": template,
        "selector": { "matchLabels": { "app": "db" } } });
    let set = json!({ "metadata": { "name": "db" }, "spec": spec });
    kubectl.create::<StatefulSet>(set).await;
    sleep(Duration::from_secs(60)).await;
    let events = kubectl.list::<Event>().await;
    let has = |reason: &str| events.iter().any(|it| it.reason.as_deref() == Some(reason));
    assert!(has("NodePorts") && has("SuccessfulDelete"));
    let params = DeleteParams::default().grace_period(0);
    kubectl.delete::<Pod>("web", &params).await;
    wait_for("the Pod to run", async || {
        let pod = kubectl.api::<Pod>().get_opt("db-0").await.unwrap()?;
        (pod.status?.phase.as_deref() == Some("Running")).then_some(())
    })
    .await;
    cluster.stop().await;
}
