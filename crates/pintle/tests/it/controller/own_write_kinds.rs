//! Own writes are matched by group and kind, whatever the Rust type of the cache or the write.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Secret, Service, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PostParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use pintle::{
    cache::Kind,
    controller::{Action, Predicate},
    informer::{Namespaces, SharedInformer, WatchInput},
    metrics::Metrics,
    source::{KubeSource, Scope},
};
use pintle_apiserver::ApiServer;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::{World, slow_watches};

/// A partial Secret.
#[derive(Clone, Debug, Deserialize)]
struct SlimSecret {
    metadata: ObjectMeta,
}

impl Resource for SlimSecret {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Secret::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Secret::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Secret::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Secret::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn child() -> Secret {
    let metadata = json!({
        "generateName": "child-", "namespace": "default", "labels": {"child": "yes"},
    });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// Runs a controller that creates a Secret unless its cache of `input` shows one, with that cache
/// two seconds behind the server. Returns how many Secrets it created.
async fn children_created_from<K: Kind>(input: WatchInput<K>) -> usize {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let controller = world.controller();
    let controller = controller.watches_from(input.clone(), |_, _| Vec::new());
    let _running = world.run(controller, move |key, cx| {
        let input = input.clone();
        async move {
            if key.name() == "parent" {
                let cached = cx.lister_from(&input)?.list();
                let mut labels = cached.iter().map(|secret| secret.labels());
                if !labels.any(|labels| labels.contains_key("child")) {
                    cx.create(&child()).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    for round in 0..5 {
        sleep(Duration::from_millis(100)).await;
        world.relabel("parent", round).await;
    }
    sleep(Duration::from_secs(60)).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let all = secrets.list(&ListParams::default()).await.unwrap();
    let created = all
        .iter()
        .filter(|secret| secret.labels().contains_key("child"));
    created.count()
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn metadata_cache_is_awaited() {
    let metadata = WatchInput::<PartialObjectMeta<Secret>>::new();
    assert_eq!(children_created_from(metadata).await, 1);
    let metadata = WatchInput::<PartialObjectMeta>::of(ApiResource::erase::<Secret>(&()));
    assert_eq!(children_created_from(metadata).await, 1);
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn cache_of_a_partial_struct_is_awaited() {
    let slim = WatchInput::<SlimSecret>::new();
    assert_eq!(children_created_from(slim).await, 1);
}

/// Proves controller/read-your-writes, controller/inputs.
#[tokio::test(start_paused = true)]
async fn cache_of_every_form_is_awaited() {
    let secrets = WatchInput::<Secret>::new;
    let marked = secrets().transform("mark", |secret| {
        secret["metadata"]["labels"]["marked"] = json!("yes");
        Ok(())
    });
    for input in [
        secrets(),
        secrets().eager().keep_managed_fields(),
        secrets().namespace("default"),
        secrets().namespaces(["default", "kube-system"]),
        secrets().follow_namespaces(&Namespaces::new(["default", "kube-public"])),
        marked,
    ] {
        let described = format!("{input:?}");
        assert_eq!(children_created_from(input).await, 1, "{described}");
    }
    let secrets = || WatchInput::<DynamicObject>::of(ApiResource::erase::<Secret>(&()));
    assert_eq!(children_created_from(secrets()).await, 1);
    let several = secrets().namespaces(["default", "kube-system"]);
    assert_eq!(children_created_from(several).await, 1);
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn deletion_that_returns_the_object_is_awaited() {
    for scope in [Scope::all(), Scope::all().labels("team=ours")] {
        assert_eq!(observe_service_deletion(scope).await, [true, false]);
    }
}

/// Deletes a Service; the server's response is the deleted Service. Returns whether each reconcile
/// found it in its cache of `scope`.
async fn observe_service_deletion(scope: Scope) -> Vec<bool> {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "services", Duration::from_secs(2)));
    let services: Api<Service> = Api::namespaced(world.client.clone(), "default");
    let service = json!({"metadata": {"name": "web", "labels": {"team": "ours"}}, "spec": {"ports": [{"port": 80}]}});
    let service = serde_json::from_value(service).unwrap();
    services
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    let source = KubeSource::<Service>::new(world.client.clone(), scope);
    let cached = SharedInformer::<Service>::new(source);
    world.informers.adopt(&WatchInput::new(), &cached);
    let found = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&found);
    let controller = world.controller().watches::<Service>(|_, _| Vec::new());
    let _running = world.run(controller, move |key, cx| {
        let seen = Arc::clone(&seen);
        async move {
            if key.name() == "parent" {
                let service = cx.lister::<Service>()?.namespace("default").get("web");
                seen.lock().unwrap().push(service.is_some());
                if let Some(service) = service {
                    cx.delete(&service).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    sleep(Duration::from_millis(100)).await;
    world.relabel("parent", 1).await;
    sleep(Duration::from_secs(60)).await;
    found.lock().unwrap().clone()
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn dynamic_write_is_awaited_in_a_typed_cache() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(2)));
    let found = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&found);
    let controller = world.controller().watches::<Secret>(|_, _| Vec::new());
    let _running = world.run(controller, move |key, cx| {
        let seen = Arc::clone(&seen);
        async move {
            if key.name() == "parent" {
                let shown = cx.lister::<Secret>()?.namespace("default").get("child");
                seen.lock().unwrap().push(shown.is_some());
                if shown.is_none() {
                    let secrets = ApiResource::erase::<Secret>(&());
                    let child = DynamicObject::new("child", &secrets).within("default");
                    cx.of::<DynamicObject>(&secrets).create(&child).await?;
                }
            }
            Ok(Action::await_change())
        }
    });
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    sleep(Duration::from_millis(100)).await;
    world.relabel("parent", 1).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*found.lock().unwrap(), [false, true]);
}

/// Returns the value of a metric.
fn value(metrics: &Metrics, line: &str) -> f64 {
    let text = metrics.encode();
    let value = text.lines().find_map(|found| found.strip_prefix(line));
    value
        .unwrap_or_else(|| panic!("{line} in {text}"))
        .trim()
        .parse()
        .unwrap()
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn waiting_for_own_writes_counts_as_neither_work_nor_retry() {
    let server = ApiServer::builder().build();
    let world = World::on(slow_watches(&server, "secrets", Duration::from_secs(4)));
    let metrics = Metrics::new();
    let controller = world
        .controller()
        .watches::<Secret>(|_, _| Vec::new())
        .metrics(&metrics);
    let _running = world.run(controller, |key, cx| async move {
        if key.name() == "parent" {
            cx.create(&child()).await?;
        }
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(30)).await;
    world.account("parent").await;
    sleep(Duration::from_millis(100)).await;
    world.relabel("parent", 1).await;
    sleep(Duration::from_secs(2)).await;
    let labels = r#"name="accounts",controller="accounts""#;
    let of = |metric: &str| value(&metrics, &format!("{metric}{{{labels}}}"));
    let parked = r#"controller_runtime_reconcile_parked_total{controller="accounts"}"#;
    assert!(value(&metrics, parked) > 0.5, "the key waits");
    assert!(of("workqueue_unfinished_work_seconds") < 0.001);
    assert!(of("workqueue_longest_running_processor_seconds") < 0.001);
    sleep(Duration::from_secs(30)).await;
    assert!(of("workqueue_work_duration_seconds_sum") < 0.001);
    assert!(of("workqueue_retries_total") < 0.5);
}

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn own_writes_are_dropped_without_another_run() {
    let world = World::new();
    let metrics = Metrics::new();
    let controller = world
        .controller()
        .filter(Predicate::new(|old, _| old.is_none()))
        .metrics(&metrics);
    let _running = world.run(controller, |key, cx| async move {
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        cx.patch::<ServiceAccount, _>(&key, &Patch::Merge(label))
            .await?;
        Ok(Action::await_change())
    });
    for name in ["a", "b", "c"] {
        world.account(name).await;
    }
    world.settle().await;
    assert_eq!(world.seen.take(), ["a", "b", "c"], "no key runs again");
    let unseen = r#"controller_runtime_reconcile_unseen_writes{controller="accounts"}"#;
    assert!(value(&metrics, unseen) < 0.5);
}
