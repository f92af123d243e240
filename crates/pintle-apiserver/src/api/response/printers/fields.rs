//! Reads the fields that printers show, formatted as kubectl prints them.

use jiff::Timestamp;
use serde_json::Value;

use super::age;

/// An object and the time at which it is printed.
pub(super) struct Fields<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl Fields<'_> {
    pub(super) fn at(&self, path: &str) -> &Value {
        self.object.pointer(path).unwrap_or(&Value::Null)
    }

    pub(super) fn str(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    pub(super) fn text(&self, path: &str) -> Value {
        self.str(path).into()
    }

    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name")
    }

    /// Returns the name, marked if an annotation makes this object the default of its kind.
    pub(super) fn name_or_default(&self, annotation: &str) -> Value {
        let name = self.str("/metadata/name");
        match self.annotation(annotation) {
            "true" => format!("{name} (default)").into(),
            _ => name.into(),
        }
    }

    pub(super) fn annotation(&self, key: &str) -> &str {
        let annotations = self.at("/metadata/annotations");
        annotations[key].as_str().unwrap_or_default()
    }

    /// Returns a string or number, or the placeholder for an absent value.
    pub(super) fn or(&self, path: &str, placeholder: &str) -> Value {
        match self.at(path) {
            Value::Null => placeholder.into(),
            Value::String(text) if text.is_empty() => placeholder.into(),
            Value::String(text) => text.clone().into(),
            other => other.to_string().into(),
        }
    }

    pub(super) fn number(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or(0)
    }

    pub(super) fn flag(&self, path: &str, default: bool) -> Value {
        self.at(path).as_bool().unwrap_or(default).into()
    }

    pub(super) fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        }
    }

    pub(super) fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns a list of strings, joined.
    pub(super) fn joined(&self, path: &str, separator: &str) -> String {
        let texts: Vec<&str> = self.list(path).iter().filter_map(Value::as_str).collect();
        texts.join(separator)
    }

    pub(super) fn deleting(&self) -> bool {
        !self.at("/metadata/deletionTimestamp").is_null()
    }

    /// Returns true if the status has this condition with the value `True`.
    pub(super) fn condition(&self, kind: &str) -> bool {
        let conditions = self.list("/status/conditions").iter();
        conditions
            .filter(|condition| condition["type"] == kind)
            .any(|condition| condition["status"] == "True")
    }

    pub(super) fn age(&self) -> Value {
        age::of(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    pub(super) fn age_of(&self, path: &str, placeholder: &str) -> Value {
        match self.at(path) {
            Value::Null => placeholder.into(),
            at => age::of(at, self.now).into(),
        }
    }

    pub(super) fn ready(&self) -> Value {
        let wanted = self.at("/spec/replicas").as_i64().unwrap_or(1);
        format!("{}/{wanted}", self.number("/status/readyReplicas")).into()
    }

    /// Returns the names and images of the containers at `path`.
    pub(super) fn containers(&self, path: &str) -> [Value; 2] {
        let all = self.list(path);
        let join = |field: &str| {
            let texts: Vec<&str> = all.iter().filter_map(|c| c[field].as_str()).collect();
            texts.join(",").into()
        };
        [join("name"), join("image")]
    }

    /// Returns a map of labels as `a=b,c=d`.
    pub(super) fn labels(&self, path: &str) -> Value {
        match self.at(path).as_object() {
            Some(map) if !map.is_empty() => {
                let pairs: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                    .collect();
                pairs.join(",").into()
            }
            _ => "<none>".into(),
        }
    }

    /// Returns a label selector in the syntax of `kubectl -l`.
    pub(super) fn selector(&self, path: &str) -> Value {
        let text = selector(self.at(path));
        if text.is_empty() {
            return "<none>".into();
        }
        text.into()
    }
}

/// Formats a label selector in the syntax of `kubectl -l`, ordered by key. The result is empty if
/// it selects everything.
pub(super) fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<(&str, String)> = labels
        .map(|(key, value)| {
            let value = value.as_str().unwrap_or_default();
            (key.as_str(), format!("{key}={value}"))
        })
        .collect();
    let expressions = selector["matchExpressions"].as_array();
    terms.extend(expressions.into_iter().flatten().map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, term)
    }));
    terms.sort_by(|one, other| one.0.cmp(other.0));
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

/// The maximum number of list items in a cell.
const SHOWN: usize = 3;

/// Returns the first three items of a list and the number of the others.
pub(super) fn first_three(mut all: Vec<String>, separator: &str) -> String {
    shortened(&mut all, SHOWN, separator)
}

/// Returns the first items of a list and the number of the others.
pub(super) fn shortened(all: &mut Vec<String>, most: usize, separator: &str) -> String {
    let more = all.len().saturating_sub(most);
    all.truncate(most);
    let shown = all.join(separator);
    if more > 0 {
        return format!("{shown} + {more} more...");
    }
    shown
}

#[cfg(test)]
mod tests;
