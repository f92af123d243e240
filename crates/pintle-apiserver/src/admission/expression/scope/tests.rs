use std::sync::Weak;

use pintle_cel::{AccessDecision, Authorizer, Checked, Type};

use super::*;
use crate::admission::expression::{BUDGET, Compiler, Optional};

/// Allows everything, and counts the checks.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Authorizer for Counting {
    fn authorize(&self, _: &Checked) -> AccessDecision {
        self.0.fetch_add(1, Ordering::Relaxed);
        AccessDecision {
            allowed: true,
            ..AccessDecision::default()
        }
    }
}

const OPTIONAL: Optional = Optional {
    params: false,
    authorizer: true,
    patch_types: false,
};

fn scope(authorizer: &Arc<Counting>, variables: &[(&str, &str)]) -> (Compiler, Scope) {
    let inputs = Inputs {
        object: Cel::Null,
        old_object: Cel::Null,
        request: Cel::Null,
        authorizer: Cel::authorizer(authorizer.clone()),
        request_resource: Cel::resource_check(authorizer.clone(), ResourceAccess::default()),
    };
    let mut compiler = Compiler::composed();
    let composed = variables.iter().map(|(name, source)| {
        let expression = Expression {
            source: (*source).to_owned(),
            program: compiler.variable(name, source, OPTIONAL),
        };
        (Arc::from(*name), expression)
    });
    let composed = Arc::new(composed.collect());
    let scope = Scope::new(&inputs, BUDGET).with_authorizer(&inputs);
    (compiler, scope.with_variables(&composed))
}

#[test]
fn variables_beyond_the_budget_are_not_evaluated() {
    let authorizer = Arc::default();
    // Two checks cost 700,000 units, so fifteen variables exceed the budget of 10,000,000.
    let check = "authorizer.path('/a').check('get').allowed()";
    let names: Vec<String> = (0..200).map(|i| format!("v{i}")).collect();
    let source = format!("{check} && {check}");
    let variables: Vec<_> = names.iter().map(|name| (&**name, &*source)).collect();
    let (compiler, mut scope) = scope(&authorizer, &variables);
    let all: Vec<_> = names
        .iter()
        .map(|name| format!("variables.{name}"))
        .collect();
    let expression = compiler.expression(&all.join(" && "), OPTIONAL, &[Type::Bool]);
    assert_eq!(scope.evaluate(&expression).unwrap_err(), OUT_OF_BUDGET);
    assert_eq!(authorizer.0.load(Ordering::Relaxed), 30);
}

#[test]
fn a_variable_that_contains_all_variables_is_freed() {
    let (compiler, mut scope) = scope(&Arc::default(), &[("all", "dyn([variables])")]);
    let expression = compiler.expression("size(variables.all) == 1", OPTIONAL, &[Type::Bool]);
    let value = scope.evaluate(&expression).unwrap().unwrap();
    assert!(matches!(value, Cel::Bool(true)), "{value:?}");
    let variables: Weak<Variables> = scope.variables.as_ref().map(Arc::downgrade).unwrap();
    drop(scope);
    assert_eq!(variables.strong_count(), 0);
}
