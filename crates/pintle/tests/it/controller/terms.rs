//! A leader that loses and regains its lease runs the same controller on the same factory.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::core::PartialObjectMeta;
use pintle::{
    cache::{Lister, ObjectKey},
    controller::{Action, Controller},
};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::World;

/// Runs a controller of ServiceAccounts for one term.
fn term(world: &World) -> (CancellationToken, JoinHandle<()>) {
    let (informers, seen, end) = (
        world.informers.clone(),
        world.seen.clone(),
        CancellationToken::new(),
    );
    let stop = end.clone();
    let running = tokio::spawn(async move {
        let controller = Controller::<ServiceAccount>::new("accounts", &informers)
            .owns::<ConfigMap>()
            .watches::<PartialObjectMeta<ServiceAccount>>(|_, _| Vec::new());
        let start = tokio::time::Instant::now();
        let reconcile = move |key: ObjectKey, _| {
            seen.push(&key, start);
            async { Ok(Action::await_change()) }
        };
        let stopped = controller.run_by_key(reconcile, &stop).await.unwrap();
        assert!(stopped.unfinished.is_empty());
    });
    (end, running)
}

async fn finish((end, running): (CancellationToken, JoinHandle<()>)) {
    end.cancel();
    running.await.unwrap();
}

fn names(lister: &Lister<ServiceAccount>) -> Vec<String> {
    let mut names: Vec<_> = lister
        .list()
        .iter()
        .map(|account| account.key().name().to_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Proves factory/restart.
#[tokio::test(start_paused = true)]
async fn second_term_works_while_a_lister_of_the_first_is_held() {
    let world = World::new();
    world.account("a").await;
    let accounts = world.informers.informer::<ServiceAccount>();
    accounts.index_field("name", "/metadata/name").unwrap();
    let held = accounts.lister();
    drop(accounts);
    let first = term(&world);
    world.settle().await;
    assert_eq!(world.seen.take(), ["a"]);
    finish(first).await;

    // Between the terms no informer runs.
    world.account("b").await;
    world.settle().await;
    assert_eq!(names(&held), ["a"]);

    let second = term(&world);
    world.settle().await;
    let mut seen = world.seen.take();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b"]);
    assert_eq!(names(&held), ["a", "b"], "the lister is updated");
    assert_eq!(held.by_index("name", "b").unwrap().len(), 1);
    world.account("c").await;
    world.settle().await;
    assert_eq!(world.seen.take(), ["c"]);
    assert_eq!(names(&held), ["a", "b", "c"]);
    finish(second).await;
}

/// Proves factory/restart.
#[tokio::test(start_paused = true)]
async fn every_term_works_with_listers_of_earlier_terms() {
    let world = World::new();
    let mut held = Vec::new();
    let mut expected = Vec::new();
    for number in 0..20 {
        let name = format!("a{number:02}");
        let running = term(&world);
        held.push(world.informers.informer::<ServiceAccount>().lister());
        world.settle().await;
        world.seen.take();
        world.account(&name).await;
        expected.push(name.clone());
        world.settle().await;
        assert_eq!(world.seen.take(), [name.as_str()], "term {number}");
        for lister in &held {
            assert_eq!(names(lister), expected, "term {number}");
        }
        finish(running).await;
    }
}

/// Proves factory/restart.
#[tokio::test(start_paused = true)]
async fn restart_revives_informers_still_in_use() {
    let world = World::new();
    let first = CancellationToken::new();
    let held = world.informers.informer::<ServiceAccount>().lister();
    world.informers.start(&first);
    world.informers.wait_for_sync().await.unwrap();
    first.cancel();
    world.settle().await;
    world.account("late").await;

    let second = CancellationToken::new();
    world.informers.start(&second);
    world.informers.wait_for_sync().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&held), ["late"]);
}
