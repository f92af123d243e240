//! Discovery documents, with their fields in the Go types' order.

use serde::Serialize;

/// `/api`
#[derive(Debug, Serialize)]
pub(super) struct ApiVersions {
    pub(super) kind: &'static str,
    pub(super) versions: Vec<String>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub(super) addresses: Vec<Address>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Address {
    #[serde(rename = "clientCIDR")]
    pub(super) client_cidr: &'static str,
    pub(super) server_address: &'static str,
}

/// `/apis`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiGroupList {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) groups: Vec<ApiGroup>,
}

/// `/apis/{group}`, and an item of the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<&'static str>,
    pub(super) name: String,
    pub(super) versions: Vec<GroupVersion>,
    pub(super) preferred_version: Option<GroupVersion>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupVersion {
    pub(super) group_version: String,
    pub(super) version: String,
}

/// `/api/v1`, `/apis/{group}/{version}`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiResourceList {
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<&'static str>,
    pub(super) group_version: String,
    pub(super) resources: Vec<ApiResource>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiResource {
    pub(super) name: String,
    pub(super) singular_name: String,
    pub(super) namespaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) kind: String,
    pub(super) verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) categories: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_version_hash: Option<String>,
}

/// Aggregated discovery: `/api` and `/apis` with all their resources.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiscoveryList {
    pub(super) kind: &'static str,
    pub(super) api_version: String,
    pub(super) metadata: Metadata,
    pub(super) items: Vec<DiscoveryGroup>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
}

#[derive(Debug, Serialize)]
pub(super) struct DiscoveryGroup {
    pub(super) metadata: Metadata,
    pub(super) versions: Vec<DiscoveryVersion>,
}

#[derive(Debug, Serialize)]
pub(super) struct DiscoveryVersion {
    pub(super) version: String,
    pub(super) resources: Vec<DiscoveryResource>,
    pub(super) freshness: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiscoveryResource {
    pub(super) resource: String,
    pub(super) response_kind: ResponseKind,
    pub(super) scope: &'static str,
    pub(super) singular_resource: String,
    pub(super) verbs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) categories: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subresources: Vec<DiscoverySubresource>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiscoverySubresource {
    pub(super) subresource: String,
    pub(super) response_kind: ResponseKind,
    pub(super) verbs: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
pub(super) struct ResponseKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

/// `/version`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    pub(super) major: &'static str,
    pub(super) minor: &'static str,
    pub(super) git_version: String,
    pub(super) git_commit: &'static str,
    pub(super) git_tree_state: &'static str,
    pub(super) build_date: &'static str,
    pub(super) go_version: &'static str,
    pub(super) compiler: &'static str,
    pub(super) platform: String,
}
