//! The `fieldPath` of a rule: `.spec.name` or `['a.b']`.

use super::super::node::Node;

/// Returns the path that a `fieldPath` names and the schema there, or why it is not valid.
pub(crate) fn normalize<'s>(path: &str, schema: &'s Node) -> Result<(String, &'s Node), String> {
    let mut out = String::new();
    let mut here = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 {
                return Err("unexpected end of JSON path".to_owned());
            }
            name = after[..end].to_owned();
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let quoted = after.strip_prefix('\'');
            let quoted =
                quoted.ok_or_else(|| format!("expected single quoted string but got {after}"))?;
            let end = closing_quote(quoted).ok_or("unexpected end of JSON path")?;
            name = unescape(&quoted[..end])?;
            rest = quoted[end + 1..]
                .strip_prefix(']')
                .ok_or("unexpected end of JSON path")?;
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            let found = rest.get(..end).unwrap_or(rest);
            return Err(format!("expected [ or . but got: {found}"));
        }
        if !here.properties.is_empty() {
            here = here
                .properties
                .get(&name)
                .ok_or("does not refer to a valid field")?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else if let Some(values) = here.additional_schema() {
            here = values;
            out.push('[');
            out.push_str(&name);
            out.push(']');
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
    }
    Ok((out, here))
}

/// Finds the first quote that does not follow a backslash.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).find(|&i| bytes[i] == b'\'' && (i == 0 || bytes[i - 1] != b'\\'))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(c @ ('\'' | '\\')) => c,
            other => {
                let escape: String = other.into_iter().collect();
                return Err(format!(
                    "invalid string literal: invalid escape char \\{escape}"
                ));
            }
        });
    }
    Ok(out)
}
