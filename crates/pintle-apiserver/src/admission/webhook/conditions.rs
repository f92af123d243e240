//! Match conditions: CEL expressions that decide whether a webhook is called or a policy applies.

use pintle_cel::{Type, Value as Cel};

use crate::admission::expression::{Compiler, Expression, Optional, Scope};

/// Compiles a condition. The error is kube-apiserver's message.
pub(crate) fn compile_condition(source: &str, params: bool) -> Result<Expression, String> {
    let optional = Optional {
        params,
        authorizer: true,
        patch_types: false,
    };
    let program = Compiler::new().compile(source, optional, &[Type::Bool])?;
    Ok(Expression {
        source: source.to_owned(),
        program: Ok(program),
    })
}

/// Returns true if all conditions hold. A false condition outweighs errors in others.
pub(in crate::admission) fn hold(
    conditions: &[Expression],
    mut scope: Scope,
) -> Result<bool, String> {
    let mut errors = Vec::new();
    let mut failed = false;
    for condition in conditions {
        match scope.evaluate(condition)? {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => failed = true,
            Ok(_) => errors.push("must evaluate to bool".to_owned()),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        _ if failed => Ok(false),
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}
