//! Estimated and actual costs, with the figures of Kubernetes' tests.

use serde_json::{Value as Json, json};

use super::eval;
use crate::{Decl, Env, Value};

fn estimate(schema: &Json, rule: &str) -> u64 {
    let decl = Decl::from_schema(schema, false).unwrap();
    let env = Env::new().variable("self", decl.cel_type());
    let program = env
        .compile(rule)
        .unwrap_or_else(|error| panic!("{rule}: {error}"));
    program.cost(Some(&decl)).max
}

fn array(items: &Json) -> Json {
    json!({ "type": "array", "items": items })
}

fn map(values: &Json) -> Json {
    json!({ "type": "object", "additionalProperties": values })
}

#[test]
fn estimates_without_limits_match_kubernetes() {
    let number = json!({ "type": "number" });
    let text = json!({ "type": "string" });
    let boolean = json!({ "type": "boolean" });
    let either = json!({ "x-kubernetes-int-or-string": true });
    let format = |format: &str| json!({ "type": "string", "format": format });
    for (schema, rule, cost) in [
        (array(&number), "self.all(x, true)", 4_718_591),
        (array(&text), "self.all(x, true)", 3_145_727),
        (array(&boolean), "self.all(x, true)", 1_887_437),
        (array(&array(&number)), "self.all(x, true)", 3_145_727),
        (map(&number), "self.all(x, true)", 1_348_169),
        (map(&text), "self.all(x, true)", 1_179_647),
        (map(&boolean), "self.all(x, true)", 943_718),
        (text.clone(), "self.contains('test')", 314_574),
        (text.clone(), "self.startsWith('test')", 2),
        (text.clone(), "self.endsWith('test')", 2),
        (
            text.clone(),
            "size(self + \"hello\") > size(\"hello\")",
            314_578,
        ),
        (array(&number), "self[1] == 0.0", 2),
        (array(&text), "self[1] == self[1]", 314_577),
        (text.clone(), "self.matches(\"x\")", 314_574),
        (
            text.clone(),
            "\"\".matches(\"(((((((((())))))))))[0-9]\")",
            7,
        ),
        (text.clone(), "self.matches(\"\")", 1),
        (map(&text), "self.all(x, x.contains(self[x]))", 2_752_507),
        (text.clone(), "self == \"x\"", 2),
        (array(&number), "self.all(x, x == 0.0)", 6_291_454),
        (array(&either), "self.all(x, true)", 4_718_591),
        (array(&either), "self[0] == 5", 3),
        (array(&boolean), "self[0] == false", 2),
        (array(&array(&number)), "self[0][0] == -1.0", 3),
        (array(&map(&number)), "self.all(x, x.y == 25.2)", 6_291_452),
        (array(&map(&number)), "self[0].x > 2.0", 4),
        (array(&format("duration")), "self.all(x, true)", 2_359_295),
        (array(&format("duration")), "self[0].getHours() == 2", 4),
        (array(&format("date")), "self.all(x, true)", 725_936),
        (array(&format("date-time")), "self.all(x, true)", 428_963),
        (array(&format("date-time")), "self[2].getMinutes() == 45", 4),
    ] {
        assert_eq!(estimate(&schema, rule), cost, "{schema} {rule}");
    }
}

#[test]
fn estimates_with_limits_match_kubernetes() {
    let number = json!({ "type": "number" });
    let limited = |mut schema: Json, keyword: &str, limit: u64| {
        schema[keyword] = limit.into();
        schema
    };
    for (schema, rule, cost) in [
        (
            limited(array(&number), "maxItems", 10),
            "self.all(x, true)",
            32,
        ),
        (
            limited(array(&number), "maxItems", 10),
            "self.all(x, self.all(y, true))",
            352,
        ),
        (
            limited(array(&number), "maxItems", 10),
            "self.all(x, self.all(y, self.all(z, true)))",
            3_552,
        ),
        (
            limited(map(&number), "maxProperties", 10),
            "self.all(x, true)",
            32,
        ),
        (
            limited(json!({ "type": "string" }), "maxLength", 10),
            "self.contains('test')",
            5,
        ),
        (
            limited(json!({ "type": "string" }), "maxLength", 50),
            "self.matches(\"x\")",
            22,
        ),
        (
            limited(json!({ "type": "string" }), "maxLength", 0),
            "self == \"x\"",
            1,
        ),
    ] {
        assert_eq!(estimate(&schema, rule), cost, "{schema} {rule}");
    }
}

#[test]
fn evaluation_costs_match_kubernetes() {
    let properties = json!({
        "val1": { "type": "string" }, "val4": { "type": "number" }, "n": { "type": "integer" },
    });
    let schema = json!({ "type": "object", "properties": properties });
    let decl = Decl::from_schema(&schema, false).unwrap();
    let object = json!({ "val1": "Rook takes 👑", "val4": 10.0, "n": 5 });
    for (rule, cost) in [
        ("double(self.n) < self.val4", 6),
        ("self.n < int(self.val4)", 6),
        ("double(5) < 10.0", 1),
        ("double(self.n) < 10.0", 4),
        ("self.val1.startsWith('Rook')", 4),
        ("!self.val1.startsWith('knight')", 5),
        ("self.val1.matches('^[^0-9]*$')", 8),
        ("type(self.val1) == string", 4),
        ("size(self.val1) == 12", 4),
        ("self.val1.charAt(3) == 'k'", 4),
        ("self.val1.indexOf('o') == 1", 4),
        ("self.val1.replace(' ', 'x') == 'Rookxtakesx👑'", 7),
        ("self.val1.split(' ') == ['Rook', 'takes', '👑']", 6),
        ("self.val1.substring(5) == 'takes 👑'", 5),
        ("self.val1.lowerAscii() == self.val1.lowerAscii()", 10),
        ("'%o %o %o'.format([7, 8, 9]) == '7 10 11'", 2),
    ] {
        let env = Env::new().variable("self", decl.cel_type());
        let program = env
            .compile(rule)
            .unwrap_or_else(|error| panic!("{rule}: {error}"));
        let done = program.eval(&[("self", Value::declared(&object, &decl))], 1_000);
        assert!(
            matches!(done.result, Ok(Value::Bool(true))),
            "{rule}: {:?}",
            done.result
        );
        assert_eq!(done.cost, cost, "{rule}");
    }
}

#[test]
fn budget_ends_evaluation() {
    let program = Env::new()
        .compile("[1, 2, 3].all(x, [1, 2, 3].all(y, x > 0))")
        .unwrap();
    let needed = program.eval(&[], 1_000).cost;
    assert!(program.eval(&[], needed).result.is_ok());
    let error = program.eval(&[], needed - 1).result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation cancelled: actual cost limit exceeded"
    );
    assert!(eval("[1].all(x, true)").cost > 0);
}

#[test]
fn lists_and_patterns_are_charged_by_size() {
    for (source, cost) in [
        ("''.matches('a')", 1),
        ("['d', 'c', 'b', 'a'].sort()", 44),
        ("[4, 3, 2, 1].sort()", 43),
        ("[[1], [2]].flatten(3)", 17),
    ] {
        assert_eq!(eval(source).cost, cost, "{source}");
    }
    let estimate = |source: &str| Env::new().compile(source).unwrap().cost(None).max;
    assert_eq!(estimate("[1, 2]"), 10);
}

#[test]
fn constants_are_free_but_selections_are_charged() {
    for (source, cost) in [
        ("[[]] == [[]]", 1),
        ("'a' in []", 0),
        ("'a' in {'a': 1}", 1),
        ("int(double(5))", 0),
        ("type([1]) == list", 1),
        ("[].sort() == []", 11),
        ("[1, 2, 3][0]", 2),
        ("{'a': {'b': 1}}.a.b", 3),
        ("optional.of({'a': 1}).a", 3),
        ("(true ? {'a': 1} : {'a': 2}).a", 1),
        ("has({'a': 1}.a)", 1),
        ("has([{'a': 1}][0].a)", 2),
        ("{'a': 1}[?'a']", 2),
        ("{'a': 1}[?'b'].orValue(2)", 1),
    ] {
        assert_eq!(eval(source).cost, cost, "{source}");
    }
}

#[test]
fn loop_costs_match_cel_go() {
    for (source, cost) in [
        ("[].map(x, x)", 1),
        ("[1, 2, 3].map(x, x)", 40),
        ("[1].all(x, true)", 4),
        ("{'a': 1}.all(x, true)", 4),
        ("[[1, 2], [3]].map(x, x.map(y, y))", 68),
        ("{'a': [1]}.map(k, k)", 14),
        ("optional.of(1).optMap(x, x + 1)", 7),
        ("[].sortBy(e, e) == []", 14),
    ] {
        assert_eq!(eval(source).cost, cost, "{source}");
    }
    let list = Value::from_json(&json!({ "l": [1, 2] }));
    for (source, cost) in [
        ("self.l.exists(x, x == 2)", 15),
        ("self.l.exists_one(x, x == 2)", 10),
        ("self.l.filter(x, x > 1)", 20),
        ("self.l.filter(x, x > 0)[0]", 35),
        ("self.l.map(x, {'a': x})[0].a", 92),
        ("self.l.transformList(i, v, v)", 29),
        ("self.l.transformMapEntry(i, v, {i: v})", 71),
        ("self.l.sortBy(x, -x)", 34),
        ("[1, 2, 3][self.l[0]]", 4),
    ] {
        let env = Env::new().variable("self", crate::Type::Dyn);
        let done = env
            .compile(source)
            .unwrap()
            .eval(&[("self", list.clone())], 1_000);
        assert!(done.result.is_ok(), "{source}: {:?}", done.result);
        assert_eq!(done.cost, cost, "{source}");
    }
}
