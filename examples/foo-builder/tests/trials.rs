//! Both forms of the sample controller converge under every fault.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use pintle::{
    events::EventBroadcaster, informer::InformerFactory, queue::WorkQueue, rbac::Account,
};
use pintle_trials::{Check, Cx, Report, Story, check};
use sample_controller::{
    controller::{Controller, NAME},
    foo::{Foo, FooSpec},
};

/// The controller on the builder.
async fn built(cx: Cx) {
    let informers = InformerFactory::new(cx.client()).rng(cx.rng());
    let controller = foo_builder::controller(&informers).clock(cx.clock());
    let _ = controller.run(foo_builder::reconcile, cx.shutdown()).await;
    informers.shutdown().await;
}

/// The controller with its own informers, queue and workers.
async fn classic(cx: Cx) {
    let (client, clock) = (cx.client(), cx.clock());
    let informers = InformerFactory::new(client.clone()).rng(cx.rng());
    let events = EventBroadcaster::builder().clock(clock.clone()).build();
    let _sink = events.start_recording(client.clone());
    let (queue, recorder) = (WorkQueue::new("Foos"), events.recorder(NAME));
    let controller = Controller::new(client, &informers, recorder, queue, clock);
    informers.start(cx.shutdown());
    if let Ok(controller) = controller {
        let _ = controller.run(2, cx.shutdown()).await;
    }
    informers.shutdown().await;
    let _ = events.shutdown(Duration::from_secs(5)).await;
}

fn foo(deployment: &str, replicas: i32) -> Foo {
    let spec = FooSpec {
        deployment_name: deployment.to_owned(),
        replicas: Some(replicas),
    };
    let mut foo = Foo::new("web", spec);
    foo.metadata.namespace = Some("default".to_owned());
    foo
}

/// Creates a Foo, scales it, renames its Deployment, then deletes and recreates the Foo.
fn story() -> Story {
    Story::new()
        .apply(&foo("web", 1))
        .apply(&foo("web", 2))
        .apply(&foo("site", 2))
        .delete(&foo("site", 2))
        .apply(&foo("web", 1))
}

fn trial<F, R>(controller: F) -> Check
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    check(controller)
        .crd(&sample_controller::crd::definition())
        .story(story())
        .budget(Duration::MAX)
}

/// The rules of the role that the sample's manifests create.
fn rules() -> Vec<PolicyRule> {
    let account = Account::new(NAME, "default");
    let manifests = sample_controller::controller::rules().manifests(&account);
    let role = manifests.cluster_role.and_then(|role| role.rules);
    role.expect("the controller works in all namespaces")
}

/// Proves trials/own-controllers.
#[test]
fn classic_form_converges_with_its_role() {
    let report = trial(classic).role(rules()).run();
    assert_complete(&report);
}

/// Proves trials/own-controllers.
#[test]
fn builder_form_converges() {
    let report = trial(built).run();
    assert_complete(&report);
}

/// Asserts that no scenario was left out, unless a shorter budget was requested.
fn assert_complete(report: &Report) {
    if std::env::var_os("PINTLE_TRIALS_BUDGET").is_none() {
        assert_eq!(report.left_out, 0, "{report}");
    }
}
