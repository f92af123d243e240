//! Type checks of stored policies: the content of a policy's `status.typeChecking`.

use std::collections::BTreeSet;

use pintle_cel::{Decl, Type};
use serde_json::{Value, json};

use crate::admission::expression::{Compiler, Optional};

/// The maximum number of kinds that one policy is checked against.
const MAX_TYPES: usize = 10;

/// Returns the `expressionWarnings` of a `ValidatingAdmissionPolicy`: its validations and messages,
/// checked against the schemas of the kinds that it names.
///
/// `kinds` returns the kinds of a group, version and plural, and `schema` the `OpenAPI` schema of a
/// group, version and kind, without references.
///
/// ```
/// use pintle_apiserver::policy_warnings;
/// use serde_json::json;
///
/// let policy = json!({"spec": {
///     "matchConstraints": {"resourceRules": [{
///         "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]},
///     "validations": [{"expression": "object.replicas > 1"}],
/// }});
/// let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
/// let warnings = policy_warnings(
///     &policy,
///     |_, _, _| vec!["Deployment".to_owned()],
///     |_, _, _| Some(schema.clone()),
/// );
/// assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
/// assert!(warnings[0]["warning"].as_str().unwrap().contains("undefined field 'replicas'"));
/// ```
#[must_use]
pub fn policy_warnings(
    policy: &Value,
    kinds: impl Fn(&str, &str, &str) -> Vec<String>,
    schema: impl Fn(&str, &str, &str) -> Option<Value>,
) -> Vec<Value> {
    let spec = &policy["spec"];
    let declared = |group: &str, version: &str, kind: &str| {
        let schema = schema(group, version, kind)?;
        Some(Decl::from_schema(&schema, true).map_or(Type::Dyn, |decl| decl.cel_type()))
    };
    let types: Vec<(String, Type)> = types(spec, kinds)
        .into_iter()
        .filter_map(|(group, version, kind)| {
            let ty = declared(&group, &version, &kind)?;
            Some((format!("{group}/{version}, Kind={kind}"), ty))
        })
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let param_kind = &spec["paramKind"];
    let has_params = param_kind.is_object();
    let (of, kind) = (text(&param_kind["apiVersion"]), text(&param_kind["kind"]));
    let (group, version) = of.split_once('/').unwrap_or(("", &of));
    let params = has_params
        .then(|| declared(group, version, &kind))
        .flatten();
    let check = |source: &str| {
        let problems = types.iter().filter_map(|(name, ty)| {
            let problem = check_one(spec, source, ty, params.as_ref(), has_params)?;
            Some(format!("{name}: {problem}\n"))
        });
        problems.collect::<Vec<_>>().join("\n")
    };
    let mut warnings = Vec::new();
    let validations = spec["validations"].as_array().into_iter().flatten();
    for (i, validation) in validations.enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = text(&validation[field]);
            let warning = check(&source);
            if !source.is_empty() && !warning.is_empty() {
                let at = format!("spec.validations[{i}].{field}");
                warnings.push(json!({"fieldRef": at, "warning": warning}));
            }
        }
    }
    warnings
}

/// Checks an expression against one type of objects.
fn check_one(
    spec: &Value,
    source: &str,
    object: &Type,
    params: Option<&Type>,
    has_params: bool,
) -> Option<String> {
    let params = params.cloned().unwrap_or(Type::Dyn);
    let mut compiler = Compiler::typed(object.clone(), params);
    let optional = Optional {
        params: has_params,
        authorizer: true,
        patch_types: false,
    };
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        // An error in a variable is reported where the variable is used.
        let _ = compiler.variable(text("name"), text("expression"), optional);
    }
    compiler.check(source, optional).err()
}

/// Returns the kinds that the rules of a policy name, without wildcards, ordered.
fn types(
    spec: &Value,
    kinds: impl Fn(&str, &str, &str) -> Vec<String>,
) -> BTreeSet<(String, String, String)> {
    let mut types = BTreeSet::new();
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    for rule in rules.into_iter().flatten() {
        let list = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            let mut items: Vec<&str> = items.filter_map(Value::as_str).collect();
            items.sort_unstable();
            items
        };
        let (groups, versions) = (list("apiGroups"), list("apiVersions"));
        let wild = |names: &[&str]| names.iter().any(|name| name.contains('*'));
        if wild(&groups) || wild(&versions) {
            continue;
        }
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                let mut plurals = list("resources");
                plurals.retain(|plural| !plural.contains(['*', '/']));
                for plural in plurals {
                    for kind in kinds(group, version, plural) {
                        types.insert(((*group).to_owned(), (*version).to_owned(), kind));
                        count += 1;
                        if count == MAX_TYPES {
                            return types;
                        }
                    }
                }
            }
        }
    }
    types
}
