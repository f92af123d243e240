use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;

use super::*;

const OURS: &str = "example.org/bucket";

type Patches = Arc<Mutex<Vec<Value>>>;

/// A server that responds to every patch with `code`, and the patches it received.
fn server(code: u16) -> (Api<ConfigMap>, Patches) {
    let patches = Patches::default();
    let seen = Arc::clone(&patches);
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            assert_eq!(
                request.uri().path(),
                "/api/v1/namespaces/shop/configmaps/web"
            );
            let body = request
                .into_body()
                .collect()
                .await
                .expect("body")
                .to_bytes();
            seen.lock()
                .push(serde_json::from_slice(&body).expect("JSON"));
            let response = json!({ "code": code, "metadata": { "resourceVersion": "8" } })
                .to_string()
                .into_bytes();
            let response = Response::builder().status(code).body(Body::from(response));
            Ok::<_, Infallible>(response.expect("response"))
        }
    });
    (
        Api::namespaced(Client::new(service, "default"), "shop"),
        patches,
    )
}

fn config(finalizers: &[&str], deleted: bool) -> ConfigMap {
    let metadata = json!({
        "name": "web",
        "namespace": "shop",
        "resourceVersion": "7",
        "finalizers": finalizers,
        "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z"),
    });
    serde_json::from_value(json!({ "metadata": metadata })).expect("ConfigMap")
}

fn finalizer() -> Finalizer {
    Finalizer::new(OURS).expect("valid name")
}

/// Proves finalizer/stored-first.
#[tokio::test]
async fn object_is_held_only_once_its_finalizer_is_stored() {
    let ours = finalizer();
    let (api, patches) = server(200);
    let config = config(&["other/one"], false);
    let guard = ours.guard(&api, &config).await.expect("stored");
    // The held object has the new `resourceVersion`, so that it can be written again.
    let stored = |object: &ConfigMap| object.metadata.resource_version.as_deref() == Some("8");
    assert!(matches!(guard, Guard::Held(held) if stored(held.object())));
    let metadata = json!({ "resourceVersion": "7", "finalizers": ["other/one", OURS] });
    assert_eq!(*patches.lock(), [json!({ "metadata": metadata })]);
}

/// Proves finalizer/stored-first.
#[tokio::test]
async fn failed_write_does_not_hold_the_object() {
    let ours = finalizer();
    for code in [409, 404, 422, 500] {
        let (api, patches) = server(code);
        let error = ours
            .guard(&api, &config(&[], false))
            .await
            .expect_err("not stored");
        assert_eq!(
            matches!(error, FinalizerError::Changed(_)),
            code == 409,
            "{error}"
        );
        assert_eq!(patches.lock().len(), 1);
    }
    let (api, patches) = server(200);
    let mut new = config(&[], false);
    new.metadata.resource_version = None;
    let error = ours.guard(&api, &new).await.expect_err("never stored");
    assert!(matches!(error, FinalizerError::NotStored(_)));
    assert!(patches.lock().is_empty());
}

/// Proves finalizer/stored-first.
#[tokio::test]
async fn stored_finalizer_costs_no_request() {
    let ours = finalizer();
    let (api, patches) = server(500);
    let held = config(&[OURS], false);
    assert!(matches!(ours.guard(&api, &held).await, Ok(Guard::Held(_))));
    let gone = config(&["other/one"], true);
    assert!(matches!(ours.guard(&api, &gone).await, Ok(Guard::Gone)));
    assert!(patches.lock().is_empty());
}

/// Proves finalizer/stored-first.
#[tokio::test]
async fn release_removes_only_our_finalizer() {
    let ours = finalizer();
    for (code, released) in [(200, true), (404, true), (409, false), (500, false)] {
        let (api, patches) = server(code);
        let deleted = config(&["other/one", OURS], true);
        let guard = ours.guard(&api, &deleted).await.expect("cleanup");
        assert!(
            patches.lock().is_empty(),
            "nothing is written before the cleanup"
        );
        let Guard::CleanUp(clean_up) = guard else {
            panic!("{guard:?}")
        };
        assert_eq!(clean_up.object(), &deleted);
        assert_eq!(clean_up.release().await.is_ok(), released, "after {code}");
        let metadata = json!({ "resourceVersion": "7", "finalizers": ["other/one"] });
        assert_eq!(*patches.lock(), [json!({ "metadata": metadata })]);
    }
}

/// Proves finalizer/stored-first.
#[test]
fn finalizer_name_needs_a_domain_and_a_word() {
    for name in ["example.org/bucket", "a/b", "kubernetes.io/pv-protection"] {
        assert!(Finalizer::new(name).is_ok(), "{name}");
    }
    for name in [
        "",
        "bucket",
        "/bucket",
        "example.org/",
        "a b/c",
        "a/b/c",
        "a/-b",
        "a./b",
    ] {
        assert!(
            matches!(Finalizer::new(name), Err(FinalizerError::Name(_))),
            "{name}"
        );
    }
}
