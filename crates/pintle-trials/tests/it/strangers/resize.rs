//! A kube-runtime controller with typed builders: a Service, a `ConfigMap` and a `StatefulSet` that
//! has to restart when the configuration changes. With the bug, it restarts only if it has just
//! changed the `ConfigMap` (rabbitmq/cluster-operator#782): after a crash in between, never.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{
            ConfigMap, Container, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use pintle_trials::{Cx, Oracle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Broker",
    namespaced
)]
#[kube(status = "BrokerStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerSpec {
    replicas: i32,
    log_level: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerStatus {
    ready_replicas: i32,
    observed_generation: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Error(#[from] kube::Error);

struct Operator {
    client: Client,
    broken: bool,
}

fn meta(broker: &Broker) -> ObjectMeta {
    ObjectMeta {
        name: Some(broker.name_any()),
        namespace: broker.namespace(),
        owner_references: broker.controller_owner_ref(&()).map(|it| vec![it]),
        labels: Some(BTreeMap::from([("app".to_owned(), broker.name_any())])),
        ..ObjectMeta::default()
    }
}

fn set(broker: &Broker, config: &str) -> StatefulSet {
    let labels = BTreeMap::from([("app".to_owned(), broker.name_any())]);
    let annotations = BTreeMap::from([("config".to_owned(), config.to_owned())]);
    StatefulSet {
        metadata: meta(broker),
        spec: Some(StatefulSetSpec {
            replicas: Some(broker.spec.replicas),
            service_name: Some(broker.name_any()),
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![Container {
                        name: "broker".to_owned(),
                        image: Some("broker:1".to_owned()),
                        ..Container::default()
                    }],
                    ..PodSpec::default()
                }),
            },
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

async fn reconcile(broker: Arc<Broker>, operator: Arc<Operator>) -> Result<Action, Error> {
    let (client, name) = (operator.client.clone(), broker.name_any());
    let namespace = broker.namespace().unwrap_or_default();
    let apply = PatchParams::apply("broker-operator").force();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let sets = Api::<StatefulSet>::namespaced(client.clone(), &namespace);
    let services = Api::<Service>::namespaced(client.clone(), &namespace);

    let service = Service {
        metadata: meta(&broker),
        spec: Some(ServiceSpec {
            selector: Some(BTreeMap::from([("app".to_owned(), name.clone())])),
            ports: Some(vec![ServicePort {
                port: 5672,
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    services
        .patch(&name, &apply, &Patch::Apply(&service))
        .await?;

    let map = ConfigMap {
        metadata: meta(&broker),
        data: Some(BTreeMap::from([(
            "log.level".to_owned(),
            broker.spec.log_level.clone(),
        )])),
        ..ConfigMap::default()
    };
    let mut config = broker.spec.log_level.clone();
    if operator.broken && maps.get_opt(&name).await?.and_then(|it| it.data) == map.data {
        let running = sets.get_opt(&name).await?.and_then(|it| it.spec);
        let meta = running.and_then(|it| it.template.metadata);
        let started_with = meta.and_then(|it| it.annotations?.remove("config"));
        config = started_with.unwrap_or(config);
    }
    maps.patch(&name, &apply, &Patch::Apply(&map)).await?;

    let set = set(&broker, &config);
    let set = sets.patch(&name, &apply, &Patch::Apply(&set)).await?;

    let ready = set.status.and_then(|it| it.ready_replicas).unwrap_or(0);
    let status = serde_json::json!({"status": BrokerStatus {
        ready_replicas: ready,
        observed_generation: broker.metadata.generation,
    }});
    Api::<Broker>::namespaced(client, &namespace)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(Action::requeue(Duration::from_secs(20)))
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let any = watcher::Config::default;
    Controller::new(Api::<Broker>::all(client.clone()), any())
        .owns(Api::<StatefulSet>::all(client.clone()), any())
        .owns(Api::<ConfigMap>::all(client.clone()), any())
        .owns(Api::<Service>::all(client.clone()), any())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(Operator { client, broken }),
        )
        .for_each(async |_| ())
        .await;
}

fn broker() -> Broker {
    let spec = BrokerSpec {
        replicas: 1,
        log_level: "info".to_owned(),
    };
    let mut broker = Broker::new("broker", spec);
    broker.metadata.namespace = Some("default".to_owned());
    broker
}

/// The timer of the controller fires before a reference counts as idle, but after a scenario does: a
/// number across the whole story would name another request.
///
/// Proves trials/report.
#[test]
fn bug_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let trial = super::trial(&folder, |cx| controller(cx, true), &broker());
    let report = trial.only(&["crash-after"]).try_run();
    super::assert_found(&report, Oracle::SameEnd);
    assert_eq!((report.vanished, report.left_out), (0, 0), "{report}");
}

/// Proves trials/no-false-alarm.
#[test]
fn without_the_bug_it_converges() {
    let folder = tempfile::tempdir().unwrap();
    let trial = super::trial(&folder, |cx| controller(cx, false), &broker());
    super::assert_clean(&trial.sample(30).try_run());
}
