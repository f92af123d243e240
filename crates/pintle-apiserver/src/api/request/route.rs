//! Routing: from a path to the resource it names.

use std::sync::Arc;

use super::query::decode;
use crate::registry::{Catalog, Resource};

/// The target of a path.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/`: the list of paths.
    Root,
    /// `/healthz`, `/livez`, `/readyz` and their checks.
    Health,
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/{group}`
    Group(String),
    /// `/api/v1`, `/apis/{group}/{version}`
    GroupVersion(String, String),
    /// `/openapi/v3` and the path below it.
    OpenApi3(String),
    OpenApi2,
    /// `/.well-known/openid-configuration`: the issuer of tokens.
    TokenProvider,
    /// `/openid/v1/jwks`: the keys that verify tokens.
    TokenKeys,
    Resource(Target),
    /// A path below a built-in group that does not exist.
    Unknown,
    NotFound,
}

/// A resource path.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) sub: Option<String>,
    /// The path had the old `/watch/` prefix.
    pub(crate) watch: bool,
}

/// Routes a path.
pub(crate) fn route(path: &str, catalog: &Catalog) -> Route {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| decode(part, false))
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let route = match parts[..] {
        [] => Route::Root,
        ["healthz" | "livez" | "readyz"]
        | ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => Route::Health,
        ["version"] => Route::Version,
        [".well-known", "openid-configuration"] => Route::TokenProvider,
        ["openid", "v1", "jwks"] => Route::TokenKeys,
        ["openapi", "v2"] => Route::OpenApi2,
        ["openapi", "v3", ref rest @ ..] => Route::OpenApi3(rest.join("/")),
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["api", version] => group_version(catalog, "", version),
        ["apis", group] if !group.is_empty() => match catalog.group(group) {
            Some(_) => Route::Group(group.to_owned()),
            None => Route::NotFound,
        },
        ["apis", group, version] => group_version(catalog, group, version),
        ["api", version, ref rest @ ..] => resource(catalog, "", version, rest),
        ["apis", group, version, ref rest @ ..] => resource(catalog, group, version, rest),
        _ => Route::NotFound,
    };
    match route {
        Route::NotFound if in_builtin_group(catalog, &parts) => Route::Unknown,
        route => route,
    }
}

/// Returns true if the path is below a built-in group.
fn in_builtin_group(catalog: &Catalog, parts: &[&str]) -> bool {
    match parts {
        ["api", ..] => true,
        ["apis", group, ..] => catalog.group(group).is_some_and(|group| group.builtin),
        _ => false,
    }
}

fn group_version(catalog: &Catalog, group: &str, version: &str) -> Route {
    if catalog.of_version(group, version).next().is_some() {
        Route::GroupVersion(group.to_owned(), version.to_owned())
    } else {
        Route::NotFound
    }
}

fn resource(catalog: &Catalog, group: &str, version: &str, rest: &[&str]) -> Route {
    let (rest, watch) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (rest, true),
        rest => (rest, false),
    };
    let find = |plural: &str| catalog.find(group, version, plural).cloned();
    let owned = |text: &str| Some(text.to_owned());
    let target = match rest {
        // Subresources of the namespace, not resources in it.
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
            find("namespaces").map(|r| (r, None, owned(name), owned(sub)))
        }
        ["namespaces", namespace, plural] => find(plural)
            .filter(|r| r.namespaced)
            .map(|r| (r, owned(namespace), None, None)),
        ["namespaces", namespace, plural, name] => find(plural)
            .filter(|r| r.namespaced)
            .map(|r| (r, owned(namespace), owned(name), None)),
        ["namespaces", namespace, plural, name, sub] => find(plural)
            .filter(|r| r.namespaced)
            .map(|r| (r, owned(namespace), owned(name), owned(sub))),
        [plural] => find(plural).map(|r| (r, None, None, None)),
        [plural, name] => find(plural)
            .filter(|r| !r.namespaced)
            .map(|r| (r, None, owned(name), None)),
        [plural, name, sub] => find(plural)
            .filter(|r| !r.namespaced)
            .map(|r| (r, None, owned(name), owned(sub))),
        _ => None,
    };
    match target {
        Some((resource, namespace, name, sub)) => Route::Resource(Target {
            resource,
            namespace,
            name,
            sub,
            watch,
        }),
        None => Route::NotFound,
    }
}
