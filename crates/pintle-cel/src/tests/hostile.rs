//! Input that tries to exhaust the stack, memory or time.

use proptest::prelude::*;

use super::eval;
use crate::{Env, EvalError, Type, Value};

fn error(source: &str) -> String {
    Env::new()
        .variable("x", Type::Int)
        .compile(source)
        .unwrap_err()
        .to_string()
}

/// Proves errors/depth.
#[test]
fn deep_and_long_expressions_are_rejected() {
    let sum = format!("1{} == 0", "+1".repeat(20_000));
    let nested = format!("{}1{} == 1", "(".repeat(20_000), ")".repeat(20_000));
    let lists = format!("{}{} == []", "[".repeat(20_000), "]".repeat(20_000));
    let members = format!("x{} == 1", ".a".repeat(20_000));
    let ternaries = format!("{}true", "true ? true : ".repeat(5_000));
    let macros = format!("{}true{}", "[1].all(x, ".repeat(5_000), ")".repeat(5_000));
    for source in [&sum, &nested, &lists, &members, &ternaries, &macros] {
        let message = error(source);
        assert!(
            message.starts_with("ERROR: <input>:-1:0: expression recursion limit exceeded: 250"),
            "{}: {message}",
            &source[..20],
        );
    }
    let long = format!("'{}' == ''", "a".repeat(100_000));
    assert!(error(&long).contains("expression code point size exceeds limit: size: 100008"));
    // Unary operators and logical chains do not nest.
    let negations = format!("{}true", "!".repeat(20_000));
    assert!(matches!(eval(&negations).result, Ok(Value::Bool(true))));
    let chain = format!("true{}", " && true".repeat(10_000));
    assert!(matches!(eval(&chain).result, Ok(Value::Bool(true))));
}

#[test]
fn the_deepest_allowed_expressions_run() {
    let nested = format!("{}1{} == 1", "(".repeat(240), ")".repeat(240));
    assert!(matches!(eval(&nested).result, Ok(Value::Bool(true))));
    let macros = format!("{}true{}", "[1].all(x, ".repeat(120), ")".repeat(120));
    assert!(matches!(eval(&macros).result, Ok(Value::Bool(true))));
    let nested = "optional.of([1])".to_owned() + &".optMap(x, [x])".repeat(10);
    assert!(eval(&format!("{nested}.hasValue()")).result.is_ok());
}

/// Proves cel/budget.
///
/// As in cel-go, a step that appends nothing can be free.
#[test]
fn loops_of_free_steps_run_out_of_budget() {
    let list = serde_json::json!({ "l": vec![0; 5_000] });
    let list = Value::from_json(&list);
    let env = Env::new().variable("self", Type::Dyn);
    let source = "self.l.filter(x, self.l.filter(y, false).size() == 0).size() == 1";
    let program = env.compile(source).unwrap();
    let done = program.eval(&[("self", list)], 1_000_000);
    assert_eq!(done.result.unwrap_err(), EvalError::CostLimit);
}

/// Proves cel/budget.
#[test]
fn expressions_that_grow_run_out_of_budget() {
    let numbers = "[1,2,3,4,5,6,7,8,9,10]";
    let mut loops = "true".to_owned();
    for i in 0..9 {
        loops = format!("{numbers}.all(x{i}, {loops})");
    }
    assert_eq!(eval(&loops).result.unwrap_err(), EvalError::CostLimit);
    for source in [
        "lists.range(9000000000000).size() > 0",
        "lists.range(100000).map(x, lists.range(100000)).size() > 0",
        "lists.range(300000).distinct().size() > 0",
    ] {
        assert_eq!(
            eval(source).result.unwrap_err(),
            EvalError::CostLimit,
            "{source}"
        );
    }
    // Concatenating a list with itself is cheap by cost, but not in memory.
    let mut doubled = "optional.of([1, 2, 3, 4])".to_owned();
    for i in 0..12 {
        doubled = format!("{doubled}.optMap(x{i}, x{i} + x{i} + x{i} + x{i})");
    }
    assert!(
        Env::new()
            .compile(&format!("{doubled}.hasValue()"))
            .is_ok_and(|program| { program.eval(&[], 1_000_000).result.is_err() })
    );
    let mut replaced = "'aaaaaaaaaaaaaaaa'".to_owned();
    for _ in 0..12 {
        replaced = format!("{replaced}.replace('a', 'aaaaaaaaaaaaaaaa')");
    }
    assert!(eval(&format!("{replaced}.size() > 0")).result.is_err());
}

#[test]
fn cheap_calls_cannot_copy_large_values_without_limit() {
    let text: Value = "a".repeat(1 << 20).as_str().into();
    let items = Value::list(vec![Value::Int(1); 30_000]);
    for source in [
        "lists.range(10000).map(i, bytes(text)).size() > 0",
        "lists.range(10000).map(i, jsonpatch.escapeKey(text)).size() > 0",
        "[url('http://a/?' + text)].all(u, lists.range(10000).map(i, u.getQuery()).size() > 0)",
        "lists.range(10000).map(i, items.flatten(0)).size() > 0",
    ] {
        let env = Env::new()
            .variable("text", Type::Dyn)
            .variable("items", Type::list(Type::Dyn))
            .patch_types();
        let program = env.compile(source).unwrap();
        let values = [("text", text.clone()), ("items", items.clone())];
        let error = program.eval(&values, 1_000_000).result.unwrap_err();
        assert_eq!(error, EvalError::CostLimit, "{source}");
    }
}

#[test]
fn long_quantities_are_shared_and_cost_their_length() {
    let text = Value::from("9".repeat(1_000_000));
    let run = |source: &str| {
        let source = format!("[quantity(text)].all(q, {source})");
        let program = Env::new()
            .variable("text", Type::String)
            .compile(&source)
            .unwrap();
        program.eval(&[("text", text.clone())], 1_000_000).result
    };
    // Ten gigabytes, if each item had its own digits.
    assert!(run("lists.range(10000).map(i, q).size() > 0").is_ok());
    for source in [
        "lists.range(300).all(i, lists.range(300).all(j, !q.isLessThan(q)))",
        "lists.range(300).all(i, lists.range(300).all(j, q == q))",
        "lists.range(10000).exists(i, q.asApproximateFloat() < 0.0)",
        "lists.range(10000).exists(i, q.add(1).isLessThan(q))",
    ] {
        assert_eq!(run(source).unwrap_err(), EvalError::CostLimit, "{source}");
    }
}

#[test]
fn copying_macros_cannot_grow_exponentially() {
    let mut chain = "optional.of(1)".to_owned();
    for i in 0..60 {
        chain = format!("{chain}.optMap(x{i}, x{i} + 1)");
    }
    assert!(error(&format!("{chain}.hasValue()")).contains("expression is too large"));
}

#[test]
fn types_cannot_grow_exponentially() {
    let mut literals = "[1]".to_owned();
    let mut accumulated = "[1]".to_owned();
    for i in 0..40 {
        literals = format!("{literals}.map(x{i}, {{x{i}: x{i}}})");
        accumulated = format!("[{accumulated}.transformMapEntry(i{i}, x{i}, {{x{i}: x{i}}})]");
    }
    for source in [literals, accumulated] {
        let message = error(&format!("{source}.size() > 0"));
        assert!(
            message.contains("types of the expression are too large"),
            "{message}"
        );
    }
    // Realistic expressions are far from the limit.
    let nested = (0..5).fold("1".to_owned(), |inner, i| format!("[{{'k{i}': {inner}}}]"));
    assert!(Env::new().compile(&format!("{nested} == {nested}")).is_ok());
}

#[test]
fn shared_parts_are_not_written_out_without_limit() {
    let text: Value = "a".repeat(1 << 20).as_str().into();
    let env = Env::new().variable("text", Type::String);
    let mut doubled = "[text]".to_owned();
    for i in 0..20 {
        doubled = format!("{doubled}.map(x{i}, [dyn(x{i}), dyn(x{i})])");
    }
    let run = |source: &str| {
        let program = env.compile(source).unwrap();
        program.eval(&[("text", text.clone())], 1_000_000).result
    };
    assert!(run(&format!("'%s'.format([{doubled}]).size() > 0")).is_err());
    assert!(run("'%s'.format([lists.range(10000).map(i, text)]).size() > 0").is_err());
    // An ignored failure still counts towards the cost.
    let again = "lists.range(1000).exists(i, '%s'.format([lists.range(1000).map(j, text)]) == '')";
    assert_eq!(run(again).unwrap_err(), EvalError::CostLimit);
    for source in ["lists.range(10000).map(i, text)", &doubled] {
        let value = run(source).unwrap();
        assert!(
            value.to_json().unwrap_err().contains("value exceeds"),
            "{source}"
        );
    }
}

#[test]
fn large_patterns_are_rejected() {
    assert!(error("'a'.matches('((a{1000}){1000}){1000}')").contains("invalid matches argument"));
    let dynamic = "'a'.matches('(' + 'a{1000}' + '){1000}{1000}')";
    assert!(
        eval(dynamic)
            .result
            .unwrap_err()
            .to_string()
            .starts_with("error parsing regexp")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_source_compiles_or_fails(source in "[-a-z0-9.+*/%<>=!&|?:,()\\[\\]{}'\" \\\\]{0,60}") {
        let _ = Env::new().variable("x", Type::Dyn).compile(&source).map(|program| {
            program.eval(&[("x", Value::Int(1))], 1_000)
        });
    }

    #[test]
    fn any_tokens_compile_or_fail(tokens in prop::collection::vec(prop::sample::select(vec![
        "x", "1", "'a'", "+", "-", "(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "a", "all",
        "map", "has", "in", "&&", "!", "optMap", "true", "==", "[?", ".?", "size", "1.5", "2u",
    ]), 0..30)) {
        let source = tokens.concat();
        let _ = Env::new().variable("x", Type::Dyn).compile(&source).map(|program| {
            program.eval(&[("x", Value::Int(1))], 1_000)
        });
    }
}
