//! A Rust lexer that is just sufficient to distinguish code, comments and literals.
//!
//! The checks search source text with regular expressions, which must not match inside strings or,
//! for some checks, comments. [`mask`] blanks those without moving any line.

/// The parts of the source that [`mask`] leaves readable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Code,
    CodeAndComments,
}

/// Returns `source` with literals (and, for [`Keep::Code`], comments) replaced by spaces.
pub(crate) fn mask(source: &str, keep: Keep) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut rest = source;
    let mut after_word = false;
    while let Some(c) = rest.chars().next() {
        let (length, readable) = token(rest, after_word, keep);
        let (text, tail) = rest.split_at(length.max(c.len_utf8()));
        if readable {
            masked.push_str(text);
        } else {
            masked.extend(text.chars().map(|c| if c == '\n' { c } else { ' ' }));
        }
        after_word = text
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        rest = tail;
    }
    masked
}

/// Returns the length of the token at the start of `rest` and whether it stays readable. Code is
/// consumed one character at a time. With `after_word`, an `r` or `b` continues an identifier.
fn token(rest: &str, after_word: bool, keep: Keep) -> (usize, bool) {
    let comments = keep == Keep::CodeAndComments;
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), comments);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), comments);
    }
    if rest.starts_with('"') {
        return (string(rest), false);
    }
    if let Some(length) = char_literal(rest) {
        return (length, false);
    }
    if !after_word && let Some(length) = raw_string(rest) {
        return (length, false);
    }
    (0, true)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'x'`, `'\n'`, `'\u{1F980}'`; not the lifetime `'x`.
fn char_literal(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    if inside.starts_with('\\') {
        let end = inside.char_indices().skip(2).find(|(_, c)| *c == '\'')?.0;
        return Some(1 + end + 1);
    }
    let c = inside.chars().next()?;
    inside[c.len_utf8()..]
        .starts_with('\'')
        .then_some(1 + c.len_utf8() + 1)
}

/// `r"…"`, `br#"…"#` and the like.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - after.len();
    let after = after.strip_prefix('r').filter(|_| prefix <= 1)?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let start = prefix + 1 + hashes + 1;
    Some(
        rest[start..]
            .find(&close)
            .map_or(rest.len(), |end| start + end + close.len()),
    )
}

#[cfg(test)]
mod tests;
