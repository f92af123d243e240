//! Label and field selectors of lists and watches.

use super::{query::Query, route::Target};
use crate::{
    api::ApiError,
    meta::{LabelSelector, field_selector},
    registry::Resource,
    store::Object,
};

/// The label and field selectors of a request, resolved against its resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone)]
struct FieldTerm {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Name,
    Namespace,
    /// The index among the selectable fields of the resource.
    Other(usize),
}

impl Selector {
    pub(crate) fn read(target: &Target, query: &Query) -> Result<Self, ApiError> {
        let labels =
            LabelSelector::parse(query.get("labelSelector")).map_err(ApiError::bad_request)?;
        let mut terms = Vec::new();
        for term in
            field_selector::parse(query.get("fieldSelector")).map_err(ApiError::bad_request)?
        {
            let field = find(&target.resource, &term.field)?;
            terms.push(FieldTerm {
                field,
                equal: term.equal,
                value: term.value,
            });
        }
        if let Some(name) = &target.name {
            terms.push(FieldTerm {
                field: Field::Name,
                equal: true,
                value: name.clone(),
            });
        }
        Ok(Self {
            labels,
            fields: terms,
        })
    }

    /// Returns true if every object matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, resource: &Resource, object: &Object) -> bool {
        self.fields
            .iter()
            .all(|term| term.matches(resource, object))
            && (self.labels.is_empty() || self.labels.matches(&object.header().labels))
    }
}

impl FieldTerm {
    fn matches(&self, resource: &Resource, object: &Object) -> bool {
        let equal = match self.field {
            Field::Name => object.name() == self.value,
            Field::Namespace => object.namespace().unwrap_or_default() == self.value,
            Field::Other(at) if resource.custom.is_some() => {
                let tree = resource.tree(&object.content, None);
                resource.fields[at].read(&tree) == self.value
            }
            Field::Other(at) => {
                object.header().fields.get(at).map_or("", String::as_str) == self.value
            }
        };
        equal == self.equal
    }
}

fn find(resource: &Resource, label: &str) -> Result<Field, ApiError> {
    match label {
        "metadata.name" => Ok(Field::Name),
        "metadata.namespace" => Ok(Field::Namespace),
        _ => resource
            .fields
            .iter()
            .position(|field| !field.label.is_empty() && field.label == label)
            .map(Field::Other)
            .ok_or_else(|| {
                let known = resource.custom.is_some() || !resource.fields.is_empty();
                ApiError::bad_request(if known {
                    format!("field label not supported: {label}")
                } else {
                    format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                })
            }),
    }
}
