//! Features for admission policies: messages, the types of patches, and `authorizer`.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::{
    Access, AccessDecision, Authorizer, Checked, Env, Evaluation, ResourceAccess, Type, Value,
};

fn patch(source: &str) -> Evaluation {
    let program = Env::new().patch_types().compile(source);
    let program = program.unwrap_or_else(|error| panic!("{source}: {error}"));
    program.eval(&[], 1_000_000)
}

fn built(source: &str) -> Json {
    patch(source).result.unwrap().to_json().unwrap()
}

fn refused(source: &str) -> String {
    let error = Env::new().patch_types().compile(source).unwrap_err();
    error.issues()[0].message.clone()
}

#[test]
fn objects_are_built_without_a_schema() {
    let spec = "Object{spec: Object.spec{replicas: 3, args: ['a'], labels: {'b': 'c'}}}";
    let expected = json!({"spec": {"replicas": 3, "args": ["a"], "labels": {"b": "c"}}});
    assert_eq!(built(spec), expected);
    assert_eq!(
        built("Object{?a: optional.none(), ?b: optional.of(1)}"),
        json!({"b": 1})
    );
    assert_eq!(built("Object{a: [1, 2, 3]}.a.sum()"), json!(6));
    assert_eq!(built("has(Object{a: 1}.b)"), json!(false));
    assert_eq!(built("Object{a: 1} == Object{a: 2 - 1}"), json!(true));
    assert_eq!(
        built("dyn(Object{a: 1}) == dyn(Object.a{a: 1})"),
        json!(false)
    );
    assert_eq!(built("Object{}.?a.hasValue()"), json!(false));
    assert_eq!(
        built("Object{?a: optional.ofNonZeroValue(Object.a{})}"),
        json!({})
    );
    assert_eq!(built("type(Object.a{}) == Object.a"), json!(true));
}

#[test]
fn fields_of_patches_are_checked() {
    let wrong = "expected type of field 'op' is 'string' but provided type is 'int'";
    assert_eq!(refused("JSONPatch{op: 1}"), wrong);
    assert_eq!(refused("JSONPatch{other: 1}"), "undefined field 'other'");
    assert_eq!(
        refused("Invalid{}"),
        "undeclared reference to 'Invalid' (in container '')"
    );
    assert_eq!(
        refused("Object{?a: 1}"),
        "expected type 'optional_type(int)' but found 'int'"
    );
    // Only mutating policies declare these types.
    assert!(Env::new().compile("Object{}").is_err());
    assert!(Env::new().compile("jsonpatch.escapeKey('a')").is_err());
    assert_eq!(
        built("jsonpatch.escapeKey('k8s.io/my~label')"),
        json!("k8s.io~1my~0label")
    );
}

/// Escaping reads the key once, and the result is as long as the key.
#[test]
fn escaping_a_key_costs_its_length() {
    let key = "k".repeat(100);
    let source = format!("jsonpatch.escapeKey('{key}')");
    assert_eq!(patch(&source).cost, 10);
    let env = Env::new().patch_types();
    let estimate = |source: &str| env.compile(source).unwrap().cost(None).max;
    assert_eq!(estimate(&source), 10);
    // A comparison reads the smaller operand.
    assert_eq!(estimate(&format!("{source} == 'x'")), 11);
    let both = format!("{source} == {source}");
    assert_eq!(estimate(&both), 30);
}

#[test]
fn nested_messages_must_have_the_type_of_their_field() {
    let names = |source: &str| patch(source).result.unwrap().check_message_names();
    assert_eq!(names("Object{a: [Object.a{b: Object.a.b{}}]}"), Ok(()));
    let why = "unexpected type name \"Object.c\", expected \"Object.a\", which matches field name \
               path from root Object type";
    assert_eq!(names("Object{a: [Object.c{}]}"), Err(why.to_owned()));
}

#[test]
fn values_become_json() {
    assert_eq!(built("b'hello'"), json!("aGVsbG8="));
    assert_eq!(built("duration('90s')"), json!("90s"));
    assert_eq!(
        built("timestamp('2026-01-01T00:00:00Z')"),
        json!("2026-01-01T00:00:00Z")
    );
    assert!(patch("{1: 2}").result.unwrap().to_json().is_err());
}

/// Grants checks of the verb `get`, and returns the check as the reason.
#[derive(Debug)]
struct Readers;

impl Authorizer for Readers {
    fn authorize(&self, check: &Checked) -> AccessDecision {
        let account = check.service_account.as_ref();
        let who = account.map_or("user".to_owned(), |(space, name)| format!("{space}:{name}"));
        let what = match &check.access {
            Access::Path(path) => path.clone(),
            Access::Resource(r) => format!(
                "{}/{}/{}/{}/{}?{}&{}",
                r.group,
                r.resource,
                r.subresource,
                r.namespace,
                r.name,
                r.field_selector,
                r.label_selector
            ),
        };
        AccessDecision {
            allowed: check.verb == "get",
            reason: format!("{who} {} {what}", check.verb),
            error: (check.verb == "bad").then(|| "broken".to_owned()),
        }
    }
}

fn asked(source: &str) -> Evaluation {
    let env = Env::new()
        .variable("authorizer", Type::authorizer())
        .variable("authorizer.requestResource", Type::resource_check());
    let program = env.compile(source);
    let program = program.unwrap_or_else(|error| panic!("{source}: {error}"));
    let resource = ResourceAccess {
        resource: "pods".into(),
        ..ResourceAccess::default()
    };
    let values = [
        ("authorizer", Value::authorizer(Arc::new(Readers))),
        (
            "authorizer.requestResource",
            Value::resource_check(Arc::new(Readers), resource),
        ),
    ];
    program.eval(&values, 1_000_000)
}

#[test]
fn authorizer_builds_a_check_step_by_step() {
    let reason = |source: &str| asked(source).result.unwrap().to_json().unwrap();
    for (source, expected) in [
        (
            "authorizer.group('apps').resource('deployments').subresource('status')\
             .namespace('n').name('x').fieldSelector('a=b').labelSelector('c').check('get').reason()",
            "user get apps/deployments/status/n/x?a=b&c",
        ),
        (
            "authorizer.path('/healthz').check('get').reason()",
            "user get /healthz",
        ),
        (
            "authorizer.serviceAccount('n', 'sa').path('/a').check('put').reason()",
            "n:sa put /a",
        ),
        (
            "authorizer.requestResource.check('list').reason()",
            "user list /pods///?&",
        ),
        ("authorizer.path('/a').check('bad').error()", "broken"),
    ] {
        assert_eq!(reason(source), json!(expected), "{source}");
    }
    assert_eq!(
        reason("authorizer.path('/a').check('get').allowed()"),
        json!(true)
    );
    assert_eq!(
        reason("authorizer.path('/a').check('put').allowed()"),
        json!(false)
    );
    assert_eq!(
        reason("authorizer.path('/a').check('put').errored()"),
        json!(false)
    );
    for (source, why) in [
        (
            "authorizer.path(' ').check('get')",
            "path must not be empty",
        ),
        (
            "authorizer.group('').resource('')",
            "resource must not be empty",
        ),
        (
            "authorizer.serviceAccount('n', 'A')",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('a.b', 'a')",
            "Invalid service account namespace",
        ),
    ] {
        assert_eq!(asked(source).result.unwrap_err().to_string(), why);
    }
}

#[test]
fn check_costs_as_in_kubernetes() {
    // Variable 1, `path` 1, `check` 350,000, `allowed` 1.
    let done = asked("authorizer.path('/a').check('get').allowed()");
    assert_eq!(done.cost, 350_003);
    assert_eq!(patch("Object{a: Object.a{}}").cost, 80);
}
