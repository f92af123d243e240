//! The JSON paths of printer columns: `.spec.replicas`, `.items[0].name`, `.list[*].x`,
//! `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// Returns the values a path selects, in order. An unsupported path selects nothing.
pub(crate) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let path = path
        .trim()
        .trim_start_matches('{')
        .trim_end_matches('}')
        .trim_start_matches('$');
    let mut found = vec![root];
    let Some(steps) = steps(path) else {
        return Vec::new();
    };
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|value| step.apply(value))
            .collect();
    }
    found
}

enum Step<'p> {
    Field(String),
    Index(i64),
    All,
    /// Items whose field at the path equals the text.
    Where(&'p str, String),
}

impl Step<'_> {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(at) => {
                let Some(list) = value.as_array() else {
                    return Vec::new();
                };
                let place = match usize::try_from(*at) {
                    Ok(place) => Some(place),
                    // Negative indexes count from the end.
                    Err(_) => usize::try_from(at.unsigned_abs())
                        .ok()
                        .and_then(|back| list.len().checked_sub(back)),
                };
                place
                    .and_then(|place| list.get(place))
                    .into_iter()
                    .collect()
            }
            Self::All => match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Where(path, wanted) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|item| {
                    find(item, path).first().is_some_and(|found| match found {
                        Value::String(text) => text == wanted,
                        other => other.to_string() == *wanted,
                    })
                })
                .collect(),
        }
    }
}

fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            steps.push(bracket(&inner[..end])?);
            rest = &inner[end + 1..];
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            if rest.starts_with('[') {
                continue;
            }
            let mut name = String::new();
            let mut chars = rest.char_indices();
            let mut end = rest.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            if name.is_empty() {
                return if rest.is_empty() { Some(steps) } else { None };
            }
            steps.push(if name == "*" {
                Step::All
            } else {
                Step::Field(name)
            });
            rest = &rest[end..];
        }
    }
    Some(steps)
}

/// Returns the end of a bracket, ignoring brackets in quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step<'_>> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (path, value) = filter.split_once("==")?;
        let path = path.trim().strip_prefix('@')?;
        let value = value.trim().trim_matches(|c| c == '"' || c == '\'');
        return Some(Step::Where(path, value.to_owned()));
    }
    let quoted = inner.trim_matches(|c| c == '"' || c == '\'');
    if quoted.len() < inner.len() {
        return Some(Step::Field(quoted.to_owned()));
    }
    inner.parse().ok().map(Step::Index)
}

#[cfg(test)]
mod tests;
