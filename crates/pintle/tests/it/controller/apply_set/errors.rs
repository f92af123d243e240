//! Sets with children that cannot be applied or deleted.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use pintle::{
    controller::{
        APPLY_SET_LABEL, Action, ApplyError, ApplySetError, Context, Controller, ObjectError,
    },
    informer::InformerFactory,
    owner::OwnerError,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Fixture, create, delete, named};
use crate::support::config_map;

/// Proves controller/apply-set-errors.
#[tokio::test(start_paused = true)]
async fn failed_child_stops_pruning_but_not_the_others() {
    let fixture = Fixture::new().await;
    let (_stop, _task) = fixture.start();
    fixture.ask(&["old"], &[]).await;
    create(&fixture.world.maps(), &config_map("taken", "0")).await;
    fixture
        .faults
        .plan("PATCH bad", Some(StatusCode::FORBIDDEN));
    fixture.take();
    fixture.faults.take_writes();

    fixture.ask(&["bad", "taken", "good"], &[]).await;
    let results = fixture.take();
    let error = results[0].as_ref().unwrap_err();
    let ApplySetError::Apply { failed, total: 3 } = error else {
        panic!("{error}");
    };
    let failed: Vec<String> = failed.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(failed, ["default/bad", "default/taken"]);
    let text = error.to_string();
    let expected =
        "2 of 3 children were not applied, and nothing was pruned: ConfigMap default/bad: ";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("403 Forbidden"), "{text}");
    assert!(
        text.contains("ConfigMap default/taken already exists"),
        "{text}"
    );
    assert!(
        !fixture
            .faults
            .take_writes()
            .contains(&"DELETE old".to_owned())
    );
    assert_eq!(fixture.existing().await, ["good", "old", "taken"]);
    let taken = fixture.world.maps().get("taken").await.unwrap();
    assert_eq!(taken.data.unwrap()["value"], "0", "left alone");

    fixture.faults.clear();
    delete(&fixture.world.maps(), "taken").await;
    sleep(Duration::from_secs(61)).await;
    assert_eq!(fixture.existing().await, ["bad", "good", "taken"]);
}

/// Proves controller/apply-set-errors.
#[tokio::test(start_paused = true)]
async fn failed_deletion_does_not_stop_the_others() {
    let fixture = Fixture::new().await;
    let (_stop, _task) = fixture.start();
    fixture.ask(&["m1", "m2", "m3"], &[]).await;
    fixture.take();
    fixture
        .faults
        .plan("DELETE m1", Some(StatusCode::FORBIDDEN));
    fixture.ask(&["m3"], &[]).await;
    let results = fixture.take();
    let error = results[0].as_ref().unwrap_err();
    let ApplySetError::Prune { failed, pruned: 1 } = error else {
        panic!("{error}");
    };
    assert_eq!(failed[0].key.to_string(), "default/m1");
    assert!(matches!(failed[0].error, ObjectError::Delete(_)));
    assert_eq!(fixture.existing().await, ["m1", "m3"]);
    fixture.faults.clear();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(fixture.existing().await, ["m3"]);
}

/// Proves controller/apply-set-errors.
#[tokio::test(start_paused = true)]
async fn invalid_set_sends_nothing() {
    type Errors = Arc<Mutex<Vec<ApplySetError>>>;
    async fn reconcile(
        _: Arc<ServiceAccount>,
        cx: Context<Errors>,
    ) -> Result<Action, ApplySetError> {
        let mut elsewhere = config_map("elsewhere", "1");
        elsewhere.metadata.namespace = Some("bank".into());
        let mut labelled = config_map("labelled", "1");
        labelled
            .labels_mut()
            .insert(APPLY_SET_LABEL.into(), "other".into());
        let cluster_scoped = Namespace {
            metadata: named("space"),
            ..Namespace::default()
        };
        let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
        let widget = DynamicObject::new("widget", &widgets);
        let set = cx
            .apply_set()
            .child(config_map("fine", "1"))
            .child(elsewhere)
            .child(cluster_scoped)
            .child(ConfigMap::default())
            .child(config_map("fine", "2"))
            .child(labelled)
            .child_of(widget, &widgets)
            .child(Service {
                metadata: named("unwatched"),
                ..Service::default()
            });
        let errors = [
            set.await.unwrap_err(),
            cx.apply_set().formerly::<Service>().await.unwrap_err(),
            cx.apply_set().named("a b").await.unwrap_err(),
        ];
        cx.lock().unwrap().extend(errors);
        Ok(Action::await_change())
    }
    let fixture = Fixture::new().await;
    let informers = InformerFactory::new(fixture.faults.client(&fixture.server));
    let errors = Errors::default();
    let controller = Controller::<ServiceAccount>::new("accounts", &informers)
        .owns::<ConfigMap>()
        .state(Arc::clone(&errors));
    let shutdown = CancellationToken::new();
    tokio::spawn(async move { controller.run(reconcile, &shutdown).await });
    sleep(Duration::from_secs(1)).await;
    let errors = std::mem::take(&mut *errors.lock().unwrap());
    let ApplySetError::Refused { failed } = &errors[0] else {
        panic!("{}", errors[0]);
    };
    let apply = |error: &ObjectError| match error {
        ObjectError::Apply(ApplyError::Owner(OwnerError::OtherNamespace { .. })) => "namespace",
        ObjectError::Apply(ApplyError::Owner(OwnerError::ClusterScoped { .. })) => "cluster",
        ObjectError::Apply(ApplyError::Owner(OwnerError::NoNamespace { .. })) => "no namespace",
        ObjectError::Apply(ApplyError::Unnamed { .. }) => "unnamed",
        ObjectError::Apply(ApplyError::NotWatched(_)) => "not watched",
        ObjectError::Duplicate => "duplicate",
        ObjectError::OtherSet { .. } => "other set",
        _ => "?",
    };
    let found: Vec<String> = failed
        .iter()
        .map(|one| format!("{} {}: {}", one.kind, one.key, apply(&one.error)))
        .collect();
    assert_eq!(
        found,
        [
            "ConfigMap bank/elsewhere: namespace",
            "Namespace space: cluster",
            "ConfigMap default/: unnamed",
            "ConfigMap default/fine: duplicate",
            "ConfigMap default/labelled: other set",
            "Widget widget: no namespace",
            "Service default/unwatched: not watched",
        ]
    );
    assert!(matches!(&errors[1], ApplySetError::NotWatched(one) if one.kind == "Service"));
    assert!(matches!(&errors[2], ApplySetError::InvalidName { name } if name == "accounts.a b"));
    assert!(fixture.faults.take_writes().is_empty());
    assert!(fixture.existing().await.is_empty());
}
