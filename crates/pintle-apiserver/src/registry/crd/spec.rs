//! Validation of a definition's names, columns, selectable fields, scale subresource and
//! conversion.
//!
//! Upstream moves what all versions have in common to the top of the spec before it validates, so
//! errors in those fields have paths there.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Definition, at, ratcheting::Ratchet, string, strings, validate::is_recognized};
use crate::{
    api::write::validate::rules::webhooks::client_config,
    meta::{NameRule, Tree},
    schema::{
        field::{FieldError, Path},
        structural::Structural,
    },
    x509::check_authorities,
};

/// The maximum number of selectable fields of a version.
const MAX_SELECTABLE: usize = 8;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Returns whether the whole spec preserves unknown fields, as in `v1beta1`.
pub(super) fn preserves_unknown_fields(tree: &Tree) -> bool {
    at(tree, &["spec", "preserveUnknownFields"]) == &Value::Bool(true)
}

/// The values of one version field, each with its path and version index. If all versions have the
/// same value, it is listed once without an index: upstream moves it to the top of the spec.
type Placed<'a> = Vec<(String, Option<usize>, &'a Value)>;

/// The fields of the versions that upstream moves to the top of the spec if all have the same.
pub(super) struct Parts<'a> {
    schemas: Placed<'a>,
    subresources: Placed<'a>,
    columns: Placed<'a>,
    selectable: Placed<'a>,
    /// Whether each version has a status subresource.
    with_status: Vec<bool>,
    names: Vec<String>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(definition: &'a Definition) -> Self {
        let part = |field, hoisted| common_of(definition, field, hoisted);
        let columns = "additionalPrinterColumns";
        Self {
            schemas: part("schema", "validation"),
            subresources: part("subresources", "subresources"),
            columns: part(columns, columns),
            selectable: part("selectableFields", "selectableFields"),
            with_status: definition
                .versions()
                .map(|version| version["subresources"]["status"].is_object())
                .collect(),
            names: definition
                .versions()
                .map(|version| string(&version["name"]))
                .collect(),
        }
    }

    /// Returns the schema that all versions have in common.
    pub(super) fn common_schema(&self) -> Option<&'a Value> {
        let mut schemas = self.schemas.iter();
        let (_, _, common) = schemas.find(|(_, of, _)| of.is_none())?;
        Some(&common["openAPIV3Schema"])
    }

    /// Returns the selectable fields of the versions that have too many, by the name of the version;
    /// without a name if all versions have the same.
    pub(super) fn too_many_selectable(&self) -> BTreeMap<String, &'a Value> {
        let fields = self.selectable.iter();
        let many = fields.filter(|(_, _, fields)| {
            let count = fields.as_array().map_or(0, Vec::len);
            count > MAX_SELECTABLE
        });
        many.map(|(_, of, fields)| (self.name(*of).to_owned(), *fields))
            .collect()
    }

    /// Returns the name of a version; none for what all versions have in common.
    fn name(&self, index: Option<usize>) -> &str {
        let name = index.and_then(|index| self.names.get(index));
        name.map_or("", String::as_str)
    }

    /// Returns the fields that all versions have in common.
    pub(super) fn common(&self) -> Vec<&'static str> {
        let parts = [
            ("schema", &self.schemas),
            ("subresources", &self.subresources),
            ("additionalPrinterColumns", &self.columns),
            ("selectableFields", &self.selectable),
        ];
        let is_common = |part: &Placed<'_>| part.iter().any(|(_, of, _)| of.is_none());
        let common = parts.into_iter().filter(|(_, part)| is_common(part));
        common.map(|(name, _)| name).collect()
    }

    /// Validates the fields of one version, or those that all versions have in common.
    pub(super) fn check(
        &self,
        index: Option<usize>,
        ratchet: &Ratchet,
        errors: &mut Vec<FieldError>,
    ) {
        let own = |part: &Placed<'a>| {
            let mut part = part.iter();
            let found = part.find(|(_, of, _)| *of == index);
            found.map(|(place, _, value)| (place.clone(), *value))
        };
        let schema = own(&self.schemas).map(|(place, value)| {
            let schema = &value["openAPIV3Schema"];
            (format!("{place}.openAPIV3Schema"), schema)
        });
        if let Some((place, schema)) = schema.as_ref().filter(|(_, schema)| schema.is_object()) {
            let status = match index {
                Some(index) => self.with_status.get(index) == Some(&true),
                None => self.with_status.contains(&true),
            };
            // Upstream's internal type repeats the name of the first version.
            let tolerated = ratchet.of_schema(self.name(index.or(Some(0))));
            if let Err(wrong) = Structural::check_with(schema, place, status, tolerated) {
                errors.extend(wrong);
            }
        }
        if let Some((place, value)) = own(&self.subresources) {
            check_scale(&value["scale"], &format!("{place}.scale"), errors);
        }
        if let Some((place, columns)) = own(&self.columns) {
            for (i, column) in columns.as_array().into_iter().flatten().enumerate() {
                check_column(column, &format!("{place}[{i}]"), errors);
            }
        }
        let Some((place, fields)) = own(&self.selectable) else {
            return;
        };
        if fields.as_array().is_none_or(Vec::is_empty) {
            return;
        }
        if let Some((_, schema)) = schema {
            let many = ratchet.keeps_selectable(self.name(index));
            check_selectable(fields, schema, &place, many, errors);
            return;
        }
        // Upstream misses the schema if only the fields are the same in all versions, or only the
        // schema is.
        let why = if index.is_none() {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        errors.push(FieldError::invalid(place, "", why));
    }
}

fn common_of<'a>(definition: &'a Definition, field: &str, hoisted: &str) -> Placed<'a> {
    let values: Vec<&Value> = definition
        .versions()
        .map(|version| &version[field])
        .collect();
    match values.split_first() {
        Some((first, rest)) if !first.is_null() && rest.iter().all(|other| other == first) => {
            vec![(format!("spec.{hoisted}"), None, *first)]
        }
        _ => {
            let each = values
                .into_iter()
                .enumerate()
                .filter(|(_, value)| !value.is_null());
            each.map(|(i, value)| (format!("spec.versions[{i}].{field}"), Some(i), value))
                .collect()
        }
    }
}

pub(super) fn check_group(group: &str, errors: &mut Vec<FieldError>) {
    let problems = NameRule::Subdomain.problems(group, false);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, problems.join(",")));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, why));
    }
}

pub(super) fn check_names(names: &Value, errors: &mut Vec<FieldError>) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if string(&names[field]).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    check_name_forms(names, "spec.names", errors);
}

/// Checks the form of the names that are set.
pub(super) fn check_name_forms(names: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let problems = |name: &str| NameRule::Label1035.problems(name, false).join(",");
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = string(&names[field]);
        let mixed = matches!(field, "kind" | "listKind");
        let why = problems(&if mixed {
            name.to_lowercase()
        } else {
            name.clone()
        });
        if name.is_empty() || why.is_empty() {
            continue;
        }
        let why = if mixed {
            format!("may have mixed case, but should otherwise match: {why}")
        } else {
            why
        };
        errors.push(FieldError::invalid(format!("{at}.{field}"), name, why));
    }
    let list = |field: &str, errors: &mut Vec<FieldError>| {
        for (i, name) in names[field].as_array().into_iter().flatten().enumerate() {
            let why = problems(name.as_str().unwrap_or_default());
            if !why.is_empty() {
                let place = format!("{at}.{field}[{i}]");
                errors.push(FieldError::invalid(place, name.clone(), why));
            }
        }
    };
    list("shortNames", errors);
    let (kind, list_kind) = (string(&names["kind"]), string(&names["listKind"]));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            format!("{at}.listKind"),
            list_kind,
            why,
        ));
    }
    list("categories", errors);
}

/// Checks that a path starts with a dot.
fn simple_path(path: &str, place: &str, errors: &mut Vec<FieldError>) -> bool {
    let simple = path.starts_with('.');
    if !simple {
        let why = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(place, path, why));
    }
    simple
}

fn check_scale(scale: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if scale.is_null() {
        return;
    }
    for (field, under) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        let place = format!("{place}.{field}");
        let path = string(&scale[field]);
        if path.is_empty() {
            errors.push(FieldError::required(place, ""));
        } else if simple_path(&path, &place, errors) && !path.starts_with(&format!("{under}.")) {
            let why = format!("should be a json path under {under}");
            errors.push(FieldError::invalid(place, path, why));
        }
    }
    let path = string(&scale["labelSelectorPath"]);
    let place = format!("{place}.labelSelectorPath");
    if !path.is_empty()
        && simple_path(&path, &place, errors)
        && !path.starts_with(".spec.")
        && !path.starts_with(".status.")
    {
        let why = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(place, path, why));
    }
}

fn check_column(column: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let field = |name: &str| (string(&column[name]), format!("{place}.{name}"));
    let (name, at) = field("name");
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
    }
    let (kind, at) = field("type");
    let why = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(at, why));
    } else if !COLUMN_TYPES.contains(&kind.as_str()) {
        errors.push(FieldError::invalid(at, kind, why));
    }
    let (format, at) = field("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.as_str()) {
        let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(at, format, why));
    }
    let (path, _) = field("jsonPath");
    // Upstream's internal type spells the field like this.
    let at = format!("{place}.JSONPath");
    if path.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        simple_path(&path, &at, errors);
    }
}

fn check_selectable(
    fields: &Value,
    schema: &Value,
    place: &str,
    many: bool,
    errors: &mut Vec<FieldError>,
) {
    let Ok(schema) = Structural::parse(schema) else {
        return;
    };
    let mut known = BTreeSet::new();
    for (i, field) in fields.as_array().into_iter().flatten().enumerate() {
        let at = format!("{place}[{i}].jsonPath");
        let path = string(&field["jsonPath"]);
        if path.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let (name, scalar) = match schema.selectable_field(&path) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("is an invalid path: {why}");
                errors.push(FieldError::invalid(at, path, why));
                continue;
            }
        };
        if name == "metadata" || name.starts_with("metadata.") {
            let why = "must not point to fields in metadata";
            errors.push(FieldError::invalid(at.clone(), path.clone(), why));
        }
        if !scalar {
            let why = "must point to a field of type string, boolean or integer. Enum string \
                       fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(at.clone(), path.clone(), why));
        }
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at, path));
        }
    }
    if known.len() > MAX_SELECTABLE && !many {
        let count = i64::try_from(known.len()).unwrap_or(i64::MAX);
        let max = i64::try_from(MAX_SELECTABLE).unwrap_or(i64::MAX);
        errors.push(FieldError::too_many(place, count, max));
    }
}

/// Returns why the certificates of a definition's conversion webhook cannot be used.
pub(super) fn invalid_ca_bundle(tree: &Tree) -> Option<String> {
    let bundle = at(
        tree,
        &["spec", "conversion", "webhook", "clientConfig", "caBundle"],
    );
    // The type of the field was checked when the request was decoded.
    let bundle = STANDARD.decode(bundle.as_str()?).ok()?;
    if bundle.is_empty() {
        return None;
    }
    check_authorities(&bundle).err()
}

/// Rejects an invalid CA bundle for an established definition's conversion webhook, unless the old
/// bundle was invalid too.
pub(super) fn check_ca_bundle(tree: &Tree, old: &Tree, errors: &mut Vec<FieldError>) {
    let conversion = at(tree, &["spec", "conversion"]);
    if conversion["strategy"] != "Webhook"
        || !Definition::read(old).is_established()
        || invalid_ca_bundle(old).is_some()
    {
        return;
    }
    if let Some(why) = invalid_ca_bundle(tree) {
        let place = "spec.conversion.webhookClientConfig.caBundle";
        let bundle = conversion["webhook"]["clientConfig"]["caBundle"].clone();
        errors.push(FieldError::invalid(place, bundle, why));
    }
}

/// Validates how objects are converted. Paths are those of upstream's internal type.
pub(super) fn check_conversion(
    definition: &Definition,
    ratchet: &Ratchet,
    errors: &mut Vec<FieldError>,
) {
    const CLIENT: &str = "spec.conversion.webhookClientConfig";
    const VERSIONS: &str = "spec.conversion.conversionReviewVersions";
    let known = ["None", "Webhook"];
    let conversion = at(&definition.tree, &["spec", "conversion"]);
    if conversion.is_null() {
        return;
    }
    let field = "spec.conversion.strategy";
    let strategy = string(&conversion["strategy"]);
    if strategy != "None" && preserves_unknown_fields(&definition.tree) {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(field, strategy.as_str(), why));
    }
    if strategy.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !known.contains(&strategy.as_str()) {
        errors.push(FieldError::not_supported(field, strategy.as_str(), &known));
    }
    let webhook = &conversion["webhook"];
    let (client, versions) = (
        &webhook["clientConfig"],
        &webhook["conversionReviewVersions"],
    );
    let names = strings(versions);
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_object() {
            errors.push(FieldError::forbidden(CLIENT, why));
        }
        if !names.is_empty() {
            errors.push(FieldError::forbidden(VERSIONS, why));
        }
        return;
    }
    if client.is_object() {
        client_config(client, &Path::At(CLIENT), errors);
    } else {
        let why = "required when strategy is set to Webhook";
        errors.push(FieldError::required(CLIENT, why));
    }
    if names.is_empty() {
        errors.push(FieldError::required(VERSIONS, ""));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, name) in names.iter().enumerate() {
        let place = format!("{VERSIONS}[{i}]");
        if !seen.insert(name) {
            errors.push(FieldError::invalid(
                place,
                name.as_str(),
                "duplicate version",
            ));
            continue;
        }
        for problem in NameRule::Label1035.problems(name, false) {
            errors.push(FieldError::invalid(place.as_str(), name.as_str(), problem));
        }
    }
    if !ratchet.review_versions && !names.iter().any(|name| is_recognized(name)) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(VERSIONS, versions.clone(), why));
    }
}

#[cfg(test)]
mod tests;
