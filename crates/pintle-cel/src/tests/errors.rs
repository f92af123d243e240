//! The messages of expressions that do not compile.

use crate::{Env, Type};

fn error(source: &str) -> String {
    let env = Env::new()
        .variable("x", Type::Int)
        .variable("s", Type::String);
    env.compile(source).expect_err(source).to_string()
}

#[test]
fn type_errors_show_the_position_and_a_caret() {
    assert_eq!(
        error("x + s"),
        "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n \
         | x + s\n | ..^"
    );
    assert_eq!(
        error("true &&\n nope"),
        "ERROR: <input>:2:2: undeclared reference to 'nope' (in container '')\n |  nope\n | .^"
    );
    assert_eq!(
        error("s.nope() == x.y"),
        "ERROR: <input>:1:7: undeclared reference to 'nope' (in container '')\n \
         | s.nope() == x.y\n | ......^\n\
         ERROR: <input>:1:14: type 'int' does not support field selection\n \
         | s.nope() == x.y\n | .............^"
    );
}

#[test]
fn type_errors_name_the_types() {
    for (source, wanted) in [
        ("s && true", "expected type 'bool' but found 'string'"),
        ("[1, 'a'] == [1]", "expected type 'int' but found 'string'"),
        (
            "{'a': 1, 'b': 'c'}.a == 1",
            "expected type 'int' but found 'string'",
        ),
        (
            "x.all(y, true)",
            "expression of type 'int' cannot be range of a comprehension",
        ),
        (
            "s.contains(1)",
            "found no matching overload for 'contains' applied to 'string.(int)'",
        ),
        (
            "size()",
            "found no matching overload for 'size' applied to '()'",
        ),
        ("math.greatest(1, 2) == 2", "undeclared reference to 'math'"),
        ("'a'.matches('(')", "invalid matches argument"),
        (
            "duration('x') == duration('1s')",
            "invalid duration argument",
        ),
        (
            "timestamp('x') == timestamp(0)",
            "invalid timestamp argument",
        ),
        (
            "timestamp(-62135596801) == timestamp(0)",
            "<input>:1:11: invalid timestamp argument",
        ),
        (
            "'%d'.format(['a']) == ''",
            "decimal clause can only be used on integers",
        ),
        (
            "url('x').nope == 1",
            "unexpected failed resolution of 'kubernetes.URL'",
        ),
        ("Foo{a: 1} == x", "undeclared reference to 'Foo'"),
        ("has(x)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("[1].map(x + 1, x) == [1]", "argument is not an identifier"),
        ("import", "reserved identifier: import"),
    ] {
        let message = error(source);
        assert!(message.contains(wanted), "{source}: {message}");
    }
}

#[test]
fn syntax_errors_use_antlr_wording() {
    const PRIMARY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
                           NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    for (source, wanted) in [
        (
            "a | b",
            vec![
                "1:3: Syntax error: token recognition error at: '| '".to_owned(),
                "1:5: Syntax error: extraneous input 'b' expecting <EOF>".to_owned(),
            ],
        ),
        (
            "*@a | b",
            vec![
                format!("1:1: Syntax error: extraneous input '*' expecting {PRIMARY}"),
                "1:2: Syntax error: token recognition error at: '@'".to_owned(),
                "1:5: Syntax error: token recognition error at: '| '".to_owned(),
                "1:7: Syntax error: extraneous input 'b' expecting <EOF>".to_owned(),
            ],
        ),
        (
            "1 + $",
            vec![
                "1:5: Syntax error: token recognition error at: '$'".to_owned(),
                format!("1:6: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
        (
            "1 + +",
            vec![
                format!("1:5: Syntax error: mismatched input '+' expecting {PRIMARY}"),
                format!("1:6: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
        (
            "1 + 2\n3 +",
            vec!["2:1: Syntax error: mismatched input '3' expecting <EOF>".to_owned()],
        ),
        (
            "in",
            vec![
                format!("1:1: Syntax error: mismatched input 'in' expecting {PRIMARY}"),
                format!("1:3: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
        (
            "?",
            vec![
                format!("1:1: Syntax error: mismatched input '?' expecting {PRIMARY}"),
                format!("1:2: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
        (
            "--",
            vec![
                "1:3: Syntax error: no viable alternative at input '-'".to_owned(),
                format!("1:3: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
        (
            "{a}",
            vec!["1:3: Syntax error: mismatched input '}' expecting ':'".to_owned()],
        ),
        (
            "self.true == 1",
            vec!["1:6: Syntax error: mismatched input 'true' expecting IDENTIFIER".to_owned()],
        ),
        (
            "{\"a\": 1}.\"a\"",
            vec!["1:10: Syntax error: no viable alternative at input '.\"a\"'".to_owned()],
        ),
        (
            "TestAllTypes(){}",
            vec!["1:15: Syntax error: mismatched input '{' expecting <EOF>".to_owned()],
        ),
        (
            "'a",
            vec![
                "1:1: Syntax error: token recognition error at: ''a'".to_owned(),
                format!("1:3: Syntax error: mismatched input '<EOF>' expecting {PRIMARY}"),
            ],
        ),
    ] {
        let message = error(source);
        let found: Vec<&str> = message
            .lines()
            .filter_map(|line| line.strip_prefix("ERROR: <input>:"))
            .collect();
        assert_eq!(found, wanted, "{source}");
    }
}

/// Proves cel/constants.
#[test]
fn constants_that_cannot_be_evaluated_are_rejected() {
    let env = Env::new()
        .variable("s", Type::String)
        .variable("x", Type::Int);
    for (source, why) in [
        (
            "x > int('abc')",
            "type conversion error from 'string' to 'int'",
        ),
        (
            "double('x') > 0.0",
            "type conversion error from 'string' to 'double'",
        ),
        ("uint(-1) > 0u", "unsigned integer overflow"),
        (
            "s.find('[') == ''",
            "error parsing regexp: missing closing ]: `[`",
        ),
        (
            "s.findAll('a**', 2) == []",
            "error parsing regexp: invalid nested repetition operator: `**`",
        ),
    ] {
        let error = env.compile(source).unwrap_err();
        assert_eq!(error.to_string(), why, "{source}");
        assert!(error.is_planning(), "{source}");
    }
    assert!(!env.compile("x > 'a'").unwrap_err().is_planning());
    assert!(env.compile("x > int(s)").is_ok());
}
