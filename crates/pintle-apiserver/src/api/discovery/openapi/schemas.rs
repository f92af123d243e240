//! The schemas of a document: built-in types from the generated tables, custom resources from their
//! CRDs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    registry::{Catalog, Resource},
    schema::builtin::{self, Field, FieldType, Leaf, ListType, TypeRef},
};

/// The fields of the metadata, which `kubectl explain` shows for every kind.
const METADATA: [(&str, &str); 15] = [
    (
        "annotations",
        "Annotations are key-value pairs for tools. They cannot be queried.",
    ),
    (
        "creationTimestamp",
        "CreationTimestamp is a timestamp of when the server created the object.",
    ),
    (
        "deletionGracePeriodSeconds",
        "Seconds that a graceful deletion may take.",
    ),
    (
        "deletionTimestamp",
        "When the object will be deleted, if its deletion has been requested.",
    ),
    (
        "finalizers",
        "Names of components that must act before a deleted object is removed.",
    ),
    (
        "generateName",
        "Start of a unique name that the server generates if there is no name.",
    ),
    (
        "generation",
        "Sequence number of the desired state, set by the server. It grows with every change.",
    ),
    (
        "labels",
        "Labels are key-value pairs that organize objects. Selectors match them.",
    ),
    (
        "managedFields",
        "Which field manager set which fields, recorded by the server.",
    ),
    (
        "name",
        "Name of the object, unique among those of its kind in its namespace.",
    ),
    ("namespace", "Namespace that the object belongs to."),
    (
        "ownerReferences",
        "Objects that this one depends on. It is deleted once all of them are gone.",
    ),
    (
        "resourceVersion",
        "Opaque version of the stored object, for watches and optimistic concurrency.",
    ),
    ("selfLink", "Deprecated, and no longer set by the server."),
    (
        "uid",
        "Identity of the object, unique in time and space, set by the server.",
    ),
];

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Returns the schemas of every kind of a group and version, and the schemas they refer to.
pub(super) fn of(catalog: &Catalog, group: &str, version: &str) -> Value {
    let mut all = Map::new();
    let mut open: BTreeSet<TypeRef> = BTreeSet::new();
    for resource in catalog.of_version(group, version) {
        match (&resource.custom, name_of(resource)) {
            (Some(_), Some(name)) => {
                open.extend(builtin::named(OBJECT_META));
                all.insert(name, of_custom(resource));
            }
            _ => open.extend(builtin::kind(group, version, &resource.kind)),
        }
        for sub in &resource.subresources {
            open.extend(builtin::kind(&sub.group, &sub.version, &sub.kind));
        }
    }
    while let Some(ty) = open.pop_first() {
        let name = ty.schema_name();
        if all.contains_key(&name) {
            continue;
        }
        let schema = type_schema(ty, &mut open);
        all.insert(name, schema);
    }
    Value::Object(all)
}

/// Returns the name of the schema of a resource.
pub(super) fn name_of(resource: &Resource) -> Option<String> {
    if resource.custom.is_some() {
        let reversed: Vec<&str> = resource.group.rsplit('.').collect();
        return Some(format!(
            "{}.{}.{}",
            reversed.join("."),
            resource.version,
            resource.kind
        ));
    }
    let ty = builtin::kind(&resource.group, &resource.version, &resource.kind)?;
    Some(ty.schema_name())
}

fn reference(ty: TypeRef) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", ty.schema_name())})
}

/// Returns the schema of a custom resource, including type and metadata.
pub(super) fn of_custom(resource: &Resource) -> Value {
    let custom = resource.custom.as_ref();
    let schema = custom.map(|custom| &custom.version["schema"]["openAPIV3Schema"]);
    let mut schema = schema.cloned().unwrap_or_default();
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    rewrite_int_or_string(&mut schema);
    complete_embedded(&mut schema);
    add_resource_fields(&mut schema);
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    let selectable = custom.and_then(|custom| custom.version["selectableFields"].as_array());
    if let Some(fields) = selectable.filter(|fields| !fields.is_empty()) {
        let path = |field: &Value| {
            let path = field["jsonPath"].as_str().unwrap_or_default();
            json!({"fieldPath": path.strip_prefix('.').unwrap_or(path)})
        };
        schema["x-kubernetes-selectable-fields"] = fields.iter().map(path).collect();
    }
    schema
}

/// Adds the fields that every resource has: type and metadata.
fn add_resource_fields(schema: &mut Value) {
    schema["properties"]["apiVersion"] = json!({"type": "string",
        "description": "APIVersion defines the group and version of the schema of this object."});
    schema["properties"]["kind"] = json!({"type": "string",
        "description": "Kind is the type of this object, in upper camel case."});
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata, such as its name and labels.",
        "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]});
}

/// Adds the fields of a resource to the schemas of embedded resources, and requires their type.
fn complete_embedded(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(complete_embedded);
    }
    for name in ["items", "additionalProperties"] {
        map.get_mut(name).into_iter().for_each(complete_embedded);
    }
    if schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_resource_fields(schema);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|other| other == name) {
            required.push(name.into());
        }
    }
    schema["required"] = required.into();
}

/// Rewrites `x-kubernetes-int-or-string` fields so that every client understands them.
fn rewrite_int_or_string(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let both = map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
            if both && !map.contains_key("anyOf") {
                map.insert(
                    "anyOf".into(),
                    json!([{"type": "integer"}, {"type": "string"}]),
                );
            }
            map.values_mut().for_each(rewrite_int_or_string);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite_int_or_string),
        _ => {}
    }
}

/// Returns the schema of a built-in type.
pub(super) fn of_type(ty: TypeRef) -> Value {
    type_schema(ty, &mut BTreeSet::new())
}

fn type_schema(ty: TypeRef, open: &mut BTreeSet<TypeRef>) -> Value {
    let described = (builtin::named(OBJECT_META) == Some(ty)).then_some(&METADATA);
    let ty = ty.get();
    if let Some(leaf) = ty.leaf {
        return leaf_schema(leaf);
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    if ty.kind.is_some() {
        for name in ["apiVersion", "kind"] {
            properties.insert(name.into(), json!({"type": "string"}));
        }
    }
    for field in &ty.fields {
        let mut schema = field_schema(field, open);
        if let Some((_, text)) = described.and_then(|all| all.iter().find(|it| it.0 == field.name))
        {
            schema["description"] = (*text).into();
        }
        properties.insert(field.name.into(), schema);
        if field.required {
            required.push(field.name);
        }
    }
    let mut schema = json!({"type": "object"});
    if !properties.is_empty() {
        schema["properties"] = Value::Object(properties);
    }
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    if ty.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if let Some((group, version, kind)) = ty.kind {
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": kind}]);
    }
    schema
}

fn leaf_schema(leaf: Leaf) -> Value {
    match leaf {
        Leaf::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Leaf::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Leaf::Time | Leaf::MicroTime => json!({"type": "string", "format": "date-time"}),
        Leaf::Duration => json!({"type": "string"}),
        Leaf::RawExtension | Leaf::Fields | Leaf::Patch => json!({"type": "object"}),
        _ => json!({}),
    }
}

fn value_schema(ty: &FieldType, open: &mut BTreeSet<TypeRef>) -> Value {
    match ty {
        FieldType::String => json!({"type": "string"}),
        FieldType::Int32 => json!({"type": "integer", "format": "int32"}),
        FieldType::Int64 => json!({"type": "integer", "format": "int64"}),
        FieldType::Bool => json!({"type": "boolean"}),
        FieldType::Double => json!({"type": "number", "format": "double"}),
        FieldType::Bytes => json!({"type": "string", "format": "byte"}),
        FieldType::List(item) | FieldType::Wrapped(item) => {
            json!({"type": "array", "items": value_schema(item, open)})
        }
        FieldType::Map(value) => {
            let value = match **value {
                FieldType::Named(ty) => {
                    open.insert(ty);
                    reference(ty)
                }
                ref other => value_schema(other, open),
            };
            json!({"type": "object", "additionalProperties": value})
        }
        FieldType::Named(ty) => {
            open.insert(*ty);
            json!({"allOf": [reference(*ty)]})
        }
    }
}

fn field_schema(field: &Field, open: &mut BTreeSet<TypeRef>) -> Value {
    let mut schema = value_schema(&field.ty, open);
    let list_type = field.list_type.map(|list_type| match list_type {
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map => "map",
    });
    if let Some(list_type) = list_type {
        schema["x-kubernetes-list-type"] = list_type.into();
    }
    if !field.list_map_keys.is_empty() {
        schema["x-kubernetes-list-map-keys"] = field.list_map_keys.clone().into();
    }
    if field.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let strategy = field.patch_strategy;
    let words: Vec<&str> = [
        (strategy.merge, "merge"),
        (strategy.replace, "replace"),
        (strategy.retain_keys, "retainKeys"),
    ]
    .iter()
    .filter(|(set, _)| *set)
    .map(|(_, word)| *word)
    .collect();
    if !words.is_empty() {
        schema["x-kubernetes-patch-strategy"] = words.join(",").into();
    }
    if let Some(key) = field.patch_merge_key {
        schema["x-kubernetes-patch-merge-key"] = key.into();
    }
    if !field.allowed.is_empty() {
        schema["enum"] = field.allowed.clone().into();
    }
    if let Some(default) = field
        .default
        .and_then(|text| serde_json::from_str(text).ok())
    {
        schema["default"] = default;
    }
    schema
}
