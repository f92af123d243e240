//! Failures that earlier runs found. They run first.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::Options;
use crate::{Report, plan::Plan};

const HEADER: &str = "\
# Failures that pintle-trials found. They run first; keep this file under version control.
";

/// Returns the file of a check.
pub(crate) fn file(options: &Options) -> PathBuf {
    let name = format!("{}.txt", options.file_name());
    options.regressions.join(name)
}

/// The stored failures of a check.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) plans: Vec<Plan>,
    /// The problems of unreadable entries, with their places.
    pub(crate) errors: Vec<String>,
}

/// Returns the content of the file, or `None` if there is no file.
fn read(file: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// Loads earlier failures.
pub(crate) fn load(options: &Options) -> Known {
    let file = file(options);
    let mut known = Known::default();
    let text = match read(&file) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            known.errors.push(error);
            return known;
        }
    };
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        match line.parse() {
            Ok(plan) => known.plans.push(plan),
            Err(error) => {
                let place = format!("{}:{}", file.display(), i + 1);
                let error = format!("{place}: {error}; correct the line or remove it");
                known.errors.push(error);
            }
        }
    }
    known
}

/// Adds new failures to the file.
pub(crate) fn save(options: &Options, report: &mut Report) {
    let known: BTreeSet<Plan> = load(options).plans.into_iter().collect();
    let new: BTreeSet<&Plan> = report
        .failures
        .iter()
        .map(|failure| &failure.plan)
        .filter(|plan| !plan.faults.is_empty() && !known.contains(*plan))
        .collect();
    if new.is_empty() {
        return;
    }
    let file = file(options);
    let mut text = match read(&file) {
        Ok(text) => text.unwrap_or_else(|| HEADER.to_owned()),
        // Writing would lose the failures that are stored there.
        Err(error) => {
            report.note(format!("new failures were not saved: {error}"));
            return;
        }
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for plan in new {
        text += &plan.to_string();
        text.push('\n');
    }
    let stored = fs::create_dir_all(&options.regressions).and_then(|()| fs::write(&file, text));
    match stored {
        Ok(()) => report.regressions = Some(file),
        Err(error) => report.note(format!("cannot write {}: {error}", file.display())),
    }
}
