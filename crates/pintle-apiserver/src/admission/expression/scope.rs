//! The variables that expressions can read while a request is admitted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use pintle_cel::{EvalError, Lazy, ResourceAccess, Value as Cel};
use serde_json::Value;

use super::{CALL_LIMIT, Expression, authorizer::Asked};
use crate::{admission::Request, api::Api};

/// Maximum nesting depth of variable references.
const MAX_NESTING: usize = 512;

/// The number of levels after which evaluation moves to a new thread with a fresh stack.
const LEVELS_PER_STACK: usize = 16;

/// Stack size of that thread.
const STACK: usize = 16 * 1024 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The values that expressions about one request share.
#[derive(Debug)]
pub(crate) struct Inputs {
    object: Cel,
    old_object: Cel,
    request: Cel,
    authorizer: Cel,
    request_resource: Cel,
}

impl Inputs {
    /// Converts the objects of a request, and the request as an admission review describes it.
    pub(crate) fn new(
        api: &Api,
        request: &Request<'_>,
        object: &Value,
        old_object: &Value,
        described: &Value,
    ) -> Self {
        let asked = Arc::new(Asked::new(api, request.user));
        let resource = ResourceAccess {
            group: request.resource.group.clone(),
            resource: request.resource.plural.clone(),
            subresource: request.sub.to_owned(),
            namespace: request.namespace.unwrap_or_default().to_owned(),
            name: request.name.to_owned(),
            ..ResourceAccess::default()
        };
        Self {
            object: Cel::from_json(object),
            old_object: Cel::from_json(old_object),
            request: Cel::from_json(described),
            authorizer: Cel::authorizer(asked.clone()),
            request_resource: Cel::resource_check(asked, resource),
        }
    }
}

/// The named variables of a policy, in the order in which they are declared.
pub(crate) type Composed = Arc<Vec<(Arc<str>, Expression)>>;

/// Evaluates expressions that share values, variables and a budget.
#[derive(Debug)]
pub(crate) struct Scope {
    values: Vec<(&'static str, Cel)>,
    variables: Option<Arc<Variables>>,
    budget: u64,
}

impl Scope {
    /// Creates a scope with the values of a request. `namespaceObject` is null and there are no
    /// parameters until they are set.
    pub(crate) fn new(inputs: &Inputs, budget: u64) -> Self {
        Self {
            values: vec![
                ("object", inputs.object.clone()),
                ("oldObject", inputs.old_object.clone()),
                ("request", inputs.request.clone()),
                ("namespaceObject", Cel::Null),
            ],
            variables: None,
            budget,
        }
    }

    /// Adds `authorizer`.
    pub(crate) fn with_authorizer(mut self, inputs: &Inputs) -> Self {
        self.values.push(("authorizer", inputs.authorizer.clone()));
        let resource = inputs.request_resource.clone();
        self.values.push(("authorizer.requestResource", resource));
        self
    }

    /// Sets the namespace of the object.
    pub(crate) fn with_namespace(mut self, namespace: &Value) -> Self {
        self.values.retain(|(name, _)| *name != "namespaceObject");
        let namespace = Cel::from_json(namespace);
        self.values.push(("namespaceObject", namespace));
        self
    }

    /// Adds the parameters, which may be null.
    pub(crate) fn with_params(mut self, params: &Value) -> Self {
        self.values.push(("params", Cel::from_json(params)));
        self
    }

    /// Adds the variables of a policy. They are evaluated when they are used, and see only values
    /// that were added before.
    pub(crate) fn with_variables(mut self, composed: &Composed) -> Self {
        let variables = Arc::new(Variables {
            composed: Arc::clone(composed),
            values: self.values.clone(),
            known: Mutex::default(),
            cost: AtomicU64::new(0),
            limit: AtomicU64::new(self.budget),
            depth: AtomicUsize::new(0),
        });
        self.values
            .push(("variables", Cel::Lazy(variables.clone())));
        self.variables = Some(variables);
        self
    }

    /// Returns the remaining budget.
    pub(crate) fn left(&self) -> u64 {
        self.budget
    }

    /// Evaluates an expression. The inner error is the expression's own; the outer error means the
    /// budget is exhausted and no further expression may run.
    pub(crate) fn evaluate(
        &mut self,
        expression: &Expression,
    ) -> Result<Result<Cel, String>, String> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let variables = self.variables.as_ref();
        if let Some(variables) = variables {
            variables.limit.store(self.budget, Ordering::Relaxed);
        }
        let done = program.eval(&self.values, CALL_LIMIT);
        let composed = variables.map_or(0, |variables| variables.cost.swap(0, Ordering::Relaxed));
        for cost in [composed, done.cost] {
            if let Some(left) = self.budget.checked_sub(cost) {
                self.budget = left;
            } else {
                self.budget = 0;
                return Err(OUT_OF_BUDGET.to_owned());
            }
        }
        Ok(done.result.map_err(|why| {
            let source = &expression.source;
            format!("expression '{source}' resulted in error: {why}")
        }))
    }
}

impl Drop for Scope {
    /// Drops the values of variables. A value that captured `variables` would otherwise form a
    /// reference cycle.
    fn drop(&mut self) {
        if let Some(variables) = &self.variables {
            let known = std::mem::take(&mut *variables.known.lock());
            drop(known);
        }
    }
}

/// `variables`: each is evaluated when an expression reads it for the first time.
#[derive(Debug)]
struct Variables {
    composed: Composed,
    values: Vec<(&'static str, Cel)>,
    known: Mutex<BTreeMap<Arc<str>, Result<Cel, EvalError>>>,
    /// The cost of evaluating variables since it was last read.
    cost: AtomicU64,
    /// The maximum cost of variables. Once it is spent, no further variable is evaluated: the
    /// budget of the scope is exhausted.
    limit: AtomicU64,
    /// Current nesting depth of variable evaluation.
    depth: AtomicUsize,
}

impl Lazy for Variables {
    fn get(self: Arc<Self>, name: &str) -> Option<Result<Cel, EvalError>> {
        if let Some(known) = self.known.lock().get(name) {
            return Some(known.clone());
        }
        // If a name is declared twice, the last declaration wins.
        let mut composed = self.composed.iter().rev();
        let (name, expression) = composed.find(|(known, _)| **known == *name)?;
        if self.cost.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed) {
            return Some(Err(EvalError::Failed(OUT_OF_BUDGET.to_owned())));
        }
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        let result = if depth > MAX_NESTING {
            let why = format!("composited variable {name:?} is nested too deeply");
            Err(EvalError::Failed(why))
        } else if depth.is_multiple_of(LEVELS_PER_STACK) {
            on_own_stack(|| self.evaluate(name, expression))
        } else {
            self.evaluate(name, expression)
        };
        self.depth.fetch_sub(1, Ordering::Relaxed);
        self.known.lock().insert(name.clone(), result.clone());
        Some(result)
    }

    fn contains(&self, name: &str) -> bool {
        self.composed.iter().any(|(known, _)| **known == *name)
    }
}

impl Variables {
    fn evaluate(self: &Arc<Self>, name: &str, expression: &Expression) -> Result<Cel, EvalError> {
        let fails =
            |how: &str| EvalError::Failed(format!("composited variable {name:?} fails to {how}"));
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Err(fails(&format!("compile: {why}"))),
        };
        let mut values = self.values.clone();
        values.push(("variables", Cel::Lazy(self.clone())));
        let done = program.eval(&values, CALL_LIMIT);
        self.cost.fetch_add(done.cost, Ordering::Relaxed);
        done.result
            .map_err(|why| fails(&format!("evaluate: {why}")))
    }
}

fn on_own_stack(
    evaluate: impl FnOnce() -> Result<Cel, EvalError> + Send,
) -> Result<Cel, EvalError> {
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("cel".into())
            .stack_size(STACK);
        thread.spawn_scoped(scope, evaluate).ok()?.join().ok()
    });
    done.unwrap_or_else(|| {
        let why = "cannot spawn a thread to evaluate the expression";
        Err(EvalError::Failed(why.to_owned()))
    })
}

#[cfg(test)]
mod tests;
