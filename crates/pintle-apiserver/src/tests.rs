//! Replays writes that were recorded on a kube-apiserver of the pinned version, and compares
//! results.

use serde_json::{Value, json};

use crate::{
    patch::{
        apply::{self, Shape, Write},
        strategic,
    },
    schema::{builtin, defaults, field::FieldError, structural::Structural, typed},
};

const API_VERSION: &str = "apps/v1";

/// Removes what differs from run to run.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("generation");
    let managers = metadata
        .get_mut("managedFields")
        .and_then(Value::as_array_mut)
        .unwrap();
    for entry in managers.iter_mut() {
        entry.as_object_mut().unwrap().remove("time");
    }
    managers.sort_by_key(ToString::to_string);
    object
}

fn step(live: &Value, step: &Value) -> Result<Value, String> {
    let ty = builtin::kind("apps", "v1", "Deployment").unwrap();
    let (shape, reset) = (Shape::Builtin(ty), apply::reset_fields("", true, false));
    let write = Write {
        manager: step["manager"].as_str().unwrap(),
        api_version: API_VERSION,
        subresource: "",
        now: "2026-11-15T21:00:00Z",
        reset: &reset,
        others: &[],
        conversions: None,
    };
    let finish = |object: &mut Value| {
        typed::canonicalize(object, ty).unwrap();
        defaults::apply(object, ty);
    };
    let request = step["request"].clone();
    match step["op"].as_str().unwrap() {
        "apply" => {
            let force = step["force"] == true;
            let applied = apply::apply(Some(live), &request, shape, &write, force);
            let mut object = applied.map_err(|error| error.to_string())?;
            finish(&mut object);
            Ok(object)
        }
        "smp" => {
            let mut object = live.clone();
            strategic::apply(&mut object, request, ty).map_err(|error| error.to_string())?;
            finish(&mut object);
            apply::update(Some(live), &mut object, shape, &write).map_err(|e| e.to_string())?;
            Ok(object)
        }
        _ => {
            let mut object = request;
            finish(&mut object);
            apply::update(Some(live), &mut object, shape, &write).map_err(|e| e.to_string())?;
            Ok(object)
        }
    }
}

/// Proves patch/formats, apply/ownership, apply/updates-take-over, objects/defaults.
#[test]
fn recorded_writes_have_the_same_result() {
    let series: Vec<Value> =
        serde_json::from_str(include_str!("../tests/fixtures/deployments.json")).unwrap();
    for (s, series) in series.iter().enumerate() {
        let mut live = series["before"].clone();
        for (i, recorded) in series["steps"].as_array().unwrap().iter().enumerate() {
            let ours = step(&live, recorded);
            if let Some(after) = recorded.get("after") {
                assert_eq!(plain(&ours.unwrap()), plain(after), "series {s}, step {i}");
                live = after.clone();
            } else if recorded["status"]["code"] == 409 {
                assert_eq!(
                    ours.unwrap_err(),
                    recorded["status"]["message"],
                    "series {s}, step {i}"
                );
            }
        }
    }
}

/// Formats errors as status causes: reason, field and message, sorted.
fn causes(errors: &[FieldError]) -> Vec<Value> {
    let each = errors
        .iter()
        .map(|e| json!([e.reason.as_str(), e.field, e.body()]));
    sorted(each.collect())
}

fn sorted(mut causes: Vec<Value>) -> Vec<Value> {
    causes.sort_by_key(ToString::to_string);
    causes
}

fn schemas() -> Value {
    serde_json::from_str(include_str!("../tests/fixtures/schemas.json")).unwrap()
}

/// Proves crd/schema.
#[test]
fn recorded_objects_get_the_same_errors() {
    let recorded = &schemas()["objects"];
    let schema = Structural::check(&recorded["schema"], "s", true).unwrap();
    for (i, case) in recorded["cases"].as_array().unwrap().iter().enumerate() {
        let mut object = json!({ "apiVersion": "example.com/v1", "kind": "Kw",
            "metadata": { "name": "k" }, "spec": { format!("f{i}"): case["value"] } });
        schema.prune(&mut object);
        schema.default(&mut object);
        let wanted = sorted(case["causes"].as_array().unwrap().clone());
        assert_eq!(causes(&schema.validate(&object, None)), wanted, "{object}");
    }
}

/// Proves crd/validated.
#[test]
fn recorded_schemas_get_the_same_errors() {
    for case in schemas()["definitions"].as_array().unwrap() {
        let at = "spec.validation.openAPIV3Schema";
        let errors = Structural::check(&case["schema"], at, false)
            .err()
            .unwrap_or_default();
        let wanted = sorted(case["causes"].as_array().unwrap().clone());
        assert_eq!(causes(&errors), wanted, "{}", case["schema"]);
    }
}
