//! Routing: from a path to the resource it names.

use std::sync::Arc;

use http::Method;

use super::{
    path::{self, Prefix, ResourcePath},
    query::Query,
};
use crate::registry::{
    Catalog, Resource,
    verbs::{CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, Verbs, WATCH},
};

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
    /// The path below a proxy, with its slashes; empty if there is none.
    pub(crate) subpath: String,
    /// The path had the old `/watch/` prefix.
    pub(crate) watch: bool,
}

/// Routes a path.
pub(crate) fn route(path: &str, catalog: &Catalog) -> Route {
    let path = path::decoded(path);
    let parts = path::segments(&path);
    if let Some(target) = proxy(catalog, &path, &parts) {
        return Route::Resource(target);
    }
    let route = match parts[..] {
        _ if parts.contains(&"") => Route::NotFound,
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
        ["apis", group] => match catalog.group(group) {
            Some(_) => Route::Group(group.to_owned()),
            None => Route::NotFound,
        },
        ["apis", group, version] => group_version(catalog, group, version),
        _ => ResourcePath::of(&parts)
            .and_then(|path| target(catalog, &path))
            .map_or(Route::NotFound, Route::Resource),
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

/// Returns the target of a resource path, or `None` if there is no such resource.
fn target(catalog: &Catalog, path: &ResourcePath<'_>) -> Option<Target> {
    let watch = path.prefix == Some(Prefix::Watch);
    let served = path.below == 0
        && path.prefix != Some(Prefix::Proxy)
        // Only objects and collections can be watched.
        && (!watch || path.sub.is_empty());
    let resource = catalog.find(path.group, path.version, path.plural);
    let resource = resource.filter(|resource| {
        let scope_fits = match path.within {
            Some(_) => resource.namespaced,
            None => !resource.namespaced || path.name.is_empty(),
        };
        served && scope_fits
    })?;
    let part = |part: &str| (!part.is_empty()).then(|| part.to_owned());
    Some(Target {
        resource: Arc::clone(resource),
        namespace: path.within.map(str::to_owned),
        name: part(path.name),
        sub: part(path.sub),
        subpath: String::new(),
        watch,
    })
}

/// Returns the target of a path to a proxy. What follows is the path that it proxies to, whose
/// segments may be empty.
fn proxy(catalog: &Catalog, decoded: &str, parts: &[&str]) -> Option<Target> {
    let path = ResourcePath::of(parts).filter(|path| path.sub == "proxy")?;
    let (own, below) = parts.split_at(parts.len() - path.below);
    let own_path = ResourcePath { below: 0, ..path };
    let target = target(catalog, &own_path).filter(Target::is_connect)?;
    if own.contains(&"") || target.resource.sub("proxy").is_none() {
        return None;
    }
    let mut subpath = below.join("/");
    if !subpath.is_empty() && !subpath.starts_with('/') {
        subpath.insert(0, '/');
    }
    if decoded.ends_with('/') && !subpath.ends_with('/') {
        subpath.push('/');
    }
    Some(Target { subpath, ..target })
}

impl Target {
    /// Returns the verb of a request: what it was authorized for, or `None` if nothing serves the
    /// method here.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> Option<Verbs> {
        let named = self.name.is_some();
        Some(match *method {
            Method::GET if self.watch => WATCH,
            Method::GET if named => GET,
            Method::GET if query.flag("watch") => WATCH,
            Method::GET => LIST,
            _ if self.watch => return None,
            Method::POST if named == self.sub.is_some() => CREATE,
            Method::PUT if named => UPDATE,
            Method::PATCH if named => PATCH,
            Method::DELETE if named => DELETE,
            Method::DELETE => DELETE_COLLECTION,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
