//! Objects derived from a CRD's schema: valid ones, and for every constraint one that violates it.
//!
//! Everything is a function of the schema, so every run sends the same objects.

mod text;
mod value;
mod violations;

use pintle::clock::StableHash;
use pintle_apiserver::crd::{Crd, Error};
use serde_json::{Value, json};

use self::value::{Extent, Values};
use self::violations::violations;

/// The maximum number of steps to make a generated object valid.
const REPAIRS: usize = 25;

/// An object to create, with a label that is unique for its version of the CRD.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) label: String,
    pub(super) object: Value,
}

/// Returns the objects for one version of a CRD. `most` limits the number of violations, which are
/// spread over all kinds of constraints.
pub(super) fn cases(crd: &Crd, schema: &Value, api_version: &str, most: usize) -> Vec<Case> {
    let envelope = |mut object: Value| {
        if !object.is_object() {
            object = json!({});
        }
        object["apiVersion"] = api_version.into();
        object["kind"] = crd.kind().into();
        object["metadata"] = json!({ "name": "sample" });
        object
    };
    let values = Values { schema };
    let smallest = envelope(values.root(Extent::Required));
    let smallest = repaired(crd, schema, smallest);
    let largest = envelope(values.root(Extent::All));
    let mut found = vec![
        Case {
            label: "required".to_owned(),
            object: smallest.clone(),
        },
        Case {
            label: "all".to_owned(),
            object: largest.clone(),
        },
        Case {
            label: "all-valid".to_owned(),
            object: repaired(crd, schema, largest),
        },
    ];
    for violation in selected(violations(schema), most) {
        found.push(Case {
            object: envelope_of(&smallest, violation.apply(&smallest, schema)),
            label: violation.label(),
        });
    }
    found
}

/// Replaces type and metadata, which belong to the request, not to the schema.
fn envelope_of(smallest: &Value, mut object: Value) -> Value {
    for field in ["apiVersion", "kind", "metadata"] {
        if object.is_object() {
            object[field] = smallest[field].clone();
        }
    }
    object
}

/// Selects some violations, spread over all kinds, in an order that depends only on the labels.
fn selected(all: Vec<violations::Violation>, most: usize) -> Vec<violations::Violation> {
    if all.len() <= most {
        return all;
    }
    let mut keyed: Vec<_> = all
        .into_iter()
        .map(|it| (it.kind(), StableHash::of(it.label().as_bytes()), it))
        .collect();
    keyed.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut ranked = Vec::new();
    let mut rank = 0;
    let mut last = None;
    for (kind, _, it) in keyed {
        rank = if last == Some(kind) { rank + 1 } else { 0 };
        last = Some(kind);
        ranked.push((rank, it));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(most).map(|(_, it)| it).collect()
}

/// Makes an object valid, if a few steps suffice: adds required fields, and drops or changes
/// invalid ones.
fn repaired(crd: &Crd, schema: &Value, mut object: Value) -> Value {
    let mut left = REPAIRS;
    let mut problems = problems(crd, &object);
    while !problems.is_empty() && left > 0 {
        let mut better = None;
        'search: for field in &problems {
            for candidate in value::repairs(schema, &object, field) {
                if left == 0 {
                    break 'search;
                }
                left -= 1;
                let found = self::problems(crd, &candidate);
                if found.len() < problems.len() {
                    better = Some((candidate, found));
                    break 'search;
                }
            }
        }
        match better {
            Some((candidate, found)) => (object, problems) = (candidate, found),
            None => break,
        }
    }
    object
}

/// Returns the fields with problems.
fn problems(crd: &Crd, object: &Value) -> Vec<String> {
    let mut complete = object.clone();
    if crd.default(&mut complete).is_err() {
        return Vec::new();
    }
    match crd.validate(&complete) {
        Err(Error::Invalid { problems, .. }) => {
            problems.into_iter().map(|problem| problem.field).collect()
        }
        _ => Vec::new(),
    }
}
