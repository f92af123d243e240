//! Reasons to reject a definition, other than its schemas.

use serde_json::{Value, json};

use super::super::check;

type Change = fn(&mut Value);

fn errors(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let status = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": {
            "name": { "type": "string" }, "list": { "type": "array", "items": { "type": "string" } },
        } },
        "status": status,
    } });
    let mut definition = json!({
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" },
            "conversion": { "strategy": "None" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema } }],
        },
    });
    change(&mut definition["spec"]);
    let found = check(definition.as_object().unwrap());
    found.iter().map(ToString::to_string).collect()
}

/// Proves crd/validated.
#[test]
fn parts_of_the_spec_are_validated() {
    assert_eq!(errors(|_| {}), Vec::<String>::new());
    let long = "must be one of boolean,date,integer,number,string";
    let client = "spec.conversion.webhookClientConfig";
    let cases: [(Change, Vec<String>); 10] = [
        (
            |spec| spec["names"]["listKind"] = "Foo".into(),
            vec!["spec.names.listKind: Invalid value: \"Foo\": kind and listKind may not be the same".into()],
        ),
        (
            |spec| spec["preserveUnknownFields"] = true.into(),
            vec!["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
                  x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead".into()],
        ),
        (
            |spec| spec["versions"][0]["additionalPrinterColumns"] = json!([{ "type": "text" }]),
            vec![
                "spec.additionalPrinterColumns[0].name: Required value".into(),
                format!("spec.additionalPrinterColumns[0].type: Invalid value: \"text\": {long}"),
                "spec.additionalPrinterColumns[0].JSONPath: Required value".into(),
            ],
        ),
        (
            |spec| {
                spec["versions"][0]["subresources"] = json!({ "scale": {
                    "specReplicasPath": ".status.n", "labelSelectorPath": "x" } });
            },
            vec![
                "spec.subresources.scale.specReplicasPath: Invalid value: \".status.n\": should be a \
                 json path under .spec".into(),
                "spec.subresources.scale.statusReplicasPath: Required value".into(),
                "spec.subresources.scale.labelSelectorPath: Invalid value: \"x\": must be a simple \
                 json path starting with .".into(),
            ],
        ),
        (
            |spec| {
                spec["versions"][0]["selectableFields"] =
                    json!([{ "jsonPath": ".spec.nope" }, { "jsonPath": ".spec.list" }]);
            },
            vec![
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid \
                 path: does not refer to a valid field".into(),
                "spec.selectableFields[1].jsonPath: Invalid value: \".spec.list\": must point to a \
                 field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.".into(),
            ],
        ),
        (
            |spec| {
                spec["versions"][0]["selectableFields"] =
                    json!([{ "jsonPath": ".spec.name" }, { "jsonPath": ".spec.name" }]);
            },
            vec!["spec.selectableFields[1].jsonPath: Duplicate value: \".spec.name\"".into()],
        ),
        (
            |spec| spec["conversion"] = json!({ "strategy": "Webhook" }),
            vec![
                format!("{client}: Required value: required when strategy is set to Webhook"),
                "spec.conversion.conversionReviewVersions: Required value".into(),
            ],
        ),
        (
            |spec| {
                spec["conversion"] = json!({ "strategy": "Webhook", "webhook": {
                    "clientConfig": {}, "conversionReviewVersions": ["v1", "v1"] } });
            },
            vec![
                format!("{client}: Required value: exactly one of url or service is required"),
                "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v1\": duplicate \
                 version".into(),
            ],
        ),
        (
            |spec| {
                spec["conversion"] = json!({ "strategy": "None", "webhook": {
                    "clientConfig": { "url": "https://x" } } });
            },
            vec![format!(
                "{client}: Forbidden: should not be set when strategy is not set to Webhook"
            )],
        ),
        (
            |spec| spec["conversion"]["strategy"] = "Other".into(),
            vec!["spec.conversion.strategy: Unsupported value: \"Other\": supported values: \
                  \"None\", \"Webhook\"".into()],
        ),
    ];
    for (change, wanted) in cases {
        assert_eq!(errors(change), wanted);
    }
}

/// Proves crd/validated.
#[test]
fn group_and_kind_must_be_valid() {
    let found = errors(|spec| spec["group"] = "example".into());
    let why = "spec.group: Invalid value: \"example\": should be a domain with at least one dot";
    assert!(found.iter().any(|error| error == why), "{found:?}");
    let found = errors(|spec| spec["names"]["kind"] = "Foo Bar".into());
    let start = "spec.names.kind: Invalid value: \"Foo Bar\": may have mixed case, but should \
                 otherwise match: a DNS-1035 label must";
    assert!(
        found.iter().any(|error| error.starts_with(start)),
        "{found:?}"
    );
}

/// Proves crd/validated.
#[test]
fn version_name_problems_are_reported_once() {
    let found = errors(|spec| {
        let version = spec["versions"][0].clone();
        spec["versions"] = json!([version, version, version]);
        spec["versions"][0]["storage"] = false.into();
        spec["versions"][1]["storage"] = false.into();
    });
    let unique = found
        .iter()
        .filter(|it| it.ends_with("must contain unique version names"));
    assert_eq!(unique.count(), 1, "{found:?}");
    let found = errors(|spec| spec["versions"][0]["name"] = "V".repeat(64).into());
    let place = "spec.versions[0].name: ";
    assert_eq!(
        found.iter().filter(|it| it.starts_with(place)).count(),
        1,
        "{found:?}"
    );
}

/// Proves crd/validated.
#[test]
fn top_level_schema_and_fields_apply_to_all_versions() {
    let with = |first: &str, second: &str, same_schema: bool| {
        errors(|spec| {
            let mut other = spec["versions"][0].clone();
            other["name"] = "v2".into();
            other["storage"] = false.into();
            if !same_schema {
                other["schema"]["openAPIV3Schema"]["description"] = "Other.".into();
            }
            other["selectableFields"] = json!([{ "jsonPath": second }]);
            spec["versions"][0]["selectableFields"] = json!([{ "jsonPath": first }]);
            spec["versions"].as_array_mut().unwrap().push(other);
        })
    };
    let (a, b) = (".spec.name", ".status.replicas");
    assert_eq!(with(a, a, true), Vec::<String>::new());
    assert_eq!(with(a, b, false), Vec::<String>::new());
    assert_eq!(
        with(a, a, false),
        [
            "spec.selectableFields: Invalid value: \"\": may only be set when validations.schema is \
          included"
        ]
    );
    let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
    let places =
        [0, 1].map(|i| format!("spec.versions[{i}].selectableFields: Invalid value: \"\": {why}"));
    assert_eq!(with(a, b, true), places);
}

/// The message of a response shows the errors in this order.
///
/// Proves crd/validated.
#[test]
fn errors_follow_upstream_order() {
    let found = errors(|spec| {
        spec["group"] = "".into();
        spec["scope"] = "Sometimes".into();
        spec["names"] = json!({});
        spec["versions"][0]["name"] = "V1".into();
        spec["versions"][0]["storage"] = false.into();
        spec["versions"][0]["additionalPrinterColumns"] =
            json!([{ "name": "a", "type": "string", "format": "binary", "jsonPath": ".a" }]);
        spec["preserveUnknownFields"] = true.into();
        spec["conversion"] = json!({ "strategy": "Other" });
    });
    let places: Vec<&str> = found
        .iter()
        .filter_map(|error| Some(error.split_once(": ")?.0))
        .collect();
    assert_eq!(
        places,
        [
            "metadata.name",
            "spec.group",
            "spec.scope",
            "spec.versions[0].name",
            "spec.versions",
            "spec.version",
            "spec.names.plural",
            "spec.names.singular",
            "spec.names.kind",
            "spec.names.listKind",
            "spec.additionalPrinterColumns[0].format",
            "spec.conversion.strategy",
            "spec.conversion.strategy",
            "status.storedVersions",
            "spec.preserveUnknownFields",
        ]
    );
    assert!(
        found[10].ends_with("must be one of byte,date,date-time,double,float,int32,int64,password")
    );
    assert_eq!(
        found[13],
        "status.storedVersions: Invalid value: null: must have at least one stored version"
    );
}

/// Proves crd/validated.
#[test]
fn storage_version_must_be_a_stored_version() {
    let found = errors(|spec| {
        let mut other = spec["versions"][0].clone();
        other["name"] = "v2".into();
        spec["versions"].as_array_mut().unwrap().push(other);
    });
    let wanted = "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2";
    assert_eq!(found.last().map(String::as_str), Some(wanted));
}

/// Proves crd/validated.
#[test]
fn defaults_require_pruning() {
    let found = errors(|spec| {
        spec["preserveUnknownFields"] = true.into();
        let properties = "/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        spec.pointer_mut(properties).unwrap()["name"]["default"] = "x".into();
    });
    let wanted = "spec.preserveUnknownFields: Invalid value: true: must be false in order to use \
                  defaults in the schema";
    assert_eq!((found[0].as_str(), found.len()), (wanted, 2));
}

/// Proves crd/validated.
#[test]
fn path_without_a_leading_dot_is_rejected() {
    let found = errors(|spec| {
        spec["versions"][0]["selectableFields"] = json!([{ "jsonPath": "spec.name" }]);
    });
    let why = "is an invalid path: expected [ or . but got: spec";
    let place = "spec.selectableFields[0].jsonPath";
    assert_eq!(
        found,
        [format!("{place}: Invalid value: \"spec.name\": {why}")]
    );
}
