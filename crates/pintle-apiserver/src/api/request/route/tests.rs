use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::{
    authz::{Access, access::What},
    registry::{Registry, verbs::verb_names},
    store::Store,
};

static CATALOG: LazyLock<Arc<Catalog>> =
    LazyLock::new(|| Registry::new(&Store::new(1, 1)).catalog());

/// Segments that often form a resource path, and some that never do.
fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "%2F",
        "x%2Fy",
        "watch",
        "proxy",
        "namespaces",
        "default",
        "pods",
        "nodes",
        "services",
        "secrets",
        "deployments",
        "status",
        "finalize",
        "scale",
        "apps",
        "v1",
        "api",
        "apis",
        "a",
    ])
}

fn path() -> impl Strategy<Value = String> {
    let start = prop::sample::select(vec!["/api/v1", "/apis/apps/v1", "/apis", "/", ""]);
    let watch = prop::sample::select(vec!["", "/watch"]);
    let within = prop::sample::select(vec!["", "/namespaces/default"]);
    let rest = prop::collection::vec(segment(), 0..5);
    (start, watch, within, rest).prop_map(|(start, watch, within, rest)| {
        format!("{start}{watch}{within}/{}", rest.join("/"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    // Proves rbac/one-path.
    #[test]
    fn what_is_executed_is_what_was_authorized(
        method in prop::sample::select(vec![
            Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE,
            Method::OPTIONS, Method::CONNECT,
        ]),
        path in path(),
        query in prop::sample::select(vec!["", "watch=1", "watch=0", "watch", "watch=true&watch=0"]),
    ) {
        let Ok(uri) = format!("{path}?{query}").parse::<http::Uri>() else { return Ok(()) };
        let Route::Resource(target) = route(uri.path(), &CATALOG) else { return Ok(()) };
        let access = Access::of_request(&method, &uri);
        let verb = target.verb(&method, &Query::parse(uri.query()));
        let verbs = match verb {
            // A connect works with methods that have no verb.
            _ if target.is_connect() => vec![&*access.verb],
            Some(verb) => verb_names(verb),
            None => return Ok(()),
        };
        let What::Resource(authorized) = &access.what else {
            return Err(TestCaseError::fail(format!("{method} {uri} was authorized as {access:?}")));
        };
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let name = text(&target.name);
        let namespace = match &target.namespace {
            None if target.resource.plural == "namespaces" => name.clone(),
            namespace => text(namespace),
        };
        let executed = (
            verbs, &*target.resource.group, &*target.resource.plural, text(&target.sub),
            namespace, name,
        );
        prop_assert_eq!(
            executed,
            (
                vec![&*access.verb], &*authorized.group, &*authorized.plural,
                authorized.sub.to_string(), authorized.namespace.to_string(),
                authorized.name.to_string(),
            ),
            "{} {}", method, uri
        );
    }
}
