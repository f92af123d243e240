//! The paths of a resource: their methods and kinds.

use serde_json::{Map, Value, json};

use super::schemas;
use crate::registry::{
    Resource,
    verbs::{CREATE, DELETE, DELETE_COLLECTION, GET, LIST, PATCH, UPDATE, Verbs},
};

/// Adds the paths of one resource.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let own = Spoken {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        schema: schemas::name_of(resource),
        strategic: resource.custom.is_none(),
    };
    let home = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}")
    } else {
        root.clone()
    };
    let collection = format!("{home}/{}", resource.plural);
    let object = format!("{collection}/{{name}}");
    let verbs = resource.verbs;
    put(
        paths,
        collection,
        &own,
        verbs & (LIST | CREATE | DELETE_COLLECTION),
    );
    put(
        paths,
        object.clone(),
        &own,
        verbs & (GET | UPDATE | PATCH | DELETE),
    );
    if resource.namespaced && verbs & LIST != 0 {
        put(paths, format!("{root}/{}", resource.plural), &own, LIST);
    }
    for sub in &resource.subresources {
        let kind = Spoken {
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
            schema: None,
            strategic: own.strategic,
        };
        put(paths, format!("{object}/{}", sub.name), &kind, sub.verbs);
    }
}

struct Spoken<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    schema: Option<String>,
    strategic: bool,
}

impl Spoken<'_> {
    fn schema(&self) -> Value {
        match &self.schema {
            Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
            None => json!({"type": "object"}),
        }
    }

    fn operation(&self, action: &str, parameters: &[&str], body: Option<Value>) -> Value {
        let parameters: Vec<Value> = parameters.iter().map(|name| parameter(name)).collect();
        let mut operation = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK",
                "content": {"application/json": {"schema": self.schema()}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind":
                {"group": self.group, "version": self.version, "kind": self.kind},
        });
        if let Some(content) = body {
            operation["requestBody"] = json!({"content": content, "required": true});
        }
        operation
    }
}

const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];

/// The parameters an operation may have.
pub(super) const PARAMETERS: [&str; 20] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "name",
    "namespace",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// Returns the definition of a parameter.
pub(super) fn parameter(name: &str) -> Value {
    let kind = match name {
        "force" | "watch" | "allowWatchBookmarks" | "sendInitialEvents" | "orphanDependents" => {
            "boolean"
        }
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        _ => "string",
    };
    let schema = json!({"type": kind, "uniqueItems": true});
    match name {
        "name" | "namespace" => {
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        }
        _ => json!({"name": name, "in": "query", "schema": schema}),
    }
}

fn put(paths: &mut Map<String, Value>, path: String, kind: &Spoken<'_>, verbs: Verbs) {
    let mut item = Map::new();
    let json_body = || Some(json!({"application/json": {"schema": kind.schema()}}));
    if verbs & (GET | LIST) != 0 {
        let (action, parameters): (&str, &[&str]) = if verbs & LIST != 0 {
            (
                "list",
                &[
                    "allowWatchBookmarks",
                    "continue",
                    "fieldSelector",
                    "labelSelector",
                    "limit",
                    "resourceVersion",
                    "resourceVersionMatch",
                    "sendInitialEvents",
                    "timeoutSeconds",
                    "watch",
                ],
            )
        } else {
            ("get", &[])
        };
        item.insert("get".into(), kind.operation(action, parameters, None));
    }
    if verbs & CREATE != 0 {
        item.insert("post".into(), kind.operation("post", WRITE, json_body()));
    }
    if verbs & UPDATE != 0 {
        item.insert("put".into(), kind.operation("put", WRITE, json_body()));
    }
    if verbs & PATCH != 0 {
        let parameters = [WRITE, &["force"]].concat();
        item.insert(
            "patch".into(),
            kind.operation("patch", &parameters, Some(patches(kind))),
        );
    }
    if verbs & (DELETE | DELETE_COLLECTION) != 0 {
        let action = if verbs & DELETE != 0 {
            "delete"
        } else {
            "deletecollection"
        };
        let parameters = &[
            "dryRun",
            "gracePeriodSeconds",
            "orphanDependents",
            "propagationPolicy",
        ];
        item.insert("delete".into(), kind.operation(action, parameters, None));
    }
    if item.is_empty() {
        return;
    }
    let mut places = Vec::new();
    for name in ["name", "namespace"] {
        if path.contains(&format!("{{{name}}}")) {
            places.push(parameter(name));
        }
    }
    places.push(parameter("pretty"));
    item.insert("parameters".into(), places.into());
    paths.insert(path, Value::Object(item));
}

/// Returns the patch types a kind accepts.
fn patches(kind: &Spoken<'_>) -> Value {
    let any = json!({"schema": {"type": "object"}});
    let mut content = json!({
        "application/apply-patch+yaml": any,
        "application/json-patch+json": any,
        "application/merge-patch+json": any,
    });
    if kind.strategic {
        content["application/strategic-merge-patch+json"] = any;
    }
    content
}
