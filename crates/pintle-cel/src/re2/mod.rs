//! RE2's syntax, as Go's `regexp` package implements it, on top of the `regex` crate.
//!
//! The two syntaxes look alike but differ in what they accept and mean. In RE2, `\d`, `\w`, `\s`
//! and `\b` are ASCII, brackets have no set operators, `{` may be a literal, `\<` is one, and
//! repetition counts are limited to 1000. A pattern is therefore parsed here with RE2's rules and
//! Go's errors, and rewritten in a small, unambiguous subset of the other syntax.
//!
//! Parsing takes time and memory in proportion to the pattern. A compiled pattern takes far more:
//! 1000 copies of `\p{L}` are 50 MB. [`Pattern`] therefore keeps the text and an estimate of the
//! compiled size, and the compiled form lives in a cache with a total bound.

mod cache;
mod class;
mod node;
mod parse;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use regex::Regex;

/// The largest estimated size of one compiled pattern, in bytes. Go's limit is 128 MiB for its
/// own, more compact form.
const MAX_SIZE: usize = 16 * 1024 * 1024;

/// A valid pattern in RE2's syntax, compiled when it is used.
///
/// # Examples
///
/// ```
/// let pattern = pintle_cel::Pattern::parse(r"^\w{1,63}$")?;
/// assert!(pattern.is_match("name")?);
/// assert!(!pattern.is_match("größe")?);
///
/// let error = pintle_cel::Pattern::parse("a**").unwrap_err();
/// assert_eq!(error, "error parsing regexp: invalid nested repetition operator: `**`");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Arc<str>,
    size: usize,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// Fails with Go's message if the pattern is not valid, or if its compiled form would exceed
    /// 16 MiB.
    pub fn parse(text: impl Into<Arc<str>>) -> Result<Self, String> {
        let text = text.into();
        let (_, size) = translate(&text)?;
        Ok(Self { text, size })
    }

    /// Returns the pattern's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns an estimate of the memory that the compiled pattern takes, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns true if the pattern matches anywhere in the text.
    ///
    /// # Errors
    ///
    /// Fails if the pattern cannot be compiled, which no valid pattern is known to cause.
    pub fn is_match(&self, text: &str) -> Result<bool, String> {
        Ok(self.compiled()?.is_match(text))
    }

    /// Returns the compiled pattern, from the cache where possible.
    pub(crate) fn compiled(&self) -> Result<Regex, String> {
        cache::get(&self.text, self.size)
    }
}

/// Translates a pattern. Returns it with an estimate of its compiled size.
fn translate(text: &str) -> Result<(String, usize), String> {
    let (node, size) = parse::parse(text).map_err(|error| error.to_string())?;
    let mut out = String::with_capacity(text.len() * 2);
    node.write(&mut out);
    Ok((out, size))
}
