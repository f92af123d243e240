//! Evaluations that fail: their errors and costs, as cel-go counts them with Kubernetes' estimator.

use serde_json::json;

use crate::{Env, Type, Value};

#[test]
fn failed_evaluations_cost_as_in_cel_go() {
    const NONE: &str = "no such key: none";
    const ZERO: &str = "division by zero";
    let object = json!({ "a": 1, "l": [1, 2, 3], "s": "abc", "m": { "x": 1, "y": 0 } });
    let object = Value::from_json(&object);
    let env = Env::new().variable("self", Type::Dyn);
    let mut wrong = Vec::new();
    for (source, cost, why) in [
        ("size(self.none)", 3, NONE),
        ("self.none + self.a", 5, NONE),
        ("self.none == self.a", 5, NONE),
        ("self.a == self.none", 5, NONE),
        ("self.a + self.none", 5, NONE),
        ("self.none + self.none2", 5, NONE),
        ("self.s.substring(self.none)", 5, NONE),
        ("self.s.substring(self.none, self.a)", 4, NONE),
        ("self.s.substring(self.a, self.none)", 7, NONE),
        ("self.s.replace(self.none, 'x')", 4, NONE),
        ("self.s.replace('x', self.none)", 5, NONE),
        ("self.s.replace('x', 'y', self.none)", 5, NONE),
        ("self.a / 0 == 1", 4, ZERO),
        ("self.a / 0 + self.a", 6, ZERO),
        ("[self.none]", 12, NONE),
        ("[self.a, self.none, self.a]", 14, NONE),
        ("{'a': self.none}", 32, NONE),
        ("{self.none: 1}", 32, NONE),
        ("[self.a / 0][0]", 14, ZERO),
        ("self.l[self.none]", 4, NONE),
        ("self.l[10]", 3, "index out of bounds: 10"),
        ("self.l[self.a / 0]", 6, ZERO),
        ("self.none.b.c", 2, NONE),
        ("self.a.b.c", 3, "no such key: b"),
        ("has(self.none.b)", 1, NONE),
        ("has(self.none.b.c)", 1, NONE),
        ("self.l.map(x, x / 0)", 45, ZERO),
        ("self.l.map(x, x == 2 ? x / 0 : x)", 47, ZERO),
        ("self.l.map(x, self.none == x)", 51, NONE),
        ("self.l.filter(x, x / 0 == 1)", 12, ZERO),
        ("self.l.filter(x, x == 2 ? x / 0 == 1 : true)", 38, ZERO),
        ("self.l.map(x, x / 0 == 1, x)", 12, ZERO),
        ("self.l.all(x, x / 0 == 1)", 21, ZERO),
        ("self.l.exists(x, x / 0 == 1)", 24, ZERO),
        ("self.l.exists_one(x, x / 0 == 1)", 13, ZERO),
        ("self.l.transformMap(i, v, v / 0)", 10, ZERO),
        ("self.l.transformMap(i, v, v / 0 == 1, v)", 12, ZERO),
        ("self.l.transformMapEntry(i, v, {i: v / 0})", 108, ZERO),
        ("self.l.transformMapEntry(i, v, {v / 0: v})", 105, ZERO),
        ("self.l.transformList(i, v, v / 0)", 45, ZERO),
        ("self.none.map(x, x)", 2, NONE),
        ("self.l.map(x, x).map(y, y / 0)", 85, ZERO),
        ("self.none.join(',')", 3, NONE),
        ("lists.range(self.none)", 14, NONE),
        ("lists.range(self.a / 0)", 15, ZERO),
        (
            "self.l.slice(0, 10)",
            14,
            "cannot slice(0, 10), list is length 3",
        ),
        ("self.l.slice(self.none, 1)", 4, NONE),
        ("self.l.flatten(-1)", 10, "level must be non-negative"),
        ("['a'].join(self.none)", 3, NONE),
        ("quantity(self.none)", 3, NONE),
        (
            "quantity('x')",
            1,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "quantity(self.s)",
            3,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("self.s.matches(self.none)", 5, NONE),
        ("self.none.matches('a')", 2, NONE),
        ("self.s.contains(self.none)", 5, NONE),
        ("self.s in self.none", 5, NONE),
        ("self.none in self.l", 5, NONE),
        ("!self.none", 3, NONE),
        ("-self.none", 3, NONE),
        ("self.none ? 1 : 2", 2, NONE),
        ("true ? self.none : 2", 1, NONE),
        ("self.none && true", 2, NONE),
        ("self.none || false", 2, NONE),
        ("self.none || self.none2", 4, NONE),
        (
            "int(self.s)",
            3,
            "type conversion error from 'string' to 'int'",
        ),
        (
            "duration(self.s)",
            3,
            "type conversion error from 'string' to 'google.protobuf.Duration'",
        ),
        (
            "timestamp(self.s)",
            3,
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        ("self.?none.orValue(self.none)", 3, NONE),
        ("optional.of(self.none)", 3, NONE),
        ("self[?self.none]", 2, NONE),
        (
            "url(self.s).getHost()",
            4,
            "URL parse error during conversion from string: parse \"abc\": invalid URI for request",
        ),
        (
            "url('::').getHost()",
            2,
            "URL parse error during conversion from string: parse \"::\": missing protocol scheme",
        ),
        (
            "ip(self.s).family()",
            4,
            "IP Address \"abc\" parse error during conversion from string: ParseAddr(\"abc\"): unable to parse IP",
        ),
        (
            "ip('x').family()",
            2,
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
        ("cidr('10.0.0.0/8').containsIP(self.none)", 4, NONE),
        ("cidr('10.0.0.0/8').containsIP('x')", 3, "no such overload"),
        ("'%d'.format([self.none])", 13, NONE),
        ("self.l.sum() + self.none", 8, NONE),
        ("self.l.sortBy(x, self.none)", 48, NONE),
        ("semver(self.s)", 3, "No Major.Minor.Patch elements found"),
        ("format.dns1123Label().validate(self.none)", 11, NONE),
        ("self.l.sum().foo", 7, "no such key: foo"),
        ("self.none.orValue(1)", 2, NONE),
        ("[self.none].all(x, true)", 12, NONE),
        ("self.m.all(k, self.m[k] / 0 == 1)", 19, ZERO),
        ("self.m.map(k, 1 / self.m[k])", 35, ZERO),
        ("self.none.startsWith('a')", 3, NONE),
        ("self.s.startsWith(self.none)", 5, NONE),
        ("self.none < self.a", 5, NONE),
        ("self.none != self.a", 5, NONE),
        ("self.s.indexOf(self.none)", 4, NONE),
        ("self.none.indexOf('a')", 2, NONE),
        ("sets.contains(self.none, [1])", 4, NONE),
        ("sets.contains([1], self.none)", 4, NONE),
        ("sets.equivalent(self.none, [1])", 5, NONE),
        ("self.none.flatten()", 14, NONE),
        ("self.none.reverse()", 14, NONE),
        ("self.none.sort()", 3, NONE),
        ("self.none.isSorted()", 3, NONE),
        ("self.none.min()", 3, NONE),
        ("optional.none().value()", 2, "optional.none() dereference"),
        ("self.none.charAt(self.a)", 5, NONE),
        ("self.none.contains(self.s)", 5, NONE),
        ("self.none.endsWith(self.s)", 5, NONE),
        ("self.none.startsWith(self.s)", 5, NONE),
        ("self.none.find(self.s)", 5, NONE),
        ("self.none.find('a')", 2, NONE),
        ("self.none.findAll(self.s)", 5, NONE),
        ("self.none.findAll('a')", 2, NONE),
        ("self.none.findAll(self.s, self.a)", 2, NONE),
        ("self.none.format(self.l)", 2, NONE),
        ("self.none.indexOf(self.s)", 2, NONE),
        ("self.none.indexOf(self.s, self.a)", 2, NONE),
        ("self.none.lastIndexOf(self.s)", 2, NONE),
        ("self.none.matches(self.s)", 5, NONE),
        ("self.none.split(self.s)", 5, NONE),
        ("self.none.split(self.s, self.a)", 2, NONE),
        ("self.none.substring(self.a)", 5, NONE),
        ("self.none.join(self.s)", 5, NONE),
        ("self.none.isGreaterThan(self.s)", 2, NONE),
        ("self.none.compareTo(self.s)", 2, NONE),
        ("self.none.add(self.a)", 2, NONE),
        ("self.none.sub(self.a)", 2, NONE),
        ("self.none.containsIP(self.s)", 2, NONE),
        ("self.none.containsCIDR(self.s)", 2, NONE),
        ("self.none.validate(self.s)", 5, NONE),
        ("sets.contains(self.none, self.l)", 8, NONE),
        ("sets.equivalent(self.none, self.l)", 11, NONE),
        ("sets.intersects(self.none, self.l)", 8, NONE),
        ("self.none in [1, 2]", 2, NONE),
        ("self.none - self.a", 5, NONE),
        ("self.none * self.a", 5, NONE),
        ("self.none / self.a", 5, NONE),
        ("self.none % self.a", 5, NONE),
        ("self.none <= self.a", 5, NONE),
        ("self.none.getHours(self.s)", 5, NONE),
        ("self.none.getHours()", 3, NONE),
        ("semver(self.none, self.s)", 5, NONE),
        ("semver(self.none, true)", 3, NONE),
        ("isSemver(self.none, true)", 3, NONE),
        ("self.none.flatten(self.a)", 16, NONE),
        ("self.none.slice(self.a, self.a)", 2, NONE),
        ("self.none.replace(self.s, self.s)", 2, NONE),
        ("self.none.sortBy(x, x)", 5, NONE),
        ("isQuantity(self.none)", 3, NONE),
        ("isURL(self.none)", 3, NONE),
        ("self.none.lowerAscii()", 3, NONE),
        ("self.none.trim()", 3, NONE),
        ("strings.quote(self.none)", 3, NONE),
        ("dyn(self.none)", 3, NONE),
        ("type(self.none)", 3, NONE),
        ("string(self.none)", 3, NONE),
        ("self.none.size()", 3, NONE),
        ("self.none.masked()", 3, NONE),
        ("[1, 2, 3].flatten(-1)", 8, "level must be non-negative"),
        ("self.l.flatten(-2)", 7, "level must be non-negative"),
        ("{self.l[0]: self.none}", 35, NONE),
        ("self.l.transformMap(i, v, 1 / (v - 2))", 16, ZERO),
        (
            "self.l.transformMapEntry(i, v, {i: 1 / (v - 2)})",
            111,
            ZERO,
        ),
        ("optional.of(self.l)[?self.none]", 5, NONE),
        ("self.l[?self.none]", 3, NONE),
        ("self.none[?0]", 2, NONE),
        ("self.none.?b", 2, NONE),
        ("(self.none ? self.l : self.l)[0]", 2, NONE),
        ("(self.a == 1 ? self.none : self.l)[0]", 4, NONE),
        ("(self.a == 1 ? self.l : self.l)[self.none]", 6, NONE),
        ("self.l[self.none ? 1 : 2]", 5, NONE),
        ("self.l.exists(x, self.none)", 21, NONE),
        ("self.l.all(x, self.none == x || x == 9)", 30, NONE),
        ("self.l.exists_one(x, 1 / (x - 2) == 1)", 18, ZERO),
        ("self.l.map(x, self.l.map(y, 1 / (y - x)))", 192, ZERO),
        ("self.l.filter(x, 1 / (x - 2) == 1)", 28, ZERO),
        ("self.none.filter(x, true)", 2, NONE),
        ("self.l.transformList(i, v, v == 2, v / 0)", 23, ZERO),
        ("self.l.transformMap(i, v, v == 2, v / 0)", 14, ZERO),
        (
            "self.s.map(x, x)",
            2,
            "got 'types.String', expected iterable type",
        ),
        ("self.l.map(x, has(self.none.x))", 42, NONE),
        ("self.none == self.none2 && true", 5, NONE),
        ("[[self.none]][0]", 23, NONE),
        ("-(self.a / 0)", 4, ZERO),
        ("timestamp(self.none) < timestamp(self.none)", 7, NONE),
        (
            "cidr(self.s).containsIP('1.2.3.4')",
            5,
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"abc\"): no '/'",
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('x')",
            5,
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"x\"): no '/'",
        ),
        (
            "cidr('10.0.0.0/8').containsIP(self.s)",
            4,
            "no such overload",
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR(self.s)",
            6,
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"abc\"): no '/'",
        ),
        ("self.l[self.a == 1 ? 10 : 2]", 6, "index out of bounds: 10"),
        ("self.l[self.a == 1 ? self.none : 2]", 7, NONE),
        ("self.l[self.a == 2 ? 1 : self.none]", 7, NONE),
        (
            "self.a.map(x, x)",
            2,
            "got 'types.Int', expected iterable type",
        ),
        (
            "self.s.transformList(i, v, v)",
            2,
            "unsupported comprehension range type: types.String",
        ),
        (
            "self.m.y.all(x, true)",
            3,
            "got 'types.Int', expected iterable type",
        ),
        ("string(self.none).indexOf('a')", 4, NONE),
        ("quantity(self.none).add(1)", 4, NONE),
        ("string(self.none).lastIndexOf(self.s)", 6, NONE),
        ("string(self.none).format(self.l)", 3, NONE),
        ("quantity(self.none).isGreaterThan(quantity('1'))", 5, NONE),
        ("quantity(self.none).compareTo(quantity('1'))", 5, NONE),
        ("semver(self.none).compareTo(semver('1.0.0'))", 5, NONE),
        ("cidr(self.none).containsCIDR('1.0.0.0/8')", 7, NONE),
        ("string(self.none).matches('a')", 3, NONE),
        ("string(self.none).find('a')", 3, NONE),
        ("[string(self.none)].indexOf('a')", 14, NONE),
        (
            "dyn(1u).map(x, x)",
            0,
            "got 'types.Uint', expected iterable type",
        ),
        (
            "dyn(1.5).map(x, x)",
            0,
            "got 'types.Double', expected iterable type",
        ),
        (
            "dyn(null).map(x, x)",
            0,
            "got 'types.Null', expected iterable type",
        ),
        (
            "dyn(b'a').map(x, x)",
            0,
            "got 'types.Bytes', expected iterable type",
        ),
        (
            "dyn(optional.of(1)).map(x, x)",
            2,
            "got '*types.Optional', expected iterable type",
        ),
        (
            "dyn(duration('1s')).map(x, x)",
            0,
            "got 'types.Duration', expected iterable type",
        ),
        (
            "dyn(timestamp('2020-01-01T00:00:00Z')).map(x, x)",
            0,
            "got 'types.Timestamp', expected iterable type",
        ),
    ] {
        let done = env
            .compile(source)
            .unwrap()
            .eval(&[("self", object.clone())], 1_000);
        let found = done
            .result
            .map_or_else(|error| error.to_string(), |value| format!("{value:?}"));
        if (done.cost, found.as_str()) != (cost, why) {
            wrong.push(format!(
                "{source}: {} instead of {cost}, {found}",
                done.cost
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tolerated_failures_cost_as_in_cel_go() {
    let object = json!({ "a": 1, "l": [1, 2, 3], "s": "abc" });
    let object = Value::from_json(&object);
    let env = Env::new().variable("self", Type::Dyn);
    for (source, cost) in [
        ("has(self.a.b)", 2),
        ("self.none && false", 2),
        ("self.none || true", 2),
        ("self.?a.or(self.none)", 2),
        ("self.?none[self.none]", 1),
        ("self.l[true ? 1 : 2]", 3),
        ("self.l[self.a == 1 ? 1 : 2]", 6),
        ("self.l[self.a == 1 ? self.a : 2]", 7),
    ] {
        let done = env
            .compile(source)
            .unwrap()
            .eval(&[("self", object.clone())], 1_000);
        assert!(done.result.is_ok(), "{source}: {:?}", done.result);
        assert_eq!(done.cost, cost, "{source}");
    }
}
