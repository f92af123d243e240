//! Renders stored objects in the representation a client accepts.

use std::sync::Arc;

use pintle_clock::Clock;
use serde_json::{Value, json};

use super::printers;
use crate::{
    api::{
        request::negotiate::{Form, RowObject},
        response,
    },
    meta::Tree,
    registry::Resource,
    store::{Content, Object},
};

/// How the objects of one resource are rendered for one request.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) resource: Arc<Resource>,
    pub(crate) form: Form,
    /// Ages in tables are relative to its current time.
    pub(crate) clock: Clock,
}

impl View {
    /// Returns true if objects are rendered as they are stored.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.form, Form::Json | Form::Yaml) && self.resource.conversion.is_none()
    }

    /// Appends one object with its type. A table includes its column definitions if `columns`.
    pub(crate) fn write(&self, out: &mut Vec<u8>, object: &Object, columns: bool) {
        self.write_content(out, &object.content, object.stored_revision(), columns);
    }

    pub(crate) fn write_content(
        &self,
        out: &mut Vec<u8>,
        content: &Content,
        revision: Option<u64>,
        columns: bool,
    ) {
        if self.is_plain() && self.resource.is_complete(content) {
            return content.write(out, &self.resource.prefix, revision);
        }
        let value = self.value(self.resource.tree(content, revision), columns);
        self.append(out, &value);
    }

    /// Appends a document in the field order upstream uses for its kind.
    fn append(&self, out: &mut Vec<u8>, value: &Value) {
        let plain = matches!(self.form, Form::Json | Form::Yaml);
        if plain && self.resource.custom.is_some() {
            out.extend_from_slice(value.to_string().as_bytes());
        } else {
            response::append(out, value);
        }
    }

    /// Appends one item of a list. Items of built-in kinds omit their type.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>, object: &Object) {
        if self.is_plain() && self.resource.is_complete(&object.content) {
            let prefix = if self.resource.custom.is_some() {
                self.resource.prefix.as_str()
            } else {
                "{"
            };
            return object.write(out, prefix);
        }
        let tree = self
            .resource
            .tree(&object.content, object.stored_revision());
        let value = match self.form {
            Form::Table(version, row) => self.row(version, row, tree),
            Form::Metadata(version) => metadata(version, tree),
            Form::Json | Form::Yaml if self.resource.custom.is_some() => self.typed(tree),
            Form::Json | Form::Yaml => Value::Object(self.resource.to_served(tree)),
        };
        self.append(out, &value);
    }

    /// Returns the start of a list, up to its first item.
    pub(crate) fn list_head(&self, metadata: &Value) -> String {
        match self.form {
            Form::Table(version, _) => format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{metadata},\"columnDefinitions\":{},\"rows\":[",
                Value::from(printers::definitions(&self.resource))
            ),
            Form::Metadata(version) => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{metadata},\"items\":["
            ),
            Form::Json | Form::Yaml => format!(
                "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
                self.resource.list_kind,
                self.resource.api_version()
            ),
        }
    }

    /// Returns the object of a bookmark, which consists of metadata only.
    pub(crate) fn bookmark(&self, metadata: &Value) -> String {
        match self.form {
            Form::Table(version, _) => response::written(&json!({"kind": "Table",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata",
                    "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata}}]})),
            Form::Metadata(version) => response::written(&json!({"kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})),
            Form::Json | Form::Yaml => format!("{}\"metadata\":{metadata}}}", self.resource.prefix),
        }
    }

    fn value(&self, tree: Tree, columns: bool) -> Value {
        match self.form {
            Form::Table(version, row) => {
                let stored = tree.get("metadata").and_then(|m| m.get("resourceVersion"));
                let list_metadata = match stored {
                    Some(revision) => json!({ "resourceVersion": revision }),
                    None => json!({}),
                };
                let mut table = json!({"kind": "Table",
                    "apiVersion": format!("meta.k8s.io/{version}"), "metadata": list_metadata});
                table["columnDefinitions"] = if columns {
                    printers::definitions(&self.resource).into()
                } else {
                    Value::Null
                };
                table["rows"] = json!([self.row(version, row, tree)]);
                table
            }
            Form::Metadata(version) => metadata(version, tree),
            Form::Json | Form::Yaml => self.typed(tree),
        }
    }

    fn typed(&self, tree: Tree) -> Value {
        let mut tree = self.resource.to_served(tree);
        tree.insert("apiVersion".into(), self.resource.api_version().into());
        tree.insert("kind".into(), self.resource.kind.clone().into());
        Value::Object(tree)
    }

    fn row(&self, version: &str, include: RowObject, tree: Tree) -> Value {
        let cells = printers::cells(&self.resource, &tree, &self.clock);
        let mut row = json!({"cells": cells});
        match include {
            RowObject::None => row["object"] = Value::Null,
            RowObject::Metadata => row["object"] = metadata(version, tree),
            RowObject::Object => row["object"] = self.typed(tree),
        }
        row
    }
}

fn metadata(version: &str, mut tree: Tree) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": tree.remove("metadata").unwrap_or_default()})
}
