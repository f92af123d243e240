//! `pintle-cluster validate`: checks CRDs and their objects.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use pintle_apiserver::crd::{self, Crd};
use serde_json::Value;

/// What was found.
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
    let mut objects = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("reading {} failed", file.display()))?;
        let documents = match crd::documents(&text) {
            Ok(documents) => documents,
            Err(error) => {
                report.problem(file, &error.to_string());
                continue;
            }
        };
        for document in documents {
            if document["kind"] == "CustomResourceDefinition" {
                match Crd::from_value(document) {
                    Ok(crd) => crds.push(crd),
                    Err(error) => report.problem(file, &error.to_string()),
                }
            } else {
                objects.push((file, document));
            }
        }
    }
    let (mut checked, mut skipped) = (0, 0);
    for (file, object) in objects {
        match crds.iter().find(|crd| crd.defines(&object)) {
            Some(crd) => {
                checked += 1;
                report.object(file, crd, object)?;
            }
            None => skipped += 1,
        }
    }
    writeln!(
        report.text,
        "{} CRDs and {checked} objects checked, {skipped} objects of other kinds skipped: {} problems",
        crds.len(),
        report.problems,
    )?;
    Ok(report)
}

/// Adds a file, or all YAML and JSON files below a directory.
fn collect(path: &Path, named: bool, files: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let failed = || format!("reading {} failed", path.display());
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

    /// Checks an object in the steps of a server that rejects unknown fields.
    fn object(&mut self, file: &Path, crd: &Crd, mut object: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        for field in crd.prune(&mut object)? {
            self.problem(
                file,
                &format!("{} {name:?}: unknown field {field:?}", crd.kind()),
            );
        }
        crd.default(&mut object)?;
        if let Err(error) = crd.validate(&object) {
            self.problem(file, &error.to_string());
        }
        Ok(())
    }
}
