//! Custom resource definitions without a server: check a CRD and its objects in a test.
//!
//! [`Crd::parse`] accepts what the server would accept and rejects the rest with the same messages.
//! An object then passes the same steps as on the server: [`prune`](Crd::prune) drops unknown
//! fields, [`default`](Crd::default) fills in missing ones, [`validate`](Crd::validate) checks the
//! schema and evaluates the CEL rules. [`validate_update`](Crd::validate_update) also evaluates
//! transition rules, which use `oldSelf`.
//!
//! In tests, print an [`Error`] instead of unwrapping it: CEL shows where in a rule it failed on
//! lines of their own, which the debug form escapes.
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
//!
//! A CRD that `kube` derives from a struct is checked in the same way:
//!
//! ```
//! use kube::{CustomResource, CustomResourceExt};
//! use pintle_apiserver::crd::Crd;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
//! struct DatabaseSpec {
//!     #[schemars(range(min = 1, max = 5))]
//!     replicas: i32,
//! }
//!
//! let crd = Crd::from_value(serde_json::to_value(Database::crd())?)?;
//! let database = Database::new("main", DatabaseSpec { replicas: 6 });
//! let error = crd.validate(&serde_json::to_value(&database)?).unwrap_err();
//! assert!(error.to_string().contains("spec.replicas in body should be less than or equal to 5"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`documents`] splits a file with several documents, such as the CRDs of a release:
//!
//! ```no_run
//! use pintle_apiserver::crd::{Crd, documents};
//!
//! let documents = documents(&std::fs::read_to_string("crds.yaml")?)?.into_iter();
//! let crds = documents.filter(|it| it["kind"] == "CustomResourceDefinition");
//! let crds = crds.map(Crd::from_value).collect::<Result<Vec<_>, _>>()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
        structural::{self, Structural},
        typed,
    },
};

const GROUP: &str = "apiextensions.k8s.io";

/// A custom resource definition that the server accepts.
#[derive(Debug, Clone)]
pub struct Crd {
    name: String,
    group: String,
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
    /// The message, without the path.
    pub message: String,
}

/// Why a CRD or an object was rejected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is not YAML or has fields of the wrong type, or the defaults of an object are too
    /// large.
    #[error("cannot decode: {0}")]
    Decode(String),
    /// The input has several documents, or none.
    #[error("expected one document, found {found}; `documents` reads files that have several")]
    Documents {
        /// The number of documents. The items of a `List` count.
        found: usize,
    },
    /// The document is not a CRD of version `apiextensions.k8s.io/v1`.
    #[error("expected a CustomResourceDefinition of {GROUP}/v1, found {kind:?} of {api_version:?}")]
    NotACrd {
        /// The `apiVersion` of the document.
        api_version: String,
        /// The `kind` of the document.
        kind: String,
    },
    /// The object is of a kind that the CRD does not define, or of a version that it does not
    /// serve.
    #[error("{name} does not serve {kind:?} of {api_version:?}")]
    Undefined {
        /// The name of the CRD.
        name: String,
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
    /// The CRD or the object is not valid.
    #[error("{kind}.{group} {name:?} is invalid: {message}")]
    Invalid {
        /// The group of the kind.
        group: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// All problems in one line, in the server's words.
        message: String,
        /// The problems.
        problems: Vec<Problem>,
    },
}

fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Error {
    let problem = |error: &FieldError| Problem {
        field: error.field.clone(),
        reason: error.reason.as_str(),
        message: error.body(),
    };
    Error::Invalid {
        group: group.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        message: aggregate(errors),
        problems: errors.iter().map(problem).collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the documents of a YAML file, without empty ones. The items of a `List` count as
/// documents.
///
/// # Errors
///
/// Fails if the input is not YAML.
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
    /// Reads a CRD from YAML or JSON and validates it. For files with several documents, use
    /// [`documents`].
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be decoded, is not a single CRD, or if the server would reject it.
    pub fn parse(yaml: &str) -> Result<Self, Error> {
        let mut found = documents(yaml)?;
        match (found.pop(), found.len()) {
            (Some(definition), 0) => Self::from_value(definition),
            (None, _) => Err(Error::Documents { found: 0 }),
            (Some(_), others) => Err(Error::Documents { found: others + 1 }),
        }
    }

    /// Validates a decoded CRD.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a CRD, or if the server would reject it.
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
        let mut errors = meta::check(tree, NameRule::Subdomain, false, false);
        errors.extend(crd::check(tree));
        if !errors.is_empty() {
            return Err(invalid(GROUP, "CustomResourceDefinition", &name, &errors));
        }
        let spec = &definition["spec"];
        let group = text(&spec["group"]);
        let mut versions = Vec::new();
        let all = spec["versions"].as_array().into_iter().flatten();
        for version in all.filter(|version| version["served"] == true) {
            let schema = Structural::parse(&version["schema"]["openAPIV3Schema"]);
            let schema = schema
                .map_err(|errors| invalid(GROUP, "CustomResourceDefinition", &name, &errors))?;
            let api_version = format!("{group}/{}", text(&version["name"]));
            versions.push(ServedVersion {
                api_version,
                schema: Arc::new(schema),
                scale: version["subresources"]["scale"].clone(),
            });
        }
        Ok(Self {
            name,
            group,
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

    /// Returns the kind that the CRD defines.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the group of the kind: `example.com`.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the `apiVersion` of each served version: `example.com/v1`.
    pub fn api_versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|it| it.api_version.as_str())
    }

    /// Returns true if the CRD defines the kind of an object and serves its version.
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

    /// Drops fields that the schema does not specify, and unknown metadata of the object and of
    /// embedded resources. Returns their paths.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not serve the kind and version of the object, or if the type or the
    /// metadata of an embedded resource cannot be decoded.
    pub fn prune(&self, object: &mut Value) -> Result<Vec<String>, Error> {
        let schema = &self.version(object)?.schema;
        let name = meta::text(meta::tree(object), "name").to_owned();
        let unreadable = |error| invalid(&self.group, &self.kind, &name, &[error]);
        let mut unknown = structural::prune_metadata(object).map_err(unreadable)?;
        unknown.extend(schema.prune(object));
        unknown.extend(schema.coerce(object).map_err(unreadable)?);
        Ok(unknown)
    }

    /// Fills in the defaults of the schema.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not serve the kind and version of the object, or if its defaults add
    /// more than 3 MiB.
    pub fn default(&self, object: &mut Value) -> Result<(), Error> {
        if self.version(object)?.schema.default(object) {
            return Ok(());
        }
        let why = "the defaults of the object are too large";
        Err(Error::Decode(why.to_owned()))
    }

    /// Validates a new object: its metadata, the schema and the CEL rules. A missing namespace is
    /// not an error, because clients fill it in.
    ///
    /// This is the last of the server's steps. It neither prunes nor fills in defaults, so call
    /// [`prune`](Self::prune) and [`default`](Self::default) first, in this order, to get the
    /// server's verdict: a required field may have a default, and unknown fields are not an error
    /// here.
    ///
    /// `status` is validated like the rest, so that a test can check what a controller writes. A
    /// server drops it from a new object if it is a subresource.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not serve the kind and version of the object, or with every problem
    /// that the server would report.
    pub fn validate(&self, object: &Value) -> Result<(), Error> {
        self.validated(object, None)
    }

    /// Validates an object that replaces `old`: transition rules apply, and what did not change is
    /// tolerated. Like [`validate`](Self::validate), it expects objects that are pruned and have
    /// their defaults.
    ///
    /// # Errors
    ///
    /// Fails if the CRD does not serve the kind and version of the object, or with every problem
    /// that the server would report.
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
        errors.extend(version.schema.validate_with(object, old, scale).errors);
        if errors.is_empty() {
            return Ok(());
        }
        Err(invalid(
            &self.group,
            &self.kind,
            meta::text(meta::tree(object), "name"),
            &errors,
        ))
    }
}

#[cfg(test)]
mod tests;
