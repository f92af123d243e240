//! Errors with their position in the source, formatted as cel-go does.

use std::fmt::{self, Write as _};

/// The maximum number of errors reported for one expression.
const MAX_ERRORS: usize = 100;

/// The longest source line shown in a message, in bytes.
const MAX_SNIPPET: usize = 16_384;

/// One error in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The message.
    pub message: String,
    /// The line, counted from 1; 0 if the error is about the whole expression.
    pub line: usize,
    /// The column in code points, counted from 1; 0 if the error is about the whole expression.
    pub column: usize,
}

/// Why an expression was rejected: one or more [`Issue`]s.
///
/// It displays like cel-go's error: each issue with its place, the source line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    text: String,
    issues: Vec<Issue>,
    planning: bool,
}

impl CompileError {
    /// Creates the error of an expression with an invalid pattern or a constant part that cannot be
    /// evaluated. cel-go detects this when it prepares the program, and shows no source.
    pub(crate) fn planning(why: impl Into<String>) -> Self {
        let message = why.into();
        Self {
            text: message.clone(),
            issues: vec![Issue {
                message,
                line: 0,
                column: 0,
            }],
            planning: true,
        }
    }

    /// Returns true if the expression is well-typed, but has an invalid pattern or a constant part
    /// that cannot be evaluated, such as `int('x')`.
    #[must_use]
    pub fn is_planning(&self) -> bool {
        self.planning
    }

    /// Returns the errors, in source order.
    #[must_use]
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CompileError {}

/// Collects errors, each with the code point it occurs at.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    found: Vec<(Option<usize>, String)>,
    more: usize,
}

impl Errors {
    /// Reports an error at a code point, or for the whole expression.
    pub(crate) fn report(&mut self, at: Option<usize>, message: impl Into<String>) {
        if self.found.len() < MAX_ERRORS {
            self.found.push((at, message.into()));
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Formats the errors, sorted by place.
    pub(crate) fn finish(self, source: &str) -> CompileError {
        let lines: Vec<&str> = source.split('\n').collect();
        let mut starts = Vec::with_capacity(lines.len());
        let mut offset = 0;
        for line in &lines {
            starts.push(offset);
            offset += line.chars().count() + 1;
        }
        let mut issues: Vec<Issue> = self
            .found
            .into_iter()
            .map(|(at, message)| {
                let Some(at) = at else {
                    return Issue {
                        message,
                        line: 0,
                        column: 0,
                    };
                };
                let line = starts.partition_point(|&start| start <= at).max(1);
                let column = at - starts.get(line - 1).copied().unwrap_or_default() + 1;
                Issue {
                    message,
                    line,
                    column,
                }
            })
            .collect();
        issues.sort_by_key(|issue| (issue.line, issue.column));
        let mut text = String::new();
        for issue in &issues {
            if !text.is_empty() {
                text.push('\n');
            }
            show(issue, &lines, &mut text);
        }
        if self.more > 0 {
            let _ = write!(text, "\n{} more errors were truncated", self.more);
        }
        CompileError {
            text,
            issues,
            planning: false,
        }
    }
}

fn show(issue: &Issue, lines: &[&str], out: &mut String) {
    let Issue {
        message,
        line,
        column,
    } = issue;
    if *line == 0 {
        // cel-go numbers the absent place -1, and shows no source.
        let _ = write!(out, "ERROR: <input>:-1:0: {message}");
        return;
    }
    let _ = write!(out, "ERROR: <input>:{line}:{column}: {message}");
    let Some(snippet) = lines.get(line - 1).filter(|line| line.len() <= MAX_SNIPPET) else {
        return;
    };
    out.push_str("\n | ");
    out.push_str(&snippet.replace('\t', " "));
    out.push_str("\n | ");
    let mut chars = snippet.chars();
    for _ in 1..*column {
        match chars.next() {
            Some(c) if c.len_utf8() > 1 => out.push('\u{ff0e}'),
            Some(_) => out.push('.'),
            None => break,
        }
    }
    match chars.next() {
        Some(c) if c.len_utf8() > 1 => out.push('\u{ff3e}'),
        _ => out.push('^'),
    }
}
