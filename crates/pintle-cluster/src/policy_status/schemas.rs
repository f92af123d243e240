//! The kinds and schemas of the group versions that a policy names, from discovery and OpenAPI.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use serde_json::{Map, Value, json};

/// Discovery and OpenAPI documents, by group version. Documents that are not served are missing.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    versions: BTreeMap<String, Documents>,
}

#[derive(Debug)]
struct Documents {
    resources: Value,
    openapi: Value,
}

impl Schemas {
    /// Reads the documents that a policy refers to.
    pub(super) async fn of_policy(client: &Client, policy: &Value) -> Result<Self, kube::Error> {
        let mut versions = BTreeMap::new();
        for version in group_versions(&policy["spec"]) {
            let base = match version.split_once('/') {
                Some(_) => format!("apis/{version}"),
                None => format!("api/{version}"),
            };
            let (resources, openapi) = (
                get(client, &format!("/{base}")).await?,
                get(client, &format!("/openapi/v3/{base}")).await?,
            );
            if let (Some(resources), Some(openapi)) = (resources, openapi) {
                versions.insert(version, Documents { resources, openapi });
            }
        }
        Ok(Self { versions })
    }

    fn documents(&self, group: &str, version: &str) -> Option<&Documents> {
        self.versions.get(&group_version(group, version))
    }

    /// Returns the kinds of a resource.
    pub(super) fn kinds(&self, group: &str, version: &str, plural: &str) -> Vec<String> {
        let documents = self.documents(group, version);
        let resources = documents.and_then(|documents| documents.resources["resources"].as_array());
        let mut resources = resources.into_iter().flatten();
        let found = resources.find(|resource| resource["name"] == plural);
        let kind = found.and_then(|resource| resource["kind"].as_str());
        kind.map(str::to_owned).into_iter().collect()
    }

    /// Returns the schema of a kind, with references resolved.
    pub(super) fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let openapi = &self.documents(group, version)?.openapi;
        let schemas = openapi["components"]["schemas"].as_object()?;
        let wanted = json!({ "group": group, "version": version, "kind": kind });
        let mut all = schemas.iter();
        let (name, schema) = all.find(|(_, schema)| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(&wanted))
        })?;
        let mut open = BTreeSet::from([name.as_str()]);
        Some(resolved(schemas, schema, &mut open))
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Returns the group versions that a policy names, without wildcards.
fn group_versions(spec: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    for rule in rules.into_iter().flatten() {
        let list = |field: &str| {
            let items = rule[field].as_array().cloned().unwrap_or_default();
            let items = items.into_iter();
            let texts = items.filter_map(|item| item.as_str().map(str::to_owned));
            texts.filter(|text| !text.contains('*')).collect::<Vec<_>>()
        };
        for group in list("apiGroups") {
            for version in list("apiVersions") {
                found.insert(group_version(&group, &version));
            }
        }
    }
    found.extend(spec["paramKind"]["apiVersion"].as_str().map(str::to_owned));
    found
}

/// Gets a document; `None` if it is not served.
async fn get(client: &Client, path: &str) -> Result<Option<Value>, kube::Error> {
    let request = http::Request::get(path).header("accept", "application/json");
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Ok(document) => Ok(Some(document)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a copy of a schema with all references resolved. A reference to an enclosing schema
/// becomes an object without fields.
fn resolved<'s>(
    schemas: &'s Map<String, Value>,
    schema: &'s Value,
    open: &mut BTreeSet<&'s str>,
) -> Value {
    if let Some(name) = reference(schema) {
        let Some((name, referred)) = schemas.get_key_value(name) else {
            return json!({});
        };
        if !open.insert(name) {
            return json!({ "type": "object" });
        }
        let result = resolved(schemas, referred, open);
        open.remove(name.as_str());
        return result;
    }
    let mut result = schema.clone();
    if schema["format"] == "int-or-string" {
        result["x-kubernetes-int-or-string"] = true.into();
    }
    if let Some(properties) = schema["properties"].as_object() {
        let properties = properties.iter();
        let properties: Map<String, Value> = properties
            .map(|(name, property)| (name.clone(), resolved(schemas, property, open)))
            .collect();
        result["properties"] = properties.into();
    }
    for field in ["additionalProperties", "items"] {
        if schema[field].is_object() {
            result[field] = resolved(schemas, &schema[field], open);
        }
    }
    result
}

/// Returns the name that a schema refers to, directly or inside `allOf`.
fn reference(schema: &Value) -> Option<&str> {
    if let Some(target) = schema["$ref"].as_str() {
        return target.rsplit('/').next();
    }
    schema["allOf"].as_array()?.iter().find_map(reference)
}
