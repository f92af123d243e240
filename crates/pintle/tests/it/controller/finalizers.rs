//! A finalizer stored by a controller is one of its own writes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use pintle::{
    cache::ObjectKey, controller::Action, finalizer::Guard, metrics::Metrics, queue::WorkQueue,
};
use pintle_apiserver::ApiServer;
use tokio::time::sleep;

use super::{World, delete, slow_watches};

/// Proves controller/read-your-writes.
#[tokio::test(start_paused = true)]
async fn finalizer_is_not_stored_twice_from_a_stale_cache() {
    let server = ApiServer::builder().build();
    let late = Duration::from_secs(2);
    let world = World::on(slow_watches(&server, "serviceaccounts", late));
    let metrics = Metrics::new();
    let controller = world.controller().metrics(&metrics);
    let queue = WorkQueue::new("accounts");
    let key = ObjectKey::namespaced("default", "a");
    let running = world.run(controller.queue(queue.clone()), |key, cx| async move {
        let Some(account) = cx.lister::<ServiceAccount>()?.get(&key) else {
            return Ok(Action::await_change());
        };
        let account = account.get()?;
        let guard = cx.finalizer("example.org/bucket", &*account).await?;
        if let Guard::CleanUp(clean_up) = guard {
            clean_up.release().await?;
        }
        Ok(Action::await_change())
    });
    sleep(Duration::from_secs(30)).await;
    world.account("a").await;
    sleep(Duration::from_millis(2100)).await;
    // The cache shows the account, but not yet its finalizer.
    queue.add(key.clone());
    sleep(Duration::from_secs(30)).await;
    delete(&world.accounts(), "a").await;
    sleep(Duration::from_millis(2100)).await;
    queue.add(key.clone());
    sleep(Duration::from_secs(30)).await;
    assert!(world.accounts().get_opt("a").await.unwrap().is_none());
    let errors = r#"controller_runtime_reconcile_errors_total{controller="accounts"} 0"#;
    assert!(metrics.encode().contains(errors), "{}", metrics.encode());
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Proves controller/cleanup.
#[tokio::test(start_paused = true)]
async fn reconcile_by_key_sees_the_stored_finalizer() {
    let server = ApiServer::builder().build();
    let late = Duration::from_secs(2);
    let world = World::on(slow_watches(&server, "serviceaccounts", late));
    let name = "example.org/bucket";
    let controller = world
        .controller()
        .finalizer(name, |_, _| async { Ok::<_, kube::Error>(()) });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let finalizers = Arc::clone(&seen);
    let running = world.run(controller, move |key, cx| {
        let account = cx.lister::<ServiceAccount>().unwrap().get(&key).unwrap();
        let account = account.get().unwrap();
        finalizers
            .lock()
            .unwrap()
            .push(account.finalizers().to_vec());
        async { Ok(Action::await_change()) }
    });
    world.account("a").await;
    sleep(Duration::from_secs(30)).await;
    world.shutdown.cancel();
    running.await.unwrap().unwrap();
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty());
    assert!(
        seen.iter().all(|finalizers| *finalizers == [name]),
        "{seen:?}"
    );
}
