//! Custom resource definitions without a server: check a CRD and its objects in a test.
//!
//! [`Crd::parse`] accepts what the server would accept and rejects the rest with the same messages.
//! An object then passes the same steps as on the server: [`prune`](Crd::prune) drops unknown
//! fields, [`default`](Crd::default) fills in missing ones, [`validate`](Crd::validate) checks the
//! schema and evaluates the CEL rules.
//!
//! ```
//! use pintle_apiserver::crd::Crd;
//! use serde_json::json;
//!
//! let crd = Crd::parse(
//!     r#"
//! apiVersion: apiextensions.k8s.io/v1
//! kind: CustomResourceDefinition
//! metadata: { name: foos.example.com }
//! spec:
//!   group: example.com
//!   scope: Namespaced
//!   names: { plural: foos, kind: Foo }
//!   versions:
//!   - name: v1
//!     served: true
//!     storage: true
//!     schema:
//!       openAPIV3Schema:
//!         type: object
//!         properties:
//!           spec:
//!             type: object
//!             properties:
//!               replicas: { type: integer, default: 1 }
//!             x-kubernetes-validations:
//!             - rule: self.replicas <= 5
//!               message: at most 5 replicas
//! "#,
//! )?;
//!
//! let mut foo = json!({
//!     "apiVersion": "example.com/v1", "kind": "Foo", "metadata": { "name": "a" },
//!     "spec": { "unknown": true },
//! });
//! assert_eq!(crd.prune(&mut foo)?, ["spec.unknown"]);
//! crd.default(&mut foo)?;
//! assert_eq!(foo["spec"], json!({ "replicas": 1 }));
//! crd.validate(&foo)?;
//!
//! foo["spec"]["replicas"] = json!(9);
//! let error = crd.validate(&foo).unwrap_err();
//! assert!(error.to_string().ends_with("spec: Invalid value: at most 5 replicas"));
//! # Ok::<(), pintle_apiserver::crd::Error>(())
//! ```

use std::sync::Arc;

use serde_json::Value;

use crate::{
    api::write::{Part, validate},
    meta::{self, NameRule},
    registry::crd,
    schema::{
        builtin, defaults,
        field::{FieldError, aggregate},
        structural::Structural,
        typed,
    },
};

const GROUP: &str = "apiextensions.k8s.io";

/// A custom resource definition that the server accepts.
#[derive(Debug, Clone)]
pub struct Crd {
    name: String,
    kind: String,
    namespaced: bool,
    versions: Vec<ServedVersion>,
}

#[derive(Debug, Clone)]
struct ServedVersion {
    api_version: String,
    schema: Arc<Structural>,
    /// The paths of the scale subresource, or null.
    scale: Value,
}

/// One problem of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field, such as `spec.replicas`.
    pub field: String,
    /// The machine-readable reason, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Why a CRD or an object was rejected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not YAML, or has fields of the wrong type.
    #[error("cannot decode: {0}")]
    Decode(String),
    /// The document is not a CRD of version `apiextensions.k8s.io/v1`.
    #[error("expected a CustomResourceDefinition of {GROUP}/v1, found {kind:?} of {api_version:?}")]
    NotACrd {
        /// The `apiVersion` of the document.
        api_version: String,
        /// The `kind` of the document.
        kind: String,
    },
    /// The object is of a kind or version that the CRD does not define.
    #[error("{name} does not define {kind:?} of {api_version:?}")]
    Undefined {
        /// The name of the CRD.
        name: String,
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
    /// The CRD or the object is not valid.
    #[error("{kind} {name:?} is invalid: {message}")]
    Invalid {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// All problems in one line, worded as the server words them.
        message: String,
        /// The problems.
        problems: Vec<Problem>,
    },
}

fn invalid(kind: &str, name: &str, errors: &[FieldError]) -> Error {
    let problem = |error: &FieldError| Problem {
        field: error.field.clone(),
        reason: error.reason.as_str(),
        message: error.body(),
    };
    Error::Invalid {
        kind: kind.to_owned(),
        name: name.to_owned(),
        message: aggregate(errors),
        problems: errors.iter().map(problem).collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the documents of a YAML file, without empty ones. The items of a `List` count as documents.
///
/// # Errors
///
/// Fails if the text is not YAML.
///
/// ```
/// let documents = pintle_apiserver::crd::documents("kind: A\n---\nkind: B\n").unwrap();
/// assert_eq!(documents.len(), 2);
/// ```
pub fn documents(yaml: &str) -> Result<Vec<Value>, Error> {
    let found: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| Error::Decode(error.to_string()))?;
    let mut documents = Vec::new();
    for mut document in found {
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if document["kind"] == "List" => documents.extend(items),
            Some(items) => {
                document["items"] = items;
                documents.push(document);
            }
            None if document.is_null() => {}
            None => documents.push(document),
        }
    }
    Ok(documents)
}

impl Crd {
    /// Reads a CRD from YAML or JSON and validates it.
    ///
    /// # Errors
    ///
    /// Fails if the text cannot be decoded, is not a CRD, or if the server would refuse it.
    pub fn parse(yaml: &str) -> Result<Self, Error> {
        let decoded = serde_saphyr::from_str(yaml);
        Self::from_value(decoded.map_err(|error| Error::Decode(error.to_string()))?)
    }

    /// Validates a CRD that has been decoded.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a CRD, or if the server would refuse it.
    pub fn from_value(mut definition: Value) -> Result<Self, Error> {
        let (api_version_found, kind) =
            (text(&definition["apiVersion"]), text(&definition["kind"]));
        let ty = builtin::kind(GROUP, "v1", "CustomResourceDefinition");
        let (Some(ty), "CustomResourceDefinition") = (ty, kind.as_str()) else {
            return Err(Error::NotACrd {
                api_version: api_version_found,
                kind,
            });
        };
        if api_version_found != format!("{GROUP}/v1") {
            return Err(Error::NotACrd {
                api_version: api_version_found,
                kind,
            });
        }
        typed::canonicalize(&mut definition, ty)
            .map_err(|error| Error::Decode(error.to_string()))?;
        defaults::apply(&mut definition, ty);
        let tree = meta::tree(&definition);
        let name = meta::text(tree, "name").to_owned();
        let mut errors = meta::check(tree, NameRule::Subdomain, false, true);
        errors.extend(crd::check(tree));
        if !errors.is_empty() {
            return Err(invalid("CustomResourceDefinition", &name, &errors));
        }
        let spec = &definition["spec"];
        let group = text(&spec["group"]);
        let mut versions = Vec::new();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let schema = Structural::parse(&version["schema"]["openAPIV3Schema"]);
            let schema =
                schema.map_err(|errors| invalid("CustomResourceDefinition", &name, &errors))?;
            let api_version = format!("{group}/{}", text(&version["name"]));
            versions.push(ServedVersion {
                api_version,
                schema: Arc::new(schema),
                scale: version["subresources"]["scale"].clone(),
            });
        }
        Ok(Self {
            name,
            kind: text(&spec["names"]["kind"]),
            namespaced: spec["scope"] == "Namespaced",
            versions,
        })
    }

    /// Returns the name of the CRD: `foos.example.com`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind that it defines.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the `apiVersion` of each version: `example.com/v1`.
    pub fn api_versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|it| it.api_version.as_str())
    }

    /// Returns true if the CRD defines the kind and version of an object.
    #[must_use]
    pub fn defines(&self, object: &Value) -> bool {
        self.version(object).is_ok()
    }

    fn version(&self, object: &Value) -> Result<&ServedVersion, Error> {
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let mut versions = self.versions.iter();
        match versions.find(|it| it.api_version == api_version) {
            Some(version) if kind == self.kind => Ok(version),
            _ => Err(Error::Undefined {
                name: self.name.clone(),
                api_version,
                kind,
            }),
        }
    }

    /// Drops fields that the schema does not specify. Returns their paths.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not define the kind and version of the object.
    pub fn prune(&self, object: &mut Value) -> Result<Vec<String>, Error> {
        let found = object.clone();
        Ok(self.version(&found)?.schema.prune(object))
    }

    /// Fills in the defaults of the schema.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not define the kind and version of the object.
    pub fn default(&self, object: &mut Value) -> Result<(), Error> {
        let found = object.clone();
        self.version(&found)?.schema.default(object);
        Ok(())
    }

    /// Validates a new object: its metadata, the schema and the CEL rules. A missing namespace is
    /// not an error, because clients fill it in.
    ///
    /// # Errors
    ///
    /// Fails with every problem that the server would report.
    pub fn validate(&self, object: &Value) -> Result<(), Error> {
        self.validated(object, None)
    }

    /// Validates an object that replaces `old`: transition rules apply, and what did not change is
    /// tolerated.
    ///
    /// # Errors
    ///
    /// Fails with every problem that the server would report.
    pub fn validate_update(&self, object: &Value, old: &Value) -> Result<(), Error> {
        self.validated(object, Some(old))
    }

    fn validated(&self, object: &Value, old: Option<&Value>) -> Result<(), Error> {
        let version = self.version(object)?;
        let mut complete = meta::tree(object).clone();
        let metadata = meta::metadata(&mut complete);
        if self.namespaced {
            metadata
                .entry("namespace")
                .or_insert_with(|| "default".into());
        }
        if !metadata.contains_key("name")
            && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
        {
            let name = format!("{prefix}aaaaa");
            metadata.insert("name".into(), name.into());
        }
        let mut errors = meta::check(&complete, NameRule::Subdomain, self.namespaced, false);
        let scale = validate::scale(&version.scale, Part::Main, object);
        errors.extend(version.schema.validate_with(object, old, scale));
        if errors.is_empty() {
            return Ok(());
        }
        Err(invalid(
            &self.kind,
            meta::text(meta::tree(object), "name"),
            &errors,
        ))
    }
}

#[cfg(test)]
mod tests;
