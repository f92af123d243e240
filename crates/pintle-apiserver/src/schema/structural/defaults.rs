//! Checks the defaults of a schema when the CRD is written: they must contain only known fields and
//! be valid, on their own and as part of the type and metadata of a resource.

use serde_json::{Value, json};

use super::{cel, coerce, embedded, node::Node, prune, validate};
use crate::schema::field::{FieldError, Path, Reason, aggregate};

/// Checks all defaults. Their rules share a budget; the check ends when it is used up. `pruned` says
/// whether unspecified fields are errors.
pub(super) fn check(root: &Node, at: &Path<'_>, budget: u64, pruned: bool) -> Vec<FieldError> {
    let mut check = Check {
        pruned,
        resource: root,
        steps: Vec::new(),
        left: budget,
        errors: Vec::new(),
    };
    check.below(root, at, true, false);
    check.errors
}

/// Returns whether a default outside of metadata has unspecified fields.
pub(super) fn any_unpruned(root: &Node) -> bool {
    unpruned_below(root, true)
}

fn unpruned_below(schema: &Node, resource: bool) -> bool {
    if schema
        .default
        .as_ref()
        .is_some_and(|default| !is_pruned(default, schema, resource))
    {
        return true;
    }
    let open = |name: &str| !(resource && prune::META_FIELDS.contains(&name));
    let properties = schema.properties.iter();
    let mut below = properties
        .filter(|(name, _)| open(name))
        .map(|(_, below)| below)
        .chain(schema.items.as_deref())
        .chain(schema.additional_schema());
    below.any(|below| unpruned_below(below, below.embedded))
}

fn is_pruned(default: &Value, schema: &Node, resource: bool) -> bool {
    let mut pruned = default.clone();
    prune::prune(&mut pruned, schema, resource);
    pruned == *default
}

enum Step<'a> {
    Field(&'a str),
    Item,
}

struct Check<'a> {
    pruned: bool,
    /// The nearest resource around the current schema.
    resource: &'a Node,
    /// The path from there to the current schema.
    steps: Vec<Step<'a>>,
    left: u64,
    errors: Vec<FieldError>,
}

impl<'a> Check<'a> {
    fn schema(&mut self, schema: &'a Node, at: &Path<'_>, in_metadata: bool) {
        if !schema.embedded {
            return self.below(schema, at, false, in_metadata);
        }
        let resource = std::mem::replace(&mut self.resource, schema);
        let steps = std::mem::take(&mut self.steps);
        self.below(schema, at, true, false);
        (self.resource, self.steps) = (resource, steps);
    }

    fn below(&mut self, schema: &'a Node, at: &Path<'_>, resource: bool, in_metadata: bool) {
        if let Some(default) = &schema.default {
            let here = at.child("default");
            let found = if in_metadata {
                self.in_metadata(default, schema, &here)
            } else {
                self.field(default, schema, &here, resource)
            };
            let exhausted = self.left == 0 && !found.is_empty();
            self.errors.extend(found);
            if exhausted {
                return;
            }
        }
        if let Some(items) = &schema.items {
            self.steps.push(Step::Item);
            self.schema(items, &at.child("items"), in_metadata);
            self.steps.pop();
        }
        let properties = at.child("properties");
        for (name, property) in &schema.properties {
            if self.left == 0 && !self.errors.is_empty() {
                return;
            }
            let meta = resource && prune::META_FIELDS.contains(&name.as_str());
            self.steps.push(Step::Field(name));
            self.schema(property, &properties.key(name), in_metadata || meta);
            self.steps.pop();
        }
    }

    fn field(
        &mut self,
        default: &Value,
        schema: &Node,
        at: &Path<'_>,
        resource: bool,
    ) -> Vec<FieldError> {
        let mut coerced = default.clone();
        let coercion = coerce::coerce(&mut coerced, schema, at, resource, &mut Vec::new());
        let mut errors = Vec::new();
        if self.pruned && !is_pruned(default, schema, resource) {
            // Upstream shows the default without unknown metadata.
            let why = "must not have unknown fields";
            errors.push(FieldError::invalid(at, coerced.clone(), why));
        }
        if let Err(error) = coercion {
            errors.push(error);
            return errors;
        }
        let mut wrong = Vec::new();
        embedded::check(&coerced, schema, at, resource, &mut wrong);
        if wrong.is_empty() {
            wrong = self.value(&coerced, schema, at);
        }
        errors.append(&mut wrong);
        errors
    }

    /// Checks a default in the type or the metadata of a resource as part of such a resource. It is
    /// never pruned.
    fn in_metadata(&mut self, default: &Value, schema: &Node, at: &Path<'_>) -> Vec<FieldError> {
        let mut object = default.clone();
        for step in self.steps.iter().rev() {
            object = match step {
                Step::Field(name) => json!({ *name: object }),
                Step::Item => json!([object]),
            };
        }
        if let Some(map) = object.as_object_mut() {
            map.entry("apiVersion").or_insert("validation/v1".into());
            map.entry("kind").or_insert("Validation".into());
        }
        let refuse = |why: String| {
            let why = format!("must result in valid metadata: {why}");
            vec![FieldError::invalid(at, default.clone(), why)]
        };
        let unknown = &mut Vec::new();
        if let Err(error) = coerce::coerce(&mut object, self.resource, &Path::Root, true, unknown) {
            return refuse(error.to_string());
        }
        let mut wrong = Vec::new();
        embedded::check(&object, self.resource, &Path::Root, true, &mut wrong);
        if wrong.is_empty() {
            self.value(default, schema, at)
        } else {
            refuse(aggregate(&wrong))
        }
    }

    /// Validates a default against its schema and the rules there, as an unchanged value and as a
    /// new one.
    fn value(&mut self, default: &Value, schema: &Node, at: &Path<'_>) -> Vec<FieldError> {
        let mut errors = validate::validate(default, None, schema, at);
        // Upstream does not check the type of int-or-string values here.
        let untyped = "must be of type integer,string: ";
        errors
            .retain(|error| error.reason != Reason::TypeInvalid || !error.detail.contains(untyped));
        if !errors.is_empty() {
            return errors;
        }
        let (mut unchanged, mut new) = (self.left, self.left);
        let mut found = cel::validate_within(default, Some(default), schema, at, &mut unchanged);
        if found.errors.is_empty() {
            found = cel::validate_within(default, None, schema, at, &mut new);
        }
        self.left = unchanged.min(new);
        found.errors
    }
}
