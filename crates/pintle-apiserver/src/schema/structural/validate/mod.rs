//! Validation of values against a schema, with kube-apiserver's messages.
//!
//! The walk collects violations and counts what matched: if all alternatives of an `anyOf` or
//! `oneOf` fail, the one that matched most is reported.

mod clauses;

use serde_json::{Number, Value};

use super::formats;
use super::lists::{Old, OldItems};
use super::node::{Additional, Node};
use crate::schema::field::{FieldError, Path, float, quote};

/// The maximum number of violations reported for an object, so that a hostile body cannot cause a
/// response many times its size.
const MAX_VIOLATIONS: usize = 1_000;

/// The total size of messages, in bytes, beyond which no violation is added. A message about a long
/// enum lists all its values.
const MAX_TEXT: usize = 1 << 20;

/// The outcome of a check: violations, and the number of checks that passed.
#[derive(Default)]
struct Outcome {
    violations: Vec<Violation>,
    /// The size of their messages.
    text: usize,
    matched: usize,
}

/// A violation, with a path relative to the validated value.
struct Violation {
    name: String,
    kind: ViolationKind,
    message: String,
}

enum ViolationKind {
    Required,
    Enum {
        value: Value,
        allowed: Vec<String>,
    },
    TooLong(i64),
    TooMany {
        actual: i64,
        max: i64,
    },
    Type(Value),
    Invalid(Value),
    /// Reported without a field, as upstream: at the root of the validated value.
    Whole,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    fn merge(&mut self, other: Self) {
        self.matched += other.matched;
        for violation in other.violations {
            if !self.has_room() {
                return;
            }
            self.text += violation.message.len();
            self.violations.push(violation);
        }
    }

    /// Returns whether another violation would be reported.
    fn has_room(&self) -> bool {
        self.violations.len() < MAX_VIOLATIONS && self.text < MAX_TEXT
    }

    fn fail(&mut self, name: &str, kind: ViolationKind, message: String) {
        if self.has_room() {
            self.text += message.len();
            self.violations.push(Violation {
                name: name.to_owned(),
                kind,
                message,
            });
        }
    }
}

/// Validates `value`, located at `at`, against `schema`. Violations in parts that are equal in
/// `old` are tolerated, so that a schema that became stricter does not block other changes
/// (ratcheting).
pub(super) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Node,
    at: &Path<'_>,
) -> Vec<FieldError> {
    let old = old.map(|value| Old { value, schema });
    let outcome = ratchet(value, old, schema, "");
    let mut seen = std::collections::BTreeSet::new();
    let distinct = outcome
        .violations
        .into_iter()
        .filter(|violation| seen.insert(violation.message.clone()));
    distinct.map(|violation| violation.at(at)).collect()
}

impl Violation {
    fn at(self, base: &Path<'_>) -> FieldError {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let path = if name.is_empty() {
            base.to_string()
        } else {
            base.child(name).to_string()
        };
        match self.kind {
            ViolationKind::Required => FieldError::required(path, ""),
            ViolationKind::Enum { value, allowed } => {
                FieldError::not_supported(path, value, &allowed)
            }
            ViolationKind::TooLong(max) => FieldError::too_long(path, max),
            ViolationKind::TooMany { actual, max } => FieldError::too_many(path, actual, max),
            ViolationKind::Type(value) => FieldError::type_invalid(path, value, self.message),
            ViolationKind::Invalid(value) => FieldError::invalid(path, value, self.message),
            ViolationKind::Whole => FieldError::invalid(base, "", self.message),
        }
    }
}

fn ratchet(value: &Value, old: Option<Old<'_>>, schema: &Node, path: &str) -> Outcome {
    let mut outcome = check(value, old, schema, path);
    if !outcome.is_valid() && old.is_some_and(|old| old.equals(value)) {
        outcome.violations.clear();
    }
    outcome
}

fn check(value: &Value, old: Option<Old<'_>>, schema: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    check_type(value, schema, path, &mut outcome);
    if value.is_null() {
        check_enum(value, schema, path, &mut outcome);
        return outcome;
    }
    outcome.merge(clauses::check_all(value, old, schema, path));
    match value {
        Value::String(text) => {
            check_text(text, schema, path, &mut outcome);
            outcome.matched += 1;
        }
        Value::Number(number) => {
            check_number(number, schema, path, &mut outcome);
            outcome.matched += 2;
        }
        Value::Array(items) => outcome.merge(check_items(items, old, schema, path)),
        _ => {}
    }
    check_enum(value, schema, path, &mut outcome);
    if let Value::Object(map) = value {
        outcome.merge(check_fields(map, old, schema, path));
        outcome.matched += 1;
    }
    outcome.matched += 2;
    outcome
}

/// Returns the JSON type of a value, and its format.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(n) if n.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn check_type(value: &Value, schema: &Node, path: &str, outcome: &mut Outcome) {
    let both = ["integer", "string"];
    let one = [schema.type_name.as_str()];
    let types: &[&str] = match () {
        () if schema.int_or_string => &both,
        () if schema.type_name.is_empty() => &[],
        () => &one,
    };
    let format = formats::enforced(schema);
    if types.is_empty() && format.is_empty() {
        return;
    }
    let mut wrong = |wanted: &str, found: &str| {
        let message = format!("{path} in body must be of type {wanted}: {}", quote(found));
        outcome.fail(path, ViolationKind::Type(found.into()), message);
    };
    let has = |name: &str| types.contains(&name);
    if value.is_null() {
        if !types.is_empty() && !schema.nullable {
            wrong(&types.join(","), "null");
        } else {
            outcome.matched += 1;
        }
        return;
    }
    let (found, found_format) = type_of(value);
    let whole = value.as_f64().is_some_and(is_integer);
    let number = found == "integer" && has("number");
    let fits = has(found) || (found == "number" && whole && has("integer")) || number;
    let plain = matches!(value, Value::String(_) | Value::Array(_));
    if !plain && !format.is_empty() && !fits && found_format != format {
        wrong(format, found_format);
    } else if plain && !format.is_empty() && !has("number") && !has("integer") {
        // The format decides instead of the type.
        outcome.matched += 1;
    } else if fits {
        outcome.matched += 1;
    } else {
        wrong(&types.join(","), found);
    }
}

/// Returns true if a float is an integer, in the range in which floats represent integers exactly.
fn is_integer(n: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    n.is_finite() && n.abs() <= LARGEST && n.fract() == 0.0
}

fn check_enum(value: &Value, schema: &Node, path: &str, outcome: &mut Outcome) {
    if schema.allowed.is_empty()
        || schema
            .allowed
            .iter()
            .any(|allowed| is_allowed(allowed, value))
    {
        return;
    }
    let show = |allowed: &Value| match allowed {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let allowed: Vec<String> = schema.allowed.iter().map(show).collect();
    let message = format!("{path} in body should be one of [{}]", allowed.join(" "));
    outcome.fail(
        path,
        ViolationKind::Enum {
            value: value.clone(),
            allowed,
        },
        message,
    );
}

/// Returns true if a value equals an allowed one. Upstream first converts it to the type of the
/// allowed value, which truncates fractions.
fn is_allowed(allowed: &Value, value: &Value) -> bool {
    #[allow(clippy::float_cmp, reason = "upstream compares the same way")]
    let cut = || Some(value.as_f64()?.trunc() == allowed.as_f64()?);
    same(allowed, value) || (allowed.is_i64() && value.is_f64() && cut() == Some(true))
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn check_text(text: &str, schema: &Node, path: &str, outcome: &mut Outcome) {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let invalid = || ViolationKind::Invalid(text.into());
    if let Some(max) = schema.max_length.filter(|&max| length() > max) {
        let message = format!("{path} in body should be at most {max} chars long");
        outcome.fail(path, ViolationKind::TooLong(max), message);
    } else if let Some(min) = schema.min_length.filter(|&min| length() < min) {
        let message = format!("{path} in body should be at least {min} chars long");
        outcome.fail(path, invalid(), message);
    } else if let Some(pattern) = &schema.pattern {
        let invalid_pattern =
            |source: &str, why: &str| Some(format!("{source}, but pattern is invalid: {why}"));
        let wanted = match pattern {
            Ok(pattern) => match pattern.is_match(text) {
                Ok(true) => None,
                Ok(false) => Some(pattern.as_str().to_owned()),
                Err(why) => invalid_pattern(pattern.as_str(), &why),
            },
            Err((source, why)) => invalid_pattern(source, why),
        };
        if let Some(wanted) = wanted {
            let message = format!("{path} in body should match '{wanted}'");
            outcome.fail(path, invalid(), message);
        }
    }
    let format = formats::enforced(schema);
    if !formats::matches(format, text) {
        let message = format!("{path} in body must be of type {format}: {}", quote(text));
        outcome.fail(path, ViolationKind::Type(text.into()), message);
    }
}

fn check_number(number: &Number, schema: &Node, path: &str, outcome: &mut Outcome) {
    let value = Value::Number(number.clone());
    let n = number.as_f64().unwrap_or_default();
    let whole = number.as_i64();
    if let Some(message) = out_of_range(number, schema, path) {
        outcome.fail(path, ViolationKind::Whole, message);
    }
    // Bounds of integers are truncated to integers, as upstream does.
    #[allow(clippy::cast_possible_truncation)]
    let bound = |limit: f64| whole.map(|_| limit as i64);
    let shown = |limit: f64| bound(limit).map_or_else(|| float(limit), |limit| limit.to_string());
    let mut fail = |message: String| {
        outcome.fail(path, ViolationKind::Invalid(value.clone()), message);
    };
    if let Some(factor) = schema.multiple_of {
        if factor <= 0.0 {
            let shown = shown(factor);
            fail(format!(
                "factor MultipleOf declared for {path} must be positive: {shown}"
            ));
        } else if !is_multiple(n, whole, factor) {
            fail(format!(
                "{path} in body should be a multiple of {}",
                shown(factor)
            ));
        }
    }
    if let Some(min) = schema.minimum {
        let order = compare(n, whole, min, bound(min));
        if order.is_lt() || (schema.exclusive_minimum && order.is_eq()) {
            let than = if schema.exclusive_minimum {
                ""
            } else {
                " or equal to"
            };
            let than = if than.is_empty() {
                "than".to_owned()
            } else {
                format!("than{than}")
            };
            fail(format!(
                "{path} in body should be greater {than} {}",
                shown(min)
            ));
        }
    }
    if let Some(max) = schema.maximum {
        let order = compare(n, whole, max, bound(max));
        if order.is_gt() || (schema.exclusive_maximum && order.is_eq()) {
            let than = if schema.exclusive_maximum {
                "than"
            } else {
                "than or equal to"
            };
            fail(format!(
                "{path} in body should be less {than} {}",
                shown(max)
            ));
        }
    }
}

fn compare(n: f64, whole: Option<i64>, limit: f64, bound: Option<i64>) -> std::cmp::Ordering {
    match (whole, bound) {
        (Some(n), Some(bound)) => n.cmp(&bound),
        _ => n.partial_cmp(&limit).unwrap_or(std::cmp::Ordering::Equal),
    }
}

fn is_multiple(n: f64, whole: Option<i64>, factor: f64) -> bool {
    #[allow(clippy::cast_possible_truncation)]
    if let Some(n) = whole {
        let factor = factor as i64;
        return factor != 0 && n.checked_rem(factor) == Some(0);
    }
    let times = if factor < 1.0 {
        1.0 / factor * n
    } else {
        n / factor
    };
    is_integer(times)
}

/// Returns a number as an integer, even if it is written with a zero fraction or an exponent.
fn whole(number: &Number) -> Option<i64> {
    // The bounds are exact: 2^63 is the first float that does not fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation)]
    number.as_i64().or_else(|| {
        let n = number.as_f64()?;
        (n.fract() == 0.0 && (-LIMIT..LIMIT).contains(&n)).then_some(n as i64)
    })
}

fn out_of_range(number: &Number, schema: &Node, path: &str) -> Option<String> {
    if schema.int_or_string {
        return None;
    }
    let format = formats::enforced(schema);
    let fits = match (schema.type_name.as_str(), format) {
        ("integer", "int32") => whole(number).is_some_and(|n| i32::try_from(n).is_ok()),
        ("integer", _) => whole(number).is_some(),
        // A number that rounds to the largest float fits.
        #[allow(clippy::cast_possible_truncation)]
        ("number", "float") => number.as_f64().is_some_and(|n| (n as f32).is_finite()),
        _ => true,
    };
    let kind = match format {
        "" => format!("{} (default format)", schema.type_name),
        format => format!("{} with format {format}", schema.type_name),
    };
    (!fits).then(|| format!("Checked value must be of type {kind} in {path}"))
}

fn check_items(items: &[Value], old: Option<Old<'_>>, schema: &Node, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(below) = schema.items.as_deref() {
        let old = OldItems::of(old);
        for (i, item) in items.iter().enumerate() {
            let path = format!("{path}[{i}]");
            outcome.merge(match old.of_item(item) {
                Some(before) => ratchet(item, Some(before), below, &path),
                None => check(item, None, below, &path),
            });
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = schema.min_items.filter(|&min| size < min) {
        let message = format!("{path} in body should have at least {min} items");
        outcome.fail(path, ViolationKind::Invalid(size.into()), message);
    }
    if let Some(max) = schema.max_items.filter(|&max| size > max) {
        let message = format!("{path} in body should have at most {max} items");
        outcome.fail(path, ViolationKind::TooMany { actual: size, max }, message);
    }
    outcome.matched += 2;
    outcome
}

fn check_fields(
    map: &serde_json::Map<String, Value>,
    old: Option<Old<'_>>,
    schema: &Node,
    path: &str,
) -> Outcome {
    let mut outcome = Outcome::default();
    let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
    if let Some(min) = schema.min_properties.filter(|&min| size < min) {
        let message = format!("{path} in body should have at least {min} properties");
        outcome.fail(path, ViolationKind::Invalid(size.into()), message);
    }
    if let Some(max) = schema.max_properties.filter(|&max| size > max) {
        let message = format!("{path} in body should have at most {max} properties");
        outcome.fail(path, ViolationKind::TooMany { actual: size, max }, message);
    }
    for (name, value) in map {
        let declared = schema.properties.get(name);
        let (below, at) = match (declared, &schema.additional) {
            (Some(below), _) if path.is_empty() => (below, name.clone()),
            (Some(below), _) => (below, format!("{path}.{name}")),
            (None, Some(Additional::Schema(below))) => (&**below, format!("{path}.{name}")),
            (None, Some(Additional::Bool(false))) => {
                let message = format!("{path}.{name} in body is a forbidden property");
                outcome.fail(path, ViolationKind::Invalid(name.as_str().into()), message);
                continue;
            }
            (None, _) => continue,
        };
        // The object's own type is not subject to ratcheting.
        let type_meta = path.is_empty() && (name == "kind" || name == "apiVersion");
        let before = old.and_then(|old| old.field(name)).filter(|_| !type_meta);
        outcome.merge(match before {
            Some(before) => ratchet(value, Some(before), below, &at),
            None => check(value, None, below, &at),
        });
    }
    for name in &schema.required {
        if !map.contains_key(name) {
            let at = format!("{path}.{name}");
            let message = format!("{at} in body is required");
            outcome.fail(&at, ViolationKind::Required, message);
        }
    }
    outcome
}
