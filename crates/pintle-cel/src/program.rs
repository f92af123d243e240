//! Environments and compiled expressions.

use std::sync::Arc;

use crate::ast::Ast;
use crate::checker::{self, Checked, Variable};
use crate::cost::{self, Range};
use crate::decl::Decl;
use crate::eval::{self, Plan};
use crate::parser;
use crate::source::{CompileError, Errors};
use crate::types::Type;
use crate::validators;
use crate::value::{EvalError, Value};

/// Expressions with more nodes than this may be nested deeply, so they are compiled and evaluated
/// on a thread with a larger stack.
const MANY_NODES: usize = 300;

/// The size of that stack, enough for the deepest expression that parses.
const DEEP_STACK: usize = 64 * 1024 * 1024;

/// The variables that expressions may use.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<Variable>,
    patch_types: bool,
}

impl Env {
    /// Creates an environment without variables. All of Kubernetes' functions are available.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push(Variable {
            name: name.into(),
            ty,
        });
        self
    }

    /// Declares the types of patches that mutating admission policies build: `JSONPatch`, `Object`
    /// and its fields such as `Object.spec`, and the function `jsonpatch.escapeKey`.
    ///
    /// ```
    /// use pintle_cel::Env;
    ///
    /// let program = Env::new().patch_types().compile("Object{spec: Object.spec{replicas: 3}}");
    /// let object = program.unwrap().eval(&[], 1_000).result.unwrap();
    /// assert_eq!(object.to_json().unwrap(), serde_json::json!({ "spec": { "replicas": 3 } }));
    /// ```
    #[must_use]
    pub fn patch_types(mut self) -> Self {
        self.patch_types = true;
        self
    }

    /// Parses and checks an expression.
    ///
    /// # Errors
    ///
    /// Fails with the expression's syntax errors, or else its type errors, or if a constant part of
    /// it cannot be evaluated.
    ///
    /// ```
    /// use pintle_cel::{Env, Type};
    ///
    /// let env = Env::new().variable("x", Type::Int);
    /// assert_eq!(env.compile("x + 1").unwrap().output_type().to_string(), "int");
    /// let error = env.compile("x + 'a'").unwrap_err();
    /// assert_eq!(error.issues()[0].column, 3);
    /// ```
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        // Short sources cannot be nested deeply.
        with_stack(source.len() > MANY_NODES, || self.compile_here(source))
            .unwrap_or_else(|| Err(no_thread(source)))
    }

    fn compile_here(&self, source: &str) -> Result<Program, CompileError> {
        let mut errors = Errors::default();
        let mut ast = parser::parse(source, &mut errors);
        if !errors.is_empty() {
            return Err(errors.finish(source));
        }
        let checked = checker::check(&mut ast, &self.variables, self.patch_types, &mut errors);
        if errors.is_empty() {
            validators::validate(&ast, &checked, &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors.finish(source));
        }
        let plan = eval::plan(&ast, &checked);
        let plan = plan.map_err(|error| CompileError::planning(error.to_string()))?;
        Ok(Program {
            inner: Arc::new(Inner { ast, checked, plan }),
        })
    }
}

fn no_thread(source: &str) -> CompileError {
    let mut errors = Errors::default();
    errors.report(None, "cannot spawn a thread to compile the expression");
    errors.finish(source)
}

/// Runs `f` here, or on a thread with a large stack. Returns `None` if the thread cannot be spawned
/// or panics.
fn with_stack<T: Send>(deep: bool, f: impl FnOnce() -> T + Send) -> Option<T> {
    if !deep {
        return Some(f());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("cel".into())
            .stack_size(DEEP_STACK);
        thread.spawn_scoped(scope, f).ok()?.join().ok()
    })
}

/// A compiled expression. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Program {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ast: Ast,
    checked: Checked,
    plan: Plan,
}

/// The outcome of an evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The value, or the error.
    pub result: Result<Value, EvalError>,
    /// The cost of the evaluation.
    pub cost: u64,
}

impl Program {
    fn is_deep(&self) -> bool {
        self.inner.ast.len() > MANY_NODES
    }

    /// Returns the type of the result.
    #[must_use]
    pub fn output_type(&self) -> &Type {
        self.inner.checked.type_of(self.inner.ast.root)
    }

    /// Returns true if the expression refers to a variable.
    #[must_use]
    pub fn uses(&self, variable: &str) -> bool {
        self.inner
            .checked
            .variables
            .iter()
            .any(|name| &**name == variable)
    }

    /// Estimates the cost of an evaluation. `sizes` bounds the variables that have a schema.
    ///
    /// ```
    /// use pintle_cel::{Decl, Env};
    ///
    /// let schema = serde_json::json!({
    ///     "type": "array", "maxItems": 10, "items": { "type": "integer" },
    /// });
    /// let decl = Decl::from_schema(&schema, false).unwrap();
    /// let program = Env::new().variable("self", decl.cel_type());
    /// let program = program.compile("self.all(x, x > 0)").unwrap();
    /// assert!(program.cost(Some(&decl)).max < 100);
    /// ```
    #[must_use]
    pub fn cost(&self, sizes: Option<&Decl>) -> Range {
        let inner = &self.inner;
        let estimate = || cost::estimate(&inner.ast, &inner.checked, sizes);
        with_stack(self.is_deep(), estimate).unwrap_or(cost::UNKNOWN)
    }

    /// Evaluates the expression with values for its variables, spending at most `limit`.
    ///
    /// ```
    /// use pintle_cel::{Env, EvalError, Type, Value};
    ///
    /// let program = Env::new().variable("x", Type::list(Type::Int)).compile("x.sum() > 3").unwrap();
    /// let x = Value::from_json(&serde_json::json!([1, 2, 3]));
    /// let done = program.eval(&[("x", x.clone())], 100);
    /// assert!(matches!(done.result, Ok(Value::Bool(true))));
    /// assert_eq!(program.eval(&[("x", x)], 1).result.unwrap_err(), EvalError::CostLimit);
    /// ```
    #[must_use]
    pub fn eval(&self, variables: &[(&str, Value)], limit: u64) -> Evaluation {
        let inner = &self.inner;
        let run = || eval::run(&inner.ast, &inner.plan, variables, limit);
        if let Some((result, cost)) = with_stack(self.is_deep(), run) {
            Evaluation { result, cost }
        } else {
            let why = "cannot spawn a thread to evaluate the expression".to_owned();
            Evaluation {
                result: Err(EvalError::Failed(why)),
                cost: 0,
            }
        }
    }
}
