//! What is served: discovery in its old and its aggregated form, version, health, the root.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::{HeaderValue, Response, header, request::Parts};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApiError, Body, respond, route::Route};
use crate::{
    registry::{Catalog, Resource, kind::verb_names},
    server::KUBERNETES,
};

/// Answers a path that names no resource.
pub(crate) fn answer(
    route: &Route,
    catalog: &Catalog,
    parts: &Parts,
    now: Timestamp,
) -> Response<Body> {
    match route {
        Route::Root => respond::json(200, &root(catalog)),
        Route::Health => respond::text(200, "ok"),
        Route::Version => respond::json(200, &version()),
        Route::CoreVersions => match aggregated_form(parts) {
            Some(form) => aggregated(parts, form, catalog, str::is_empty),
            None => respond::json(
                200,
                &json!({"kind": "APIVersions", "versions": ["v1"],
                    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]}),
            ),
        },
        Route::Groups => {
            if let Some(form) = aggregated_form(parts) {
                aggregated(parts, form, catalog, |group| !group.is_empty())
            } else {
                let groups: Vec<Value> = named_groups(catalog).map(|g| group(g, false)).collect();
                let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
                respond::json(200, &list)
            }
        }
        Route::Group(name) => match catalog.group(name) {
            Some(found) => respond::json(200, &group(found, true)),
            None => respond::not_found(),
        },
        Route::GroupVersion(group, version) => {
            respond::json(200, &resource_list(catalog, group, version))
        }
        Route::OpenApi3(rest) => super::openapi::answer(rest, catalog, parts, now),
        Route::Unknown => respond::error(&ApiError::unknown_resource()),
        Route::OpenApi2
        | Route::NotFound
        | Route::Resource(_)
        | Route::TokenProvider
        | Route::TokenKeys => respond::not_found(),
    }
}

fn named_groups(catalog: &Catalog) -> impl Iterator<Item = &crate::registry::Group> {
    catalog
        .groups()
        .into_iter()
        .filter(|group| !group.name.is_empty())
}

fn root(catalog: &Catalog) -> Value {
    let first = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
    ];
    let mut paths: Vec<String> = first.map(str::to_owned).into();
    for group in named_groups(catalog) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(
            group
                .versions
                .iter()
                .map(|v| format!("/apis/{}/{v}", group.name)),
        );
    }
    for path in [
        "/healthz",
        "/livez",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ] {
        paths.push(path.to_owned());
    }
    json!({"paths": paths})
}

fn version() -> Value {
    let (major, minor) = KUBERNETES;
    json!({
        "major": major, "minor": minor,
        "gitVersion": format!("v{major}.{minor}.4+pintle.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn group(group: &crate::registry::Group, whole: bool) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|v| json!({"groupVersion": format!("{}/{v}", group.name), "version": v}))
        .collect();
    let mut value =
        json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions});
    if whole {
        value["kind"] = "APIGroup".into();
        value["apiVersion"] = "v1".into();
    }
    value
}

/// The verbs of a resource; custom ones are listed in an order of their own.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    match &resource.custom {
        // Nothing can be done there, and who looks for a version to work in shall take another.
        Some(custom) if custom.needs_webhook => Vec::new(),
        Some(_) => vec![
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
        None => verb_names(resource.verbs),
    }
}

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in catalog.of_version(group, version) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = resource.short_names.clone().into();
        }
        if !resource.categories.is_empty() {
            entry["categories"] = resource.categories.clone().into();
        }
        if let Some(hash) = &resource.storage_hash {
            entry["storageVersionHash"] = hash.clone().into();
        }
        resources.push(entry);
        for sub in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": verb_names(sub.verbs),
            });
            if sub.group != resource.group || sub.version != resource.version {
                entry["group"] = sub.group.clone().into();
                entry["version"] = sub.version.clone().into();
            }
            resources.push(entry);
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version,
        "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The aggregated form the client can read, if any: the version of `apidiscovery.k8s.io`.
fn aggregated_form(parts: &Parts) -> Option<&'static str> {
    let accept = parts.headers.get(header::ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|option| {
        let has = |wanted: &str| option.split(';').any(|part| part.trim() == wanted);
        if !(has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList")) {
            return None;
        }
        ["v2"]
            .into_iter()
            .find(|version| has(&format!("v={version}")))
    })
}

fn aggregated(
    parts: &Parts,
    form: &str,
    catalog: &Catalog,
    wanted: impl Fn(&str) -> bool,
) -> Response<Body> {
    let items: Vec<Value> = catalog
        .groups()
        .into_iter()
        .filter(|group| wanted(&group.name))
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|v| aggregated_version(catalog, &group.name, v))
                .collect();
            let metadata = if group.name.is_empty() {
                json!({})
            } else {
                json!({"name": group.name})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body = json!({"kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{form}"), "metadata": {}, "items": items})
    .to_string();
    let tag = format!("\"{:016X}\"", hash(&body));
    let matches = parts
        .headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList");
    let content_type = HeaderValue::from_str(&content_type)
        .unwrap_or(HeaderValue::from_static("application/json"));
    let (code, body) = if matches {
        (304, Body::whole(""))
    } else {
        (200, Body::whole(body))
    };
    let mut response = respond::with(code, content_type, body);
    let headers = response.headers_mut();
    if matches {
        headers.remove(header::CONTENT_TYPE);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn aggregated_version(catalog: &Catalog, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = catalog
        .of_version(group, version)
        .map(|resource| aggregated_resource(resource))
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

/// The kind of an answer. Group and version of a built-in one are left to the reader where they are
/// those of the resource.
fn response_kind(resource: &Resource, [group, version, kind]: [&str; 3]) -> Value {
    let own = group == resource.group && version == resource.version;
    let [group, version] = if own && resource.custom.is_none() {
        [""; 2]
    } else {
        [group, version]
    };
    json!({"group": group, "version": version, "kind": kind})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind":
            response_kind(resource, [&resource.group, &resource.version, &resource.kind]),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource
            .subresources
            .iter()
            .map(|sub| {
                json!({"subresource": sub.name, "verbs": verb_names(sub.verbs),
                    "responseKind":
                        response_kind(resource, [&sub.group, &sub.version, &sub.kind])})
            })
            .collect();
    }
    entry
}
