//! OpenAPI documents: v3 as an index and one document per group and version, v2 as a single
//! document.
//!
//! The documents contain what clients use: the paths, their kinds, the patch types they accept, and
//! the schema of every kind. Of the built-in types, only `ObjectMeta` has descriptions.

mod gnostic;
mod paths;
mod schemas;
mod v2;

use std::borrow::Cow;

use http::{HeaderValue, Response, header, request::Parts};
use jiff::{SignedDuration, Timestamp};
use pintle_clock::StableHash;
use serde_json::{Map, Value, json};

pub(crate) use self::v2::Document as Version2;
use crate::api::{Body, request::query::Query, response};
use crate::{registry::Catalog, schema::builtin::KUBERNETES_VERSION, server::KUBERNETES};

/// Handles `/openapi/v3` and everything below it.
pub(crate) fn answer(
    rest: &str,
    catalog: &Catalog,
    parts: &Parts,
    now: Timestamp,
) -> Response<Body> {
    if rest.is_empty() {
        return response::json(200, &index(catalog));
    }
    let found = versions(catalog).find(|(name, ..)| name == rest);
    let Some((name, group, version)) = found else {
        let mut response = response::json_bytes(404, "");
        response.headers_mut().remove(header::CONTENT_TYPE);
        return response;
    };
    let hash = fingerprint(catalog, &group, &version);
    let asked = Query::parse(parts.uri.query());
    match asked.get("hash") {
        "" => tagged(
            response::json(200, &document(catalog, &group, &version)),
            &hash,
        ),
        known if known == hash => {
            let response = response::json(200, &document(catalog, &group, &version));
            let mut response = tagged(response, &hash);
            let forever = HeaderValue::from_static("public, immutable");
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, forever);
            if let Some(expires) = in_a_year(now) {
                headers.insert(header::EXPIRES, expires);
            }
            response
        }
        _ => {
            let mut response = tagged(response::json_bytes(301, ""), &hash);
            if let Ok(location) = HeaderValue::from_str(&url(&name, &hash)) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            response
        }
    }
}

fn in_a_year(now: Timestamp) -> Option<HeaderValue> {
    let year = SignedDuration::from_hours(24 * 365);
    let time = now.checked_add(year).ok()?;
    let text = time.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    HeaderValue::from_str(&text).ok()
}

fn tagged(mut response: Response<Body>, hash: &str) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Returns every group and version with the name of its document.
fn versions(catalog: &Catalog) -> impl Iterator<Item = (String, String, String)> {
    catalog.groups().into_iter().flat_map(|group| {
        group.versions.iter().map(|version| {
            let name = if group.name.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{}/{version}", group.name)
            };
            (name, group.name.clone(), version.clone())
        })
    })
}

fn url(name: &str, hash: &str) -> String {
    format!("/openapi/v3/{name}?hash={hash}")
}

fn index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for (name, group, version) in versions(catalog) {
        let hash = fingerprint(catalog, &group, &version);
        paths.insert(
            name.clone(),
            json!({"serverRelativeURL": url(&name, &hash)}),
        );
    }
    json!({"paths": paths})
}

/// Returns a hash that changes whenever the document does, without building it: built-in kinds
/// change with the server, custom resources with their CRD.
fn fingerprint(catalog: &Catalog, group: &str, version: &str) -> String {
    let resources = catalog.of_version(group, version).flat_map(|resource| {
        let custom = resource.custom.as_ref().map(|custom| {
            // A definition that is deleted and created again can have other names and another scope.
            [
                Cow::Borrowed(resource.kind.as_str()),
                Cow::Borrowed(resource.list_kind.as_str()),
                Cow::Borrowed(if resource.namespaced { "n" } else { "c" }),
                Cow::Owned(format!("{:x}", custom.digest())),
            ]
        });
        [Cow::Borrowed(resource.plural.as_str())]
            .into_iter()
            .chain(custom.into_iter().flatten())
    });
    hash(resources)
}

/// Returns a hash of the Kubernetes and server versions and the given strings.
fn hash<T: AsRef<str>>(texts: impl Iterator<Item = T>) -> String {
    let mut hash = StableHash::default();
    let mut add = |text: &str| {
        hash.add(text.as_bytes());
        hash.add(&[0]);
    };
    add(KUBERNETES_VERSION);
    add(env!("CARGO_PKG_VERSION"));
    for text in texts {
        add(text.as_ref());
    }
    format!("{:016X}", hash.finish())
}

#[cfg(test)]
thread_local! {
    /// Counts documents built on this thread, so that tests can measure work.
    pub(crate) static BUILT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn document(catalog: &Catalog, group: &str, version: &str) -> Value {
    #[cfg(test)]
    BUILT.set(BUILT.get() + 1);
    let (major, minor) = KUBERNETES;
    let mut all = Map::new();
    for resource in catalog.of_version(group, version) {
        paths::add(&mut all, resource);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("{major}.{minor}")},
        "paths": all,
        "components": {"schemas": schemas::of(catalog, group, version)},
    })
}
