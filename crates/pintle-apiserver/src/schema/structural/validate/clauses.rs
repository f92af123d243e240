//! Validation against the clauses of a schema: `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::Value;

use super::{Outcome, ViolationKind, check};
use crate::schema::{
    field::quote,
    structural::{lists::Old, node::Node},
};

/// Validates a value against all clauses of a schema.
pub(super) fn check_all(value: &Value, old: Option<Old<'_>>, schema: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let named = quote(path);
    if !schema.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut valid = false;
        for clause in &schema.any_of {
            let result = check(value, old, clause, path);
            valid = result.is_valid();
            if valid {
                best = Some(result);
                break;
            }
            if best
                .as_ref()
                .is_none_or(|best| result.matched > best.matched)
            {
                best = Some(result);
            }
        }
        if !valid {
            let message = format!("{named} must validate at least one schema (anyOf)");
            outcome.fail(path, ViolationKind::Whole, message);
        }
        outcome.merge(best.unwrap_or_default());
    }
    if !schema.one_of.is_empty() {
        check_one_of(value, old, schema, path, &mut outcome);
    }
    if !schema.all_of.is_empty() {
        let mut valid = 0;
        for clause in &schema.all_of {
            let result = check(value, old, clause, path);
            valid += usize::from(result.is_valid());
            outcome.merge(result);
        }
        if valid != schema.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let message = format!("{named} must validate all the schemas (allOf){none}");
            outcome.fail(path, ViolationKind::Whole, message);
        }
    }
    if let Some(clause) = &schema.not
        && check(value, old, clause, path).is_valid()
    {
        let message = format!("{named} must not validate the schema (not)");
        outcome.fail(path, ViolationKind::Whole, message);
    }
    outcome.matched += 1;
    outcome
}

fn check_one_of(
    value: &Value,
    old: Option<Old<'_>>,
    schema: &Node,
    path: &str,
    outcome: &mut Outcome,
) {
    let mut valid = 0;
    let mut first: Option<Outcome> = None;
    let mut best: Option<Outcome> = None;
    for clause in &schema.one_of {
        let result = check(value, old, clause, path);
        if result.is_valid() {
            valid += 1;
            best = None;
            first.get_or_insert(result);
        } else if valid == 0
            && best
                .as_ref()
                .is_none_or(|best| result.matched > best.matched)
        {
            best = Some(result);
        }
    }
    if valid == 1 {
        outcome.merge(first.unwrap_or_default());
        return;
    }
    let found = match valid {
        0 => "Found none valid".to_owned(),
        n => format!("Found {n} valid alternatives"),
    };
    let named = quote(path);
    let message = format!("{named} must validate one and only one schema (oneOf). {found}");
    outcome.fail(path, ViolationKind::Whole, message);
    outcome.merge(best.unwrap_or_default());
}
