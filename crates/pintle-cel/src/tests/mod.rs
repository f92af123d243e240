//! Expressions whose meaning, errors and costs are known from cel-go and Kubernetes.

mod admission;
mod costs;
mod errors;
mod failures;
mod hostile;
mod language;
mod schemas;

use crate::{Env, Evaluation, Value};

/// Evaluates an expression without variables.
fn eval(source: &str) -> Evaluation {
    let program = Env::new().compile(source);
    program
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .eval(&[], 1_000_000)
}

/// Asserts that an expression is true.
fn holds(source: &str) {
    let done = eval(source);
    assert!(
        matches!(done.result, Ok(Value::Bool(true))),
        "{source}: {:?}",
        done.result
    );
}

/// Returns the message of an expression that fails to evaluate.
fn failure(source: &str) -> String {
    match eval(source).result {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{source}: {value:?}"),
    }
}
