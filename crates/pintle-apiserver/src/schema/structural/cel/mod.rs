//! CEL rules: `x-kubernetes-validations`.
//!
//! Rules are compiled once, when the schema is parsed, against the types that the schema declares.
//! [`check`] reports rules that do not compile or may cost too much, when the CRD is written.
//! [`validate`] evaluates each rule against the old and new value at its path, under a budget for
//! each rule and for the whole object.

mod estimate;
mod field_path;
#[cfg(test)]
mod tests;

use std::{cell::OnceCell, sync::Arc};

use pintle_cel::{Decl, Decls, Env, EvalError, Program, Type, Value as Cel};
use serde_json::{Map, Value};

pub(super) use self::{
    estimate::{Costs, Place, check},
    field_path::normalize,
};
use super::{
    Findings,
    lists::{Old, OldItems},
    node::Node,
};
use crate::schema::field::{FieldError, Path, Reason};

/// The maximum cost of one evaluation of a rule.
const PER_CALL_LIMIT: u64 = 1_000_000;

/// The maximum cost of all rules of an object together.
pub(super) const OBJECT_BUDGET: u64 = 10_000_000;

/// The longest message that an expression may compute, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// The compiled rules of one schema.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// The declared type of values. `None` if it has no CEL equivalent.
    decl: Option<Arc<Decl>>,
}

/// One rule.
#[derive(Debug, Clone)]
struct Rule {
    /// The rule as written.
    source: Value,
    /// `None` if the rule is empty.
    program: Option<Result<Program, String>>,
    message: Option<Result<Program, String>>,
    /// The path that `fieldPath` names.
    field_path: Option<String>,
    uses_old: bool,
}

impl Rules {
    /// Compiles the rules of a schema. Returns `None` if it has none.
    pub(super) fn of<'a>(
        schema: &'a Map<String, Value>,
        node: &Node,
        root: bool,
        decls: &mut Decls<'a>,
    ) -> Option<Self> {
        let rules = schema.get("x-kubernetes-validations")?.as_array()?;
        if rules.is_empty() {
            return None;
        }
        let decl = decls.of(schema, root || node.embedded);
        let compiled = rules
            .iter()
            .map(|rule| Rule::compile(rule, decl.as_ref(), node));
        let rules = compiled.collect();
        Some(Self { rules, decl })
    }
}

impl Rule {
    fn compile(source: &Value, decl: Option<&Arc<Decl>>, node: &Node) -> Self {
        let mut rule = Self {
            source: source.clone(),
            program: None,
            message: None,
            field_path: None,
            uses_old: false,
        };
        let path = rule.text("fieldPath");
        if !path.is_empty() {
            rule.field_path = normalize(path, node).ok().map(|(path, _)| path);
        }
        if rule.text("rule").trim().is_empty() {
            return rule;
        }
        let Some(decl) = decl else {
            let why = "unable to convert structural schema to CEL declarations";
            rule.program = Some(Err(why.to_owned()));
            return rule;
        };
        let own = decl.cel_type();
        let old = if rule.optional_old() {
            Type::optional(own.clone())
        } else {
            own.clone()
        };
        let env = Env::new().variable("self", own).variable("oldSelf", old);
        let program = match env.compile(rule.text("rule")) {
            Err(error) if error.is_planning() => {
                Err(format!("program instantiation failed: {error}"))
            }
            Err(error) => Err(format!("compilation failed: {error}")),
            Ok(program) if !matches!(program.output_type(), Type::Bool) => {
                Err("cel expression must evaluate to a bool".to_owned())
            }
            Ok(program) => Ok(program),
        };
        rule.uses_old = program
            .as_ref()
            .is_ok_and(|program| program.uses("oldSelf"));
        let computed = rule.text("messageExpression");
        if program.is_ok() && !computed.is_empty() {
            rule.message = Some(match env.compile(computed) {
                Err(error) if error.is_planning() => {
                    Err(format!("messageExpression instantiation failed: {error}"))
                }
                Err(error) => Err(format!("messageExpression compilation failed: {error}")),
                Ok(program) if !matches!(program.output_type(), Type::String) => {
                    Err("messageExpression must evaluate to a string".to_owned())
                }
                Ok(program) => Ok(program),
            });
        }
        rule.program = Some(program);
        rule
    }

    fn text(&self, name: &str) -> &str {
        self.source[name].as_str().unwrap_or_default()
    }

    fn optional_old(&self) -> bool {
        self.source["optionalOldSelf"].as_bool().unwrap_or_default()
    }

    /// Returns the name of the rule in messages: its message, or its expression.
    fn name(&self) -> &str {
        match self.text("message") {
            "" => self.text("rule").trim(),
            message => message.trim(),
        }
    }

    /// Returns the path at which errors of the rule are reported.
    fn place(&self, at: &Path<'_>) -> String {
        match &self.field_path {
            Some(path) => at.child(path).to_string(),
            None => at.to_string(),
        }
    }

    /// Returns the message of a rule that is not satisfied.
    fn failure(&self) -> String {
        match self.text("message") {
            "" => format!("failed rule: {}", self.name()),
            message => message.trim().to_owned(),
        }
    }
}

/// The old and new form of a value. They are compared at most once, when a rule is violated.
struct Pair<'a> {
    old: Old<'a>,
    new: &'a Value,
    equal: OnceCell<bool>,
}

impl<'a> Pair<'a> {
    fn of(old: Old<'a>, new: &'a Value) -> Self {
        Self {
            old,
            new,
            equal: OnceCell::new(),
        }
    }

    fn is_unchanged(&self) -> bool {
        *self.equal.get_or_init(|| self.old.equals(self.new))
    }
}

/// Decides whether errors in a value are tolerated because it did not change. If a value has no old
/// form, its nearest ancestor with one decides.
#[derive(Clone, Copy, Default)]
struct Correlation<'p, 'a> {
    current: Option<&'p Pair<'a>>,
    parent: Option<&'p Pair<'a>>,
}

impl<'p, 'a> Correlation<'p, 'a> {
    fn tolerates(&self) -> bool {
        self.current.or(self.parent).is_some_and(Pair::is_unchanged)
    }

    /// Returns the old form of a field, and whether errors in the field can be tolerated.
    fn field(&self, name: &str) -> (Option<Old<'a>>, bool) {
        // The type of an object is the same in both forms, so an unchanged type is no reason to
        // tolerate an error.
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return (None, false);
        }
        (self.current.and_then(|pair| pair.old.field(name)), true)
    }

    /// Returns the correlation of a value below this one.
    fn below<'q>(&self, pair: Option<&'q Pair<'a>>) -> Correlation<'q, 'a>
    where
        'p: 'q,
    {
        match self.current {
            None => Correlation {
                current: None,
                parent: self.parent,
            },
            Some(current) => Correlation {
                current: pair,
                parent: Some(current),
            },
        }
    }
}

/// Evaluates all rules. If a value is unchanged, violations of rules without `oldSelf` are only
/// warnings.
pub(super) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Node,
    at: &Path<'_>,
) -> Findings {
    let mut left = OBJECT_BUDGET;
    validate_within(value, old, schema, at, &mut left)
}

/// Like [`validate`], but spends what is left of a budget.
pub(super) fn validate_within(
    value: &Value,
    old: Option<&Value>,
    schema: &Node,
    at: &Path<'_>,
    left: &mut u64,
) -> Findings {
    let mut evaluation = Evaluation {
        left: *left,
        found: Findings::default(),
    };
    let pair = old.map(|old| Pair::of(Old { value: old, schema }, value));
    let correlation = Correlation {
        current: pair.as_ref(),
        parent: None,
    };
    // Running out of budget is reported where it happens, and ends the walk.
    let walked = evaluation.walk(value, old, schema, at, correlation);
    *left = walked.map_or(0, |()| evaluation.left);
    evaluation.found
}

/// Ends the evaluation, because a cost limit was exceeded.
struct Exhausted;

struct Evaluation {
    left: u64,
    found: Findings,
}

impl Evaluation {
    fn walk<'a>(
        &mut self,
        value: &'a Value,
        old: Option<&'a Value>,
        schema: &'a Node,
        at: &Path<'_>,
        correlation: Correlation<'_, 'a>,
    ) -> Result<(), Exhausted> {
        if value.is_null() || !schema.has_rules {
            return Ok(());
        }
        if let Some(rules) = &schema.compiled {
            self.rules(rules, value, old, schema, at, correlation)?;
        }
        match value {
            Value::Object(map) => {
                let old = old.and_then(Value::as_object);
                for (name, value) in map {
                    let before = old.and_then(|old| old.get(name));
                    let (known, tolerable) = correlation.field(name);
                    let pair = known.map(|known| Pair::of(known, value));
                    let correlation = if tolerable {
                        correlation.below(pair.as_ref())
                    } else {
                        Correlation::default()
                    };
                    if let Some(below) = schema.properties.get(name) {
                        self.walk(value, before, below, &at.child(name), correlation)?;
                    } else if let Some(below) = schema.additional_schema() {
                        self.walk(value, before, below, &at.key(name), correlation)?;
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = schema.items.as_deref() else {
                    return Ok(());
                };
                let before = OldItems::of(old.map(|value| Old { value, schema }));
                for (i, item) in items.iter().enumerate() {
                    let known = before.of_item(item);
                    let pair = known.map(|known| Pair::of(known, item));
                    let correlation = correlation.below(pair.as_ref());
                    let old = known.map(|known| known.value);
                    self.walk(item, old, below, &at.index(i), correlation)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        rules: &Rules,
        value: &Value,
        old: Option<&Value>,
        schema: &Node,
        at: &Path<'_>,
        correlation: Correlation<'_, '_>,
    ) -> Result<(), Exhausted> {
        let Some(decl) = &rules.decl else {
            return Ok(());
        };
        let refuse = |why: String| FieldError::invalid(at, schema.type_name.as_str(), why);
        if self.left == 0 {
            self.found.errors.push(refuse(out_of_budget()));
            return Err(Exhausted);
        }
        let own = Cel::declared(value, decl);
        let before = old
            .filter(|old| !old.is_null())
            .map(|old| Cel::declared(old, decl));
        for rule in &rules.rules {
            let program = match &rule.program {
                None => continue,
                Some(Err(why)) => {
                    self.found
                        .errors
                        .push(refuse(format!("rule compile error: {why}")));
                    continue;
                }
                Some(Ok(program)) => program,
            };
            // Transition rules need an old value unless they set `optionalOldSelf`.
            if rule.uses_old && before.is_none() && !rule.optional_old() {
                continue;
            }
            let mut plain = vec![("self", own.clone())];
            plain.extend(before.clone().map(|before| ("oldSelf", before)));
            let done = if rule.optional_old() {
                let before = Cel::Optional(before.clone().map(Arc::new));
                let variables = [("self", own.clone()), ("oldSelf", before)];
                program.eval(&variables, PER_CALL_LIMIT)
            } else {
                program.eval(&plain, PER_CALL_LIMIT)
            };
            if done.cost > self.left {
                self.found.errors.push(refuse(out_of_budget()));
                return Err(Exhausted);
            }
            self.left -= done.cost;
            let name = rule.name();
            match done.result {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    // As upstream, messages see the old value itself, even if it is optional in
                    // the rule.
                    let detail = self.message(rule, &plain);
                    let (error, goes_on) = match detail {
                        Ok(detail) => (failed(rule, value, schema, at, detail), true),
                        Err(why) => {
                            let kind = schema.type_name.as_str();
                            (FieldError::invalid(rule.place(at), kind, why), false)
                        }
                    };
                    if !rule.uses_old && correlation.tolerates() {
                        self.found.warnings.push(error.to_string());
                    } else {
                        self.found.errors.push(error);
                    }
                    if !goes_on {
                        return Err(Exhausted);
                    }
                }
                Err(error @ EvalError::CostLimit) => {
                    self.found.errors.push(refuse(format!(
                        "'{error}': no further validation rules will be run due to call cost \
                         exceeds limit for rule: {name}"
                    )));
                    return Err(Exhausted);
                }
                Err(error) => {
                    let error = error.to_string();
                    self.found
                        .errors
                        .push(refuse(if error.starts_with("no such overload") {
                            format!(
                                "'{error}': call arguments did not match a supported operator, \
                             function or macro signature for rule: {name}"
                            )
                        } else {
                            format!("{error} evaluating rule: {name}")
                        }));
                }
            }
        }
        Ok(())
    }

    /// Computes the message of a failed rule. An expression that fails falls back to the static
    /// message; one that exceeds a cost limit is an error.
    fn message(&mut self, rule: &Rule, variables: &[(&str, Cel)]) -> Result<String, String> {
        let Some(Ok(program)) = &rule.message else {
            return Ok(rule.failure());
        };
        let done = program.eval(variables, PER_CALL_LIMIT);
        if done.cost > self.left {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no \
                        further validation rules will be run"
                    .to_owned(),
            );
        }
        match done.result {
            Err(EvalError::CostLimit) => {
                let source = crate::schema::field::quote(rule.text("messageExpression"));
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {source}"
                ))
            }
            Ok(Cel::String(text)) => {
                self.left -= done.cost;
                let text = text.trim();
                let usable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                Ok(if usable {
                    text.to_owned()
                } else {
                    rule.failure()
                })
            }
            _ => {
                self.left -= done.cost;
                Ok(rule.failure())
            }
        }
    }
}

fn out_of_budget() -> String {
    "validation failed due to running out of cost budget, no further validation rules will be run"
        .to_owned()
}

/// Returns the error of a rule that is not satisfied, with the reason and path that the rule names.
fn failed(rule: &Rule, value: &Value, schema: &Node, at: &Path<'_>, detail: String) -> FieldError {
    let field = rule.place(at);
    let scalar = !matches!(schema.type_name.as_str(), "object" | "array");
    let (reason, detail) = match rule.text("reason") {
        "FieldValueForbidden" => (Reason::Forbidden, detail),
        "FieldValueRequired" => (Reason::Required, detail),
        // Kubernetes reports a duplicate by its value alone.
        "FieldValueDuplicate" => (Reason::Duplicate, String::new()),
        _ => (Reason::Invalid, detail),
    };
    FieldError {
        reason,
        field,
        value: scalar.then(|| value.clone()),
        detail,
    }
}
