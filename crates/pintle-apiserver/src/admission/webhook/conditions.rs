//! Match conditions: CEL expressions that decide whether a webhook is called.
//!
//! This is the only place of admission that knows the CEL engine.

use pintle_cel::{Env, Program, Type, Value as Cel};
use serde_json::Value;

/// The most that one condition may cost, in CEL's cost units.
const CONDITION_BUDGET: u64 = 1_000_000;

/// The most that all conditions of a webhook may cost for one request.
const BUDGET: u64 = 2_500_000;

/// A compiled condition.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    expression: String,
    program: Program,
}

/// The variables of a condition.
#[derive(Debug)]
pub(super) struct Variables<'a> {
    pub(super) object: &'a Value,
    pub(super) old_object: &'a Value,
    /// The `AdmissionRequest` without the objects.
    pub(super) request: &'a Value,
}

impl Condition {
    /// Compiles an expression. The error is the compiler's message.
    pub(crate) fn compile(expression: &str) -> Result<Self, String> {
        let expression = expression.trim();
        let env = ["object", "oldObject", "request"]
            .into_iter()
            .fold(Env::new(), |env, name| env.variable(name, Type::Dyn));
        let program = env.compile(expression);
        let program = program.map_err(|error| format!("compilation failed: {error}"))?;
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(Self {
            expression: expression.to_owned(),
            program,
        })
    }

    /// Evaluates the condition and subtracts its cost from `budget`.
    fn evaluate(&self, variables: &[(&str, Cel)], budget: &mut u64) -> Result<bool, String> {
        let done = self.program.eval(variables, CONDITION_BUDGET.min(*budget));
        *budget = budget.saturating_sub(done.cost);
        let why = match done.result {
            Ok(Cel::Bool(value)) => return Ok(value),
            Ok(_) => "must evaluate to bool".to_owned(),
            Err(error) => error.to_string(),
        };
        let expression = &self.expression;
        Err(format!(
            "expression '{expression}' resulted in error: {why}"
        ))
    }
}

/// Returns true if all conditions hold. One that is false outweighs errors of others.
pub(super) fn hold(conditions: &[Condition], variables: &Variables<'_>) -> Result<bool, String> {
    let variables = [
        ("object", Cel::from_json(variables.object)),
        ("oldObject", Cel::from_json(variables.old_object)),
        ("request", Cel::from_json(variables.request)),
    ];
    let mut budget = BUDGET;
    let mut errors = Vec::new();
    for condition in conditions {
        match condition.evaluate(&variables, &mut budget) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}
