//! Failures that earlier runs found. They run first.

use std::{collections::BTreeSet, fs, path::PathBuf};

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

/// Returns the plans of earlier failures.
pub(crate) fn load(options: &Options) -> Vec<Plan> {
    let text = fs::read_to_string(file(options)).unwrap_or_default();
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .filter_map(|line| line.parse().ok())
        .collect()
}

/// Adds new failures to the file.
pub(crate) fn save(options: &Options, report: &mut Report) {
    let known: BTreeSet<Plan> = load(options).into_iter().collect();
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
    let mut text = fs::read_to_string(&file).unwrap_or_else(|_| HEADER.to_owned());
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
