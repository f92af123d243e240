//! OpenAPI v2: one document that describes every served kind, as JSON or protobuf.
//!
//! kubectl falls back to it where v3 has no answer: for `kind: List`, for unknown kinds, and when
//! several objects are edited at once. It is converted from the v3 documents. It is large, so it is
//! encoded piece by piece on the first request and cached until the set of kinds changes.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header, request::Parts};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{fingerprint, gnostic, paths, schemas, tagged, versions};
use crate::{
    api::{Body, response},
    registry::{Catalog, Resource},
    schema::builtin::types,
    server::KUBERNETES,
};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The old spelling of the media type, which client-go still sends.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const JSON: &str = "application/json";

/// The cached document, for the kinds that were served at the last request.
#[derive(Debug, Default)]
pub(crate) struct Document(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    catalog: Arc<Catalog>,
    hash: String,
    json: Option<Bytes>,
    protobuf: Option<Bytes>,
}

impl Document {
    /// Handles `/openapi/v2`.
    pub(crate) fn answer(&self, catalog: &Arc<Catalog>, parts: &Parts) -> Response<Body> {
        let Some(form) = form(parts) else {
            let mut refusal = response::text(406, "");
            let headers = refusal.headers_mut();
            headers.remove(header::CONTENT_TYPE);
            headers.insert(header::VARY, HeaderValue::from_static("Accept"));
            return refusal;
        };
        let mut written = self.0.lock();
        written.follow(catalog);
        let tag = format!("\"{}\"", written.hash);
        let known = parts.headers.get(header::IF_NONE_MATCH);
        let known = known.and_then(|value| value.to_str().ok());
        if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
            let mut response = tagged(response::text(304, ""), &written.hash);
            response.headers_mut().remove(header::CONTENT_TYPE);
            return response;
        }
        let body = match form {
            PROTOBUF => written.protobuf.get_or_insert_with(|| protobuf(catalog)),
            _ => written.json.get_or_insert_with(|| json(catalog)),
        };
        let body = Body::whole(body.clone());
        let response = response::with(200, HeaderValue::from_static(form), body);
        tagged(response, &written.hash)
    }
}

impl Written {
    /// Drops the document if it was built for other kinds.
    fn follow(&mut self, catalog: &Arc<Catalog>) {
        if !self.hash.is_empty() && Arc::ptr_eq(&self.catalog, catalog) {
            return;
        }
        let hashes: Vec<String> = versions(catalog)
            .map(|(name, group, version)| {
                format!("{name} {}", fingerprint(catalog, &group, &version))
            })
            .collect();
        let hash = super::hash(hashes.iter().map(String::as_str));
        if hash != self.hash {
            (self.json, self.protobuf) = (None, None);
        }
        self.catalog = Arc::clone(catalog);
        self.hash = hash;
    }
}

/// Returns the first acceptable encoding that the server supports.
fn form(parts: &Parts) -> Option<&'static str> {
    let accept = parts.headers.get(header::ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    accept.split(',').find_map(|option| {
        let media = option.split(';').next().unwrap_or_default().trim();
        match media {
            JSON | "*/*" | "application/*" | "" => Some(JSON),
            PROTOBUF | OLD_PROTOBUF => Some(PROTOBUF),
            _ => None,
        }
    })
}

fn info() -> Value {
    let (major, minor) = KUBERNETES;
    json!({"title": "Kubernetes", "version": format!("v{major}.{minor}.0")})
}

fn json(catalog: &Catalog) -> Bytes {
    #[cfg(test)]
    super::BUILT.set(super::BUILT.get() + 1);
    let mut out = format!("{{\"swagger\":\"2.0\",\"info\":{},\"paths\":{{", info()).into_bytes();
    each_path(catalog, |name, item| member(&mut out, name, item));
    out.extend_from_slice(b"},\"definitions\":{");
    each_definition(catalog, |name, schema| member(&mut out, name, schema));
    out.extend_from_slice(b"},\"parameters\":{");
    for name in paths::PARAMETERS {
        member(&mut out, name, &parameter(name));
    }
    out.extend_from_slice(b"}}");
    out.into()
}

/// Appends one member of a JSON object.
fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    out.extend_from_slice(format!("{}:{value}", Value::from(name)).as_bytes());
}

fn protobuf(catalog: &Catalog) -> Bytes {
    #[cfg(test)]
    super::BUILT.set(super::BUILT.get() + 1);
    let mut document = gnostic::Writer::new(&info());
    each_path(catalog, |name, item| document.path(name, item));
    each_definition(catalog, |name, schema| document.definition(name, schema));
    for name in paths::PARAMETERS {
        document.parameter(name, &parameter(name));
    }
    document.finish().into()
}

fn each_path(catalog: &Catalog, mut write: impl FnMut(&str, &Value)) {
    for (_, group, version) in versions(catalog) {
        for resource in catalog.of_version(&group, &version) {
            let mut items = Map::new();
            paths::add(&mut items, resource);
            for (name, item) in &items {
                write(name, &path_item(item));
            }
        }
    }
}

fn each_definition(catalog: &Catalog, mut write: impl FnMut(&str, &Value)) {
    for ty in types().filter(|ty| ty.get().public) {
        let mut schema = schemas::of_type(ty);
        downgrade(&mut schema);
        write(&ty.schema_name(), &schema);
    }
    for (_, group, version) in versions(catalog) {
        for resource in catalog.of_version(&group, &version) {
            if let (Some(_), Some(name)) = (&resource.custom, schemas::name_of(resource)) {
                let mut schema = schemas::of_custom(resource);
                simplify(&mut schema);
                downgrade(&mut schema);
                write(&name, &schema);
                write(&format!("{name}List"), &list_of(resource, &name));
            }
        }
    }
}

/// Returns the schema of a list of custom resources.
fn list_of(resource: &Resource, item: &str) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": format!("#/definitions/{item}")}},
            "kind": {"type": "string"},
            "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"},
        },
        "x-kubernetes-group-version-kind": [{"group": resource.group,
            "version": resource.version, "kind": resource.list_kind}],
    })
}

fn parameter(name: &str) -> Value {
    let mut parameter = paths::parameter(name);
    if let Some(Value::Object(schema)) = parameter.as_object_mut().and_then(|p| p.remove("schema"))
        && let Some(parameter) = parameter.as_object_mut()
    {
        parameter.extend(schema);
    }
    parameter
}

/// Converts a path from v3 to v2.
fn path_item(item: &Value) -> Value {
    let mut path = Map::new();
    for (method, operation) in item.as_object().into_iter().flatten() {
        let value = match operation {
            Value::Array(parameters) => references(parameters).into(),
            operation => self::operation(operation),
        };
        path.insert(method.clone(), value);
    }
    Value::Object(path)
}

fn references(parameters: &[Value]) -> Vec<Value> {
    let names = parameters.iter().filter_map(|p| p["name"].as_str());
    names
        .map(|name| json!({"$ref": format!("#/parameters/{name}")}))
        .collect()
}

fn operation(operation: &Value) -> Value {
    let parameters = operation["parameters"].as_array();
    let mut parameters = references(parameters.map_or(&[][..], Vec::as_slice));
    let mut response = json!({"description": "OK"});
    let content = &operation["responses"]["200"]["content"][JSON];
    if let Some(schema) = content.get("schema") {
        response["schema"] = schema.clone();
        downgrade(&mut response["schema"]);
    }
    let mut consumes = vec!["*/*"];
    if let Some(content) = operation["requestBody"]["content"].as_object() {
        let mut schema = content
            .values()
            .next()
            .map(|media| media["schema"].clone())
            .unwrap_or_default();
        downgrade(&mut schema);
        parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
        if !content.contains_key(JSON) {
            consumes = content.keys().map(String::as_str).collect();
        }
    }
    json!({
        "consumes": consumes,
        "produces": [JSON, "application/yaml"],
        "parameters": parameters,
        "responses": {"200": response},
        "x-kubernetes-action": operation["x-kubernetes-action"],
        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
    })
}

/// Converts a schema from v3 to v2: references stand alone, defaults are dropped, and int-or-string
/// values become strings.
fn downgrade(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("default");
    if map.remove("oneOf").is_some() {
        map.insert("type".into(), "string".into());
    }
    if let Some(Value::Array(all)) = map.remove("allOf")
        && let Some(reference) = all.into_iter().next()
        && let Value::Object(reference) = reference
    {
        map.extend(reference);
    }
    if let Some(Value::String(reference)) = map.get_mut("$ref") {
        *reference = reference.replace("#/components/schemas/", "#/definitions/");
    }
    each_part(map, &mut downgrade);
}

/// Calls `change` for each schema within a schema.
fn each_part(map: &mut Map<String, Value>, change: &mut dyn FnMut(&mut Value)) {
    for part in ["items", "additionalProperties"] {
        if let Some(schema) = map.get_mut(part) {
            change(schema);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(change);
    }
}

/// Removes from the schema of a custom resource everything that v2, or kubectl's reader of it,
/// cannot express.
fn simplify(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    // The metadata of the object itself is a reference, which v2 can express.
    let is_reference = |value: &Value| value[0].get("$ref").is_some();
    if !map.get("allOf").is_some_and(is_reference) {
        map.remove("allOf");
    }
    for junctor in ["anyOf", "oneOf", "not"] {
        map.remove(junctor);
    }
    let is = |map: &Map<String, Value>, key: &str| map.get(key) == Some(&Value::Bool(true));
    let optional = |schema: &Value| schema["nullable"] == true;
    let nullable: Vec<String> = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| optional(property))
        .map(|(name, _)| name.clone())
        .collect();
    let open = is(map, "x-kubernetes-preserve-unknown-fields");
    let may_be_null = is(map, "nullable");
    if open || may_be_null {
        map.remove("items");
        map.remove("properties");
    }
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let untyped = may_be_null
        || (kind == "array" && !map.contains_key("items"))
        || (kind == "object" && open);
    if untyped {
        map.remove("type");
    }
    map.remove("nullable");
    if map.get("additionalProperties").is_some_and(optional) {
        map.remove("required");
    } else if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|other| name == other));
        if required.is_empty() {
            map.remove("required");
        }
    }
    each_part(map, &mut simplify);
}

#[cfg(test)]
mod tests;
