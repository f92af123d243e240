//! The printers of built-in kinds: their columns and cells.
//!
//! A kind without a printer shows its name and creation time, as in kube-apiserver.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, cluster, core, fields::Fields, networking, storage, workloads};

/// How a kind is printed in a table.
pub(super) struct Printer {
    /// `Name` or `Name:type`; the type is `string` unless stated, and a leading `+` marks the
    /// columns of `kubectl get -o wide`.
    pub(super) columns: &'static [&'static str],
    /// Returns one cell for each column.
    pub(super) cells: fn(&Fields<'_>) -> Vec<Value>,
}

const DEFAULT: Printer = Printer {
    columns: &["Name", "Created At:date"],
    cells: |fields| {
        vec![
            fields.name(),
            fields.at("/metadata/creationTimestamp").clone(),
        ]
    },
};

fn printer(group: &str, plural: &str) -> Printer {
    workloads::printer(group, plural)
        .or_else(|| core::printer(group, plural))
        .or_else(|| networking::printer(group, plural))
        .or_else(|| storage::printer(group, plural))
        .or_else(|| cluster::printer(group, plural))
        .unwrap_or(DEFAULT)
}

fn column(text: &str) -> Column {
    let (text, priority) = match text.strip_prefix('+') {
        Some(rest) => (rest, 1),
        None => (text, 0),
    };
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    Column::new(name, kind, priority)
}

pub(super) fn columns(group: &str, plural: &str) -> Vec<Column> {
    let columns = printer(group, plural).columns;
    columns.iter().map(|text| column(text)).collect()
}

/// Returns the cells of a stored object.
pub(super) fn cells(group: &str, plural: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    (printer(group, plural).cells)(&Fields { object, now })
}

#[cfg(test)]
mod tests;
