//! Structural schemas of custom resources.
//!
//! The `openAPIV3Schema` of a CRD is *structural*: every field is specified at its own place, not
//! only inside an alternative. This allows the server, on every write and in this order, to
//!
//! 1. drop unspecified fields ([`Structural::prune`]),
//! 2. fill in missing ones ([`Structural::default`]),
//! 3. validate the result ([`Structural::validate_with`]).
//!
//! [`Structural::check`] verifies, when the CRD is written, that a schema is structural and that
//! its defaults are valid.

mod cel;
mod check;
mod coerce;
mod defaults;
mod embedded;
mod fingerprint;
mod formats;
mod internal;
mod lists;
mod node;
mod prune;
mod validate;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::properties::any_json;

use pintle_cel::Decls;
use serde_json::{Value, json};

pub(crate) use self::{
    check::{has_invalid_type, has_loose_keys, has_open_set},
    formats::is_known_format,
    internal::versions as versions_text,
    node::Node,
};
use super::field::{FieldError, Path, Reason};
use crate::meta::Tree;

/// The maximum size of all compiled patterns of a schema together, in bytes. Patterns are only
/// compiled when they are used, and not all stay compiled, but one object can use every one of
/// them.
const MAX_PATTERNS: usize = 64 * 1024 * 1024;

/// A parsed schema, shared by all objects of its kind and version.
#[derive(Debug, Clone)]
pub(crate) struct Structural {
    root: Node,
    /// Identifies the schema.
    fingerprint: u64,
}

/// Rules that the schema of a CRD may break, because the stored CRD already does.
#[derive(Debug, Clone, Copy, Default)]
// Each flag stands for a rule of its own.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Tolerated {
    /// Schemas are structural. Without that, defaults and CEL rules are not checked.
    pub(crate) structure: bool,
    /// Types are those of OpenAPI.
    pub(crate) types: bool,
    /// Defaults have no unspecified fields.
    pub(crate) defaults: bool,
    /// Items of sets are atomic.
    pub(crate) sets: bool,
    /// Keys of list items are never missing or null.
    pub(crate) keys: bool,
    /// Each CEL expression stays within its cost limit.
    pub(crate) costs: bool,
}

/// What validation finds in an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<FieldError>,
    /// Violations of rules by unchanged values, which do not reject an update.
    pub(crate) warnings: Vec<String>,
}

#[cfg(test)]
thread_local! {
    /// Counts schemas parsed for use on this thread, so that tests can measure work.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Structural {
    /// Parses a schema without checking that it is structural.
    pub(crate) fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        #[cfg(test)]
        PARSED.set(PARSED.get() + 1);
        Self::parse_at(schema, &Path::Root)
    }

    fn parse_at(schema: &Value, at: &Path<'_>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let root = Node::parse(schema, at, 1, &mut Decls::default(), &mut errors);
        if errors.is_empty() {
            let fingerprint = fingerprint::fingerprint(schema);
            Ok(Self { root, fingerprint })
        } else {
            Err(errors)
        }
    }

    /// Parses and checks a schema of a CRD that is being written. `at` is its path in the CRD.
    /// `status` is true if the version has a status subresource, which restricts the keywords at
    /// the root.
    #[cfg(test)]
    pub(crate) fn check(schema: &Value, at: &str, status: bool) -> Result<Self, Vec<FieldError>> {
        Self::check_with(schema, at, status, Tolerated::default())
    }

    /// Returns whether a schema is structural.
    pub(crate) fn is_structural(schema: &Value) -> bool {
        let Some(map) = schema.as_object() else {
            return false;
        };
        check::unreadable(map).is_none() && check::structural(map, &Path::Root).is_empty()
    }

    /// Returns whether a structural schema has defaults with unspecified fields.
    pub(crate) fn has_unpruned_defaults(schema: &Value) -> bool {
        Self::is_structural(schema)
            && Self::parse(schema).is_ok_and(|schema| defaults::any_unpruned(&schema.root))
    }

    /// Like [`check`](Self::check), for a schema that replaces a stored one.
    pub(crate) fn check_with(
        schema: &Value,
        at: &str,
        status: bool,
        tolerated: Tolerated,
    ) -> Result<Self, Vec<FieldError>> {
        let at = Path::At(at);
        let parsed = Self::parse_at(schema, &at)?;
        if parsed.root.pattern_size() > MAX_PATTERNS {
            let why = "patterns are too large: compiled, they must not exceed 64 MiB together";
            return Err(vec![FieldError::invalid(at, "", why)]);
        }
        let Some(map) = schema.as_object() else {
            return Ok(parsed);
        };
        let mut errors = Vec::new();
        if status {
            errors.extend(allowed_at_root(map, &at));
        }
        if parsed.root.nullable {
            let why = "nullable cannot be true at the root";
            errors.push(FieldError::forbidden(at.child("nullable"), why));
        }
        let unreadable = check::unreadable(map).filter(|_| !tolerated.structure);
        let readable = unreadable.is_none() && !tolerated.structure;
        let before = errors.len();
        if readable {
            errors.extend(check::structural(map, &at));
        }
        if readable && errors.len() == before {
            // The defaults share the budget of one object.
            let (budget, pruned) = (cel::OBJECT_BUDGET, !tolerated.defaults);
            errors.extend(defaults::check(&parsed.root, &at, budget, pruned));
        }
        let is_structural = readable && errors.len() == before;
        let keywords = check::openapi(map, &parsed.root, &at, tolerated);
        if is_structural {
            let mut costs = cel::Costs::new(&keywords, tolerated.costs);
            let mut found = Vec::new();
            cel::check(&parsed.root, &at, cel::Place::ROOT, &mut costs, &mut found);
            costs.finish(&at, &mut found);
            errors.extend(keywords);
            errors.extend(found);
        } else {
            errors.extend(keywords);
        }
        if let Some(why) = unreadable.filter(|_| errors.is_empty()) {
            errors.push(FieldError::invalid(at, "", why));
        }
        if errors.is_empty() {
            Ok(parsed)
        } else {
            Err(errors)
        }
    }

    /// Drops unspecified fields and invalid nulls. Returns the sorted paths of the unspecified
    /// fields. `apiVersion`, `kind` and `metadata` are preserved.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let unknown = self.prune_unknown(object);
        self.prune_nulls(object);
        unknown
    }

    /// Drops unspecified fields and returns their sorted paths.
    pub(crate) fn prune_unknown(&self, object: &mut Value) -> Vec<String> {
        prune::prune(object, &self.root, true)
    }

    /// Drops nulls where the schema is not nullable and has no default.
    pub(crate) fn prune_nulls(&self, object: &mut Value) {
        prune::prune_nulls(object, Some(&self.root));
    }

    /// Drops unknown metadata of embedded resources and returns its paths. Fails if a field of
    /// their type or metadata has the wrong type.
    pub(crate) fn coerce(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        let mut unknown = Vec::new();
        coerce::coerce(object, &self.root, &Path::Root, false, &mut unknown)?;
        Ok(unknown)
    }

    /// Fills in defaults at any depth. Idempotent. Returns false if they are so large that some may
    /// have been left out; such an object is too large to be stored.
    pub(crate) fn default(&self, object: &mut Value) -> bool {
        prune::default(object, &self.root)
    }

    #[cfg(test)]
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_with(object, old, Vec::new()).errors
    }

    /// Validates an object against the schema, and adds further errors. `old` is the object it
    /// replaces, if any: violations in unchanged parts are tolerated, so that a stricter schema
    /// does not freeze existing objects.
    pub(crate) fn validate_with(
        &self,
        object: &Value,
        old: Option<&Value>,
        others: Vec<FieldError>,
    ) -> Findings {
        let mut errors = validate::validate(object, old, &self.root, &Path::Root);
        errors.extend(others);
        embedded::check(object, &self.root, &Path::Root, false, &mut errors);
        self.lists(object, old, &mut errors);
        self.rules(object, old, errors)
    }

    /// Validates an object written through the `status` subresource: only `status` against the
    /// schema, but lists and rules of the whole object.
    pub(crate) fn validate_status(
        &self,
        object: &Value,
        old: Option<&Value>,
        others: Vec<FieldError>,
    ) -> Findings {
        let mut errors = Vec::new();
        let schema = self.root.properties.get("status");
        if let (Some(schema), Some(status)) = (schema, object.get("status")) {
            let old = old.and_then(|old| old.get("status"));
            errors = validate::validate(status, old, schema, &Path::At("status"));
        }
        errors.extend(others);
        self.lists(object, old, &mut errors);
        self.rules(object, old, errors)
    }

    /// Adds the errors of CEL rules. Rules expect values of the right types, so invalid objects are
    /// skipped.
    fn rules(&self, object: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Findings {
        let mut found = Findings::default();
        if self.root.has_rules && blocks_rules(&errors) {
            let why = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
            errors.push(FieldError::invalid(Path::Root, Value::Null, why));
        } else if self.root.has_rules {
            found = cel::validate(object, old, &self.root, &Path::Root);
        }
        errors.append(&mut found.errors);
        Findings { errors, ..found }
    }

    /// Reports duplicate list items, unless the old object had duplicates too.
    fn lists(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let found = lists::duplicates(object, &self.root);
        if !found.is_empty() && old.is_none_or(|old| lists::duplicates(old, &self.root).is_empty())
        {
            errors.extend(found);
        }
    }

    /// Returns the path of a selectable field, and whether it is a string, a boolean or an integer.
    pub(crate) fn selectable_field(&self, path: &str) -> Result<(String, bool), String> {
        if path.contains('[') {
            return Err("array notation is not allowed".to_owned());
        }
        let (name, node) = cel::normalize(path, &self.root)?;
        let scalar = matches!(node.type_name.as_str(), "string" | "boolean" | "integer");
        Ok((name, scalar))
    }

    /// Returns true if an object has so many values that its rules may take long.
    pub(crate) fn rules_may_take_long(&self, object: &Value) -> bool {
        const MANY: usize = 256;
        if !self.root.has_rules {
            return false;
        }
        let mut open = vec![object];
        let mut seen = 0;
        while let Some(value) = open.pop() {
            seen += 1;
            if seen + open.len() > MANY {
                return true;
            }
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(map) => open.extend(map.values()),
                _ => {}
            }
        }
        false
    }

    pub(crate) fn node(&self) -> &Node {
        &self.root
    }

    /// Returns a hash that identifies the schema.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns an object without unspecified fields and invalid nulls.
    pub(crate) fn pruned(&self, object: Tree) -> Tree {
        changed(object, |value| drop(self.prune(value)))
    }

    /// Returns an object with all defaults.
    pub(crate) fn defaulted(&self, object: Tree) -> Tree {
        changed(object, |value| _ = self.default(value))
    }

    /// Returns true if [`prune`](Self::prune) and [`default`](Self::default) would not change an
    /// object.
    pub(crate) fn is_settled(&self, object: &Value) -> bool {
        prune::is_settled(object, &self.root)
    }
}

fn changed(object: Tree, change: impl FnOnce(&mut Value)) -> Tree {
    let mut value = Value::Object(object);
    change(&mut value);
    match value {
        Value::Object(object) => object,
        _ => Tree::new(),
    }
}

/// Drops unknown fields from an object's own metadata, not from embedded resources, and returns
/// their paths. Fails if a field has the wrong type.
pub(crate) fn prune_metadata(object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        coerce::metadata(metadata, &Path::Root, &mut unknown)?;
    }
    Ok(unknown)
}

/// Returns true if these errors prevent CEL rules from being evaluated.
pub(crate) fn blocks_rules(errors: &[FieldError]) -> bool {
    errors.iter().any(|error| {
        matches!(
            error.reason,
            Reason::NotSupported
                | Reason::Required
                | Reason::TooLong
                | Reason::TooMany
                | Reason::TypeInvalid
        )
    })
}

/// Checks the keywords at the root. With a status subresource, upstream validates `status` with its
/// own schema, so the root must not use keywords that would be lost.
fn allowed_at_root(schema: &serde_json::Map<String, Value>, at: &Path<'_>) -> Option<FieldError> {
    const LOST: [&str; 17] = [
        "id",
        "$schema",
        "$ref",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "nullable",
    ];
    let type_name = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !type_name.is_empty() && type_name != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the \
                   status subresource is enabled";
        return Some(FieldError::invalid(at.child("type"), type_name, why));
    }
    let set = |name: &str| match schema.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    };
    LOST.iter().any(|name| set(name)).then(|| {
        let why = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum \
                   ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems \
                   MultipleOf Required Items Properties ExternalDocs Example \
                   XPreserveUnknownFields XValidations] fields are allowed at the root of the \
                   schema if the status subresource is enabled";
        match internal::schema(schema) {
            Some(shown) => FieldError::shown(at, &shown, why),
            None => FieldError::invalid(at, Value::Object(schema.clone()), why),
        }
    })
}

/// A schema that preserves everything, for versions that specify nothing.
impl Default for Structural {
    fn default() -> Self {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        Self::parse(&open).unwrap_or_else(|_| Self {
            root: Node::default(),
            fingerprint: 0,
        })
    }
}
