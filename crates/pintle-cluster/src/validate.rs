//! `pintle-cluster validate`: checks CRDs and their objects.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use pintle_apiserver::crd::{self, Crd};
use serde_json::Value;

/// The outcome of a check.
pub(crate) struct Report {
    /// One line per problem, and a summary.
    pub(crate) text: String,
    pub(crate) problems: usize,
}

/// Checks all files below the paths: CRDs first, then the objects of their kinds.
pub(crate) fn run(paths: &[PathBuf]) -> anyhow::Result<Report> {
    let mut files = BTreeSet::new();
    for path in paths {
        collect(path, true, &mut files)?;
    }
    let mut report = Report {
        text: String::new(),
        problems: 0,
    };
    let mut crds = Vec::new();
    let mut refused = Vec::new();
    let mut objects = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let documents = match crd::documents(&text) {
            Ok(documents) => documents,
            Err(error) => {
                report.problem(file, &error.to_string());
                continue;
            }
        };
        for document in documents {
            if document["kind"] == "CustomResourceDefinition" {
                let kind = Kind::defined_by(&document);
                match Crd::from_value(document) {
                    Ok(crd) => crds.push(crd),
                    Err(error) => {
                        report.problem(file, &error.to_string());
                        refused.push(kind);
                    }
                }
            } else {
                objects.push((file, document));
            }
        }
    }
    let (mut checked, mut unchecked, mut skipped) = (0, 0, 0);
    for (file, object) in objects {
        let kind = Kind::of(&object);
        let mut same_kind = crds.iter().filter(|crd| kind.is_defined_by(crd));
        let mut serving = same_kind.clone().filter(|crd| crd.defines(&object));
        if let Some(crd) = serving.next().or_else(|| same_kind.next()) {
            checked += 1;
            report.object(file, crd, object);
        } else if refused.contains(&kind) {
            unchecked += 1;
            report.note(file, &object, "not checked, because its CRD is invalid");
        } else {
            skipped += 1;
        }
    }
    let unchecked = match unchecked {
        0 => String::new(),
        some => format!("{some} objects of invalid CRDs not checked, "),
    };
    writeln!(
        report.text,
        "{} CRDs and {checked} objects checked, {unchecked}{skipped} objects of other kinds \
         skipped: {} problems",
        crds.len() + refused.len(),
        report.problems,
    )?;
    Ok(report)
}

/// A kind in any version.
#[derive(PartialEq)]
struct Kind {
    group: String,
    kind: String,
}

impl Kind {
    /// Returns the kind of an object.
    fn of(object: &Value) -> Self {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: text(&object["kind"]),
        }
    }

    /// Returns the kind that a CRD defines, which may be invalid.
    fn defined_by(crd: &Value) -> Self {
        Self {
            group: text(&crd["spec"]["group"]),
            kind: text(&crd["spec"]["names"]["kind"]),
        }
    }

    fn is_defined_by(&self, crd: &Crd) -> bool {
        self.group == crd.group() && self.kind == crd.kind()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Adds a file, or all YAML and JSON files in a directory.
fn collect(path: &Path, named: bool, files: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let failed = || format!("failed to read {}", path.display());
    if std::fs::metadata(path).with_context(failed)?.is_dir() {
        for entry in std::fs::read_dir(path).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            // A link could lead back here.
            if !entry.file_type().with_context(failed)?.is_symlink() {
                collect(&entry.path(), false, files)?;
            }
        }
        return Ok(());
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    if named || matches!(extension, Some("yaml" | "yml" | "json")) {
        files.insert(path.to_owned());
    }
    Ok(())
}

impl Report {
    fn problem(&mut self, file: &Path, why: &str) {
        self.problems += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}: {why}", file.display());
    }

    /// Reports something that is not counted as a problem.
    fn note(&mut self, file: &Path, object: &Value, what: &str) {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}: {kind} {name:?}: {what}", file.display());
    }

    /// Checks an object in the same steps as a server that rejects unknown fields.
    fn object(&mut self, file: &Path, crd: &Crd, mut object: Value) {
        if let Err(error) = self.try_object(file, crd, &mut object) {
            let (kind, name) = (crd.kind(), text(&object["metadata"]["name"]));
            self.problem(
                file,
                &match error {
                    error @ crd::Error::Invalid { .. } => error.to_string(),
                    error => format!("{kind} {name:?}: {error}"),
                },
            );
        }
    }

    fn try_object(&mut self, file: &Path, crd: &Crd, object: &mut Value) -> Result<(), crd::Error> {
        for field in crd.prune(object)? {
            let (kind, name) = (crd.kind(), text(&object["metadata"]["name"]));
            self.problem(file, &format!("{kind} {name:?}: unknown field {field:?}"));
        }
        crd.default(object)?;
        crd.validate(object)
    }
}
