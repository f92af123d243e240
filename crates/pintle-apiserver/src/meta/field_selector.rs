//! Field selectors: `metadata.name=x,status.phase!=Running`.

/// One requirement of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) equal: bool,
    pub(crate) value: String,
}

/// Parses a field selector. The error is upstream's message.
pub(crate) fn parse(text: &str) -> Result<Vec<FieldRequirement>, String> {
    split_terms(text)
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(|t| requirement(&t))
        .collect()
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(term) = terms.last_mut() {
            term.push(c);
        }
    }
    terms
}

fn requirement(term: &str) -> Result<FieldRequirement, String> {
    let invalid = || format!("invalid selector: '{term}'; can't understand '{term}'");
    let at = term.find('=').ok_or_else(invalid)?;
    let (left, right) = (&term[..at], &term[at + 1..]);
    let (field, equal, value) = match left.strip_suffix('!') {
        Some(field) => (field, false, right),
        None => (left, true, right.strip_prefix('=').unwrap_or(right)),
    };
    Ok(FieldRequirement {
        field: field.to_owned(),
        equal,
        value: unescape(value)?,
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    ));
                }
                None => {
                    return Err("invalid field selector: invalid escape sequence: \\".to_owned());
                }
            },
            '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {c}"
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
