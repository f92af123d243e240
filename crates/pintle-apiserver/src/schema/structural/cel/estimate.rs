//! Reports rules that do not compile, or that may cost too much.

use serde_json::Value;

use super::super::{
    internal,
    node::{Additional, Node},
};
use super::Rule;
use crate::schema::field::{FieldError, Path};

/// The maximum cost of one rule, over all the values it applies to.
const RULE_LIMIT: u64 = 10_000_000;

/// The maximum cost of all rules of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// How many of the most expensive rules are named if the schema exceeds its limit.
const NAMED: usize = 4;

/// The estimated cost of all rules of a schema.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    total: u64,
    /// The most expensive rules, most expensive first.
    expensive: Vec<(String, u64)>,
    /// Fields with other errors. Rules of schemas that contain one are not checked.
    invalid: Vec<String>,
    /// Only the limit of the whole schema applies.
    only_total: bool,
}

impl Costs {
    /// Creates an estimate, given the errors already found in the schema.
    pub(crate) fn new(errors: &[FieldError], only_total: bool) -> Self {
        Self {
            only_total,
            invalid: errors.iter().map(|error| error.field.clone()).collect(),
            ..Self::default()
        }
    }

    fn add(&mut self, field: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((field, cost));
            self.expensive
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }

    /// Reports a schema whose rules cost too much together.
    pub(crate) fn finish(self, schema: &Path<'_>, errors: &mut Vec<FieldError>) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        for (field, _) in self.expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire \
                       OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(
            schema,
            exceeded(what, self.total, SCHEMA_LIMIT),
        ));
    }
}

/// The position of a schema: how many values it may have, and whether they have an identity.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// `None` if a list or map above it has no limit.
    cardinality: Option<u64>,
    /// The path of the enclosing list whose items cannot be matched with old ones, or of the map
    /// with an unknown map type.
    uncorrelatable: Option<&'a str>,
}

impl Place<'_> {
    pub(crate) const ROOT: Self = Self {
        cardinality: Some(1),
        uncorrelatable: None,
    };
}

/// Checks the rules of a schema and of those below it.
pub(crate) fn check(
    schema: &Node,
    at: &Path<'_>,
    place: Place<'_>,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) {
    let here = at.to_string();
    let factor = match schema.type_name.as_str() {
        "object" if schema.additional.is_some() => schema.max_properties,
        "array" => schema.max_items,
        _ => Some(1),
    };
    let factor = factor.map(|max| u64::try_from(max).unwrap_or_default());
    let cardinality = place
        .cardinality
        .zip(factor)
        .map(|(count, max)| count.saturating_mul(max));
    let map_type = schema.map_type.as_deref();
    let unknown_map = map_type.is_some_and(|ty| !matches!(ty, "granular" | "atomic"));
    let below = Place {
        cardinality,
        uncorrelatable: place
            .uncorrelatable
            .or(unknown_map.then_some(here.as_str())),
    };
    if let Some(Additional::Schema(values)) = &schema.additional {
        check(
            values,
            &at.child("additionalProperties"),
            below,
            costs,
            errors,
        );
    }
    let properties = at.child("properties");
    for (name, property) in &schema.properties {
        check(property, &properties.key(name), below, costs, errors);
    }
    if let Some(items) = &schema.items {
        let mut below = below;
        if schema.list_type.as_deref() != Some("map") {
            below.uncorrelatable = below.uncorrelatable.or(Some(&here));
        }
        check(items, &at.child("items"), below, costs, errors);
    }
    let Some(compiled) = &schema.compiled else {
        return;
    };
    if costs.invalid.iter().any(|field| field.starts_with(&here)) {
        return;
    }
    let rules_at = at.child("x-kubernetes-validations");
    let Some(decl) = &compiled.decl else {
        let why = "internal error: failed to construct type information for \
                   x-kubernetes-validations rules: unable to convert structural schema to CEL \
                   declarations";
        errors.push(FieldError::invalid(rules_at, Value::Null, why));
        return;
    };
    for (i, rule) in compiled.rules.iter().enumerate() {
        let at = rules_at.index(i);
        let mut charge = |field: &str, what: &str, cost: u64, errors: &mut Vec<FieldError>| {
            let field = at.child(field);
            if cost > RULE_LIMIT && !costs.only_total {
                errors.push(FieldError::forbidden(
                    field,
                    exceeded(what, cost, RULE_LIMIT),
                ));
            }
            costs.add(field.to_string(), cost);
        };
        match &rule.program {
            Some(Ok(program)) => {
                let count = place.cardinality.unwrap_or_else(|| decl.max_cardinality());
                let cost = program.cost(Some(decl)).max.saturating_mul(count);
                charge("rule", "estimated rule cost", cost, errors);
            }
            Some(Err(why)) => errors.push(broken(rule, at.child("rule"), why)),
            None => {}
        }
        match &rule.message {
            Some(Ok(program)) => {
                let cost = program.cost(Some(decl)).max;
                charge(
                    "messageExpression",
                    "estimated messageExpression cost",
                    cost,
                    errors,
                );
            }
            Some(Err(why)) => errors.push(broken(rule, at.child("messageExpression"), why)),
            None => {}
        }
        if rule.uses_old {
            if let Some(list) = place.uncorrelatable {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {list}"
                );
                errors.push(FieldError::invalid(
                    at.child("rule"),
                    rule.text("rule"),
                    why,
                ));
            }
        } else if let Some(set) = rule.source["optionalOldSelf"].as_bool() {
            let why = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(at.child("optionalOldSelf"), set, why));
        }
    }
}

/// Returns the error of an expression that does not compile. It shows the rule as Kubernetes does.
fn broken(rule: &Rule, field: Path<'_>, why: &str) -> FieldError {
    FieldError::shown(field, &internal::rule(&rule.source), why)
}

fn exceeded(what: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, \
         maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
