//! Discovery, plain and aggregated, and the other paths that name no resource: version, health, the
//! root.

mod documents;
pub(crate) mod openapi;

use std::hash::{DefaultHasher, Hash, Hasher};

use http::{HeaderValue, Response, header, request::Parts};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::documents::{
    Address, ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, DiscoveryGroup,
    DiscoveryList, DiscoveryResource, DiscoverySubresource, DiscoveryVersion, GroupVersion,
    Metadata, ResponseKind,
};
use crate::api::{ApiError, Body, request::route::Route, response};
use crate::{
    registry::{Catalog, Group, Resource, api_version, verbs::verb_names},
    server::KUBERNETES,
};

/// Handles requests for paths that name no resource.
pub(crate) fn answer(
    route: &Route,
    catalog: &Catalog,
    parts: &Parts,
    now: Timestamp,
) -> Response<Body> {
    match route {
        Route::Root => response::json(200, &root(catalog)),
        Route::Health => response::text(200, "ok"),
        // Always indented, as in upstream.
        Route::Version => response::indented(response::document(200, &version())),
        Route::CoreVersions => match aggregated_form(parts) {
            Some(form) => aggregated(parts, form, catalog, str::is_empty),
            None => response::document(
                200,
                &ApiVersions {
                    kind: "APIVersions",
                    versions: vec!["v1".to_owned()],
                    addresses: vec![Address {
                        client_cidr: "0.0.0.0/0",
                        server_address: "",
                    }],
                },
            ),
        },
        Route::Groups => {
            if let Some(form) = aggregated_form(parts) {
                aggregated(parts, form, catalog, |group| !group.is_empty())
            } else {
                let groups = listed_groups(catalog);
                let list = ApiGroupList {
                    kind: "APIGroupList",
                    api_version: "v1",
                    groups: groups.into_iter().map(|g| group(g, false)).collect(),
                };
                response::document(200, &list)
            }
        }
        Route::Group(name) => match catalog.group(name) {
            Some(found) => response::document(200, &group(found, true)),
            None => response::not_found(),
        },
        Route::GroupVersion(group, version) => {
            response::document(200, &resource_list(catalog, group, version))
        }
        Route::OpenApi3(rest) => openapi::answer(rest, catalog, parts, now),
        Route::Unknown => response::error(&ApiError::unknown_resource()),
        Route::OpenApi2
        | Route::NotFound
        | Route::Resource(_)
        | Route::TokenProvider
        | Route::TokenKeys => response::not_found(),
    }
}

fn named_groups(catalog: &Catalog) -> impl Iterator<Item = &Group> {
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
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ] {
        paths.push(path.to_owned());
    }
    json!({"paths": paths})
}

fn version() -> documents::Info {
    let (major, minor) = KUBERNETES;
    documents::Info {
        major,
        minor,
        git_version: format!("v{major}.{minor}.4+pintle.{}", env!("CARGO_PKG_VERSION")),
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "none",
        compiler: "rustc",
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

fn group(group: &Group, whole: bool) -> ApiGroup {
    let versions: Vec<GroupVersion> = group
        .versions
        .iter()
        .map(|version| GroupVersion {
            group_version: api_version(&group.name, version),
            version: version.clone(),
        })
        .collect();
    ApiGroup {
        kind: whole.then_some("APIGroup"),
        api_version: whole.then_some("v1"),
        name: group.name.clone(),
        preferred_version: versions.first().cloned(),
        versions,
    }
}

/// Returns the groups in `APIGroupList` order. Upstream breaks ties by the name of the
/// `APIService`, `VERSION.GROUP`, where aggregated discovery compares group names.
fn listed_groups(catalog: &Catalog) -> Vec<&Group> {
    let first = |group: &&Group| {
        let services = group.versions.iter();
        let services = services.map(|version| format!("{version}.{}", group.name));
        services.min().unwrap_or_default()
    };
    let (mut groups, mut custom): (Vec<&Group>, Vec<&Group>) =
        named_groups(catalog).partition(|group| group.builtin);
    custom.sort_by_cached_key(first);
    groups.extend(custom);
    groups
}

/// Returns the verbs of a resource. Custom resources list theirs in a different order.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    match &resource.custom {
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

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> ApiResourceList {
    let mut resources = Vec::new();
    for resource in catalog.of_version(group, version) {
        resources.push(ApiResource {
            name: resource.plural.clone(),
            singular_name: resource.singular.clone(),
            namespaced: resource.namespaced,
            kind: resource.kind.clone(),
            verbs: verbs(resource),
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            storage_version_hash: resource.storage_hash.clone(),
            ..ApiResource::default()
        });
        for sub in &resource.subresources {
            let other = sub.group != resource.group || sub.version != resource.version;
            resources.push(ApiResource {
                name: format!("{}/{}", resource.plural, sub.name),
                namespaced: resource.namespaced,
                group: other.then(|| sub.group.clone()),
                version: other.then(|| sub.version.clone()),
                kind: sub.kind.clone(),
                verbs: verb_names(sub.verbs),
                ..ApiResource::default()
            });
        }
    }
    ApiResourceList {
        kind: "APIResourceList",
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: api_version(group, version),
        resources,
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the version of `apidiscovery.k8s.io` that the client accepts, if any.
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
    let groups = catalog.groups().into_iter();
    let groups = groups.filter(|group| wanted(&group.name));
    let items = groups.map(|group| DiscoveryGroup {
        metadata: Metadata {
            name: group.name.clone(),
        },
        versions: group
            .versions
            .iter()
            .map(|version| aggregated_version(catalog, &group.name, version))
            .collect(),
    });
    let list = DiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: format!("apidiscovery.k8s.io/{form}"),
        metadata: Metadata::default(),
        items: items.collect(),
    };
    // Encoding plain fields into memory cannot fail.
    let body = serde_json::to_string(&list).unwrap_or_default();
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
    let mut response = response::with(code, content_type, body);
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

fn aggregated_version(catalog: &Catalog, group: &str, version: &str) -> DiscoveryVersion {
    DiscoveryVersion {
        version: version.to_owned(),
        resources: catalog
            .of_version(group, version)
            .map(|resource| aggregated_resource(resource))
            .collect(),
        freshness: "Current",
    }
}

/// Returns the kind of a response. For built-in kinds, group and version are omitted if they match
/// the resource's.
fn response_kind(resource: &Resource, [group, version, kind]: [&str; 3]) -> ResponseKind {
    let own = group == resource.group && version == resource.version;
    let [group, version] = if own && resource.custom.is_none() {
        [""; 2]
    } else {
        [group, version]
    };
    ResponseKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

fn aggregated_resource(resource: &Resource) -> DiscoveryResource {
    let subresources = resource.subresources.iter();
    let subresources = subresources.map(|sub| DiscoverySubresource {
        subresource: sub.name.clone(),
        response_kind: response_kind(resource, [&sub.group, &sub.version, &sub.kind]),
        verbs: verb_names(sub.verbs),
    });
    DiscoveryResource {
        resource: resource.plural.clone(),
        response_kind: response_kind(
            resource,
            [&resource.group, &resource.version, &resource.kind],
        ),
        scope: if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: resource.singular.clone(),
        verbs: verbs(resource),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        subresources: subresources.collect(),
    }
}
