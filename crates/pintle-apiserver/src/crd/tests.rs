//! CRDs and objects without a server.

use serde_json::{Value, json};

use super::{Crd, Error};

fn definition(spec: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "kind": "Foo" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

fn foo(spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Foo", "metadata": { "name": "a" }, "spec": spec })
}

/// Proves crd/library.
#[test]
fn rules_run_without_a_server() {
    let crd = Crd::from_value(definition(&json!({
        "type": "object", "required": ["min"],
        "properties": { "min": { "type": "integer" }, "max": { "type": "integer", "default": 10 } },
        "x-kubernetes-validations": [
            { "rule": "self.min <= self.max", "message": "min must not exceed max" },
            { "rule": "self.max >= oldSelf.max", "message": "max must not shrink" },
        ],
    })))
    .unwrap();
    assert_eq!((crd.name(), crd.kind()), ("foos.example.com", "Foo"));
    assert_eq!(crd.api_versions().collect::<Vec<_>>(), ["example.com/v1"]);

    let mut object = foo(&json!({ "min": 3, "other": 1 }));
    assert_eq!(crd.prune(&mut object).unwrap(), ["spec.other"]);
    crd.default(&mut object).unwrap();
    assert_eq!(object["spec"], json!({ "min": 3, "max": 10 }));
    crd.validate(&object).unwrap();
    crd.validate_update(&object, &object).unwrap();

    let Err(Error::Invalid {
        message, problems, ..
    }) = crd.validate_update(&foo(&json!({ "min": 9, "max": 8 })), &object)
    else {
        panic!("expected an invalid object");
    };
    assert_eq!(
        message,
        "[spec: Invalid value: min must not exceed max, spec: Invalid value: max must not shrink]"
    );
    assert_eq!(problems[0].field, "spec");
    let error = crd.validate(&foo(&json!({}))).unwrap_err().to_string();
    assert!(
        error.starts_with("Foo.example.com \"a\" is invalid: [spec.min: Required value"),
        "{error}"
    );
}

#[test]
fn rejected_documents_explain_why() {
    let error = Crd::parse("kind: [").unwrap_err();
    assert!(matches!(error, Error::Decode(_)), "{error}");
    let error = Crd::parse("{apiVersion: v1, kind: Pod}")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "expected a CustomResourceDefinition of apiextensions.k8s.io/v1, found \"Pod\" of \"v1\""
    );
    for (text, found) in [("", 0), ("---\n", 0), ("kind: A\n---\nkind: B\n", 2)] {
        let error = Crd::parse(text).unwrap_err().to_string();
        let expected = format!(
            "expected one document, found {found}; `documents` reads files that have several"
        );
        assert_eq!(error, expected, "{text:?}");
    }
    let rule = json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "self.nope" }] });
    let error = Crd::from_value(definition(&rule)).unwrap_err().to_string();
    assert!(error.contains("undefined field 'nope'"), "{error}");
    let start = "CustomResourceDefinition.apiextensions.k8s.io \"foos.example.com\" is invalid: ";
    assert!(error.starts_with(start), "{error}");
    let crd = Crd::from_value(definition(&json!({ "type": "object" }))).unwrap();
    let error = crd.validate(&json!({ "apiVersion": "example.com/v2", "kind": "Foo" }));
    assert!(matches!(error, Err(Error::Undefined { .. })));
}

/// Proves crd/library.
#[test]
fn unserved_version_is_not_defined() {
    let mut definition = definition(&json!({ "type": "object" }));
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = "v1alpha1".into();
    old["served"] = false.into();
    old["storage"] = false.into();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(old);
    let crd = Crd::from_value(definition).unwrap();
    assert_eq!(crd.group(), "example.com");
    assert_eq!(crd.api_versions().collect::<Vec<_>>(), ["example.com/v1"]);
    let mut object = foo(&json!({}));
    assert!(crd.defines(&object));
    object["apiVersion"] = "example.com/v1alpha1".into();
    let error = crd.validate(&object).unwrap_err().to_string();
    assert_eq!(
        error,
        "foos.example.com does not serve \"Foo\" of \"example.com/v1alpha1\""
    );
}

/// Proves crd/library.
#[test]
fn metadata_of_embedded_resources_is_pruned() {
    let template = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({ "type": "object", "properties": { "template": template } });
    let crd = Crd::from_value(definition(&spec)).unwrap();
    let template = |labels: Value| {
        json!({ "template": { "apiVersion": "v1", "kind": "Pod",
            "metadata": { "labels": labels, "nope": 1 } } })
    };
    let mut object = foo(&template(json!({ "a": "b" })));
    assert_eq!(
        crd.prune(&mut object).unwrap(),
        ["spec.template.metadata.nope"]
    );
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels, &json!({ "a": "b" }));
    let mut object = foo(&template(json!("text")));
    let error = crd.prune(&mut object).unwrap_err().to_string();
    assert!(error.contains("spec.template.metadata"), "{error}");
}
