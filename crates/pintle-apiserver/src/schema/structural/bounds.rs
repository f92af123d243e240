//! Limits on CEL expressions, checked before they are parsed.
//!
//! The parser and the interpreter recurse into an expression: once per bracket and once per
//! operator in a chain such as `1 + 1 + 1`. A stack overflow cannot be caught, so a hostile rule
//! could abort the process. This module therefore computes an upper bound of the nesting from the
//! tokens alone, without recursion, and applies the limits of cel-go: the length of the text and
//! its nesting. Expressions within the limits that may not fit on a small stack run on a thread
//! with a larger one.

use std::{iter::Peekable, str::Chars, thread};

/// The maximum length of an expression, in characters.
const MAX_CHARACTERS: usize = 100_000;

/// The maximum nesting of an expression.
const MAX_LEVELS: usize = 250;

/// Stack bytes per nesting level while parsing and evaluating. In debug builds one bracket was
/// measured at 170 KiB in the parser and 55 KiB in the interpreter; these values add a margin.
pub(super) const PARSING: usize = 192 * 1024;
pub(super) const EVALUATING: usize = 64 * 1024;

/// Work that needs no more than this runs on the current thread.
const SMALL_STACK: usize = 768 * 1024;

/// Stack for everything around the expression.
const MARGIN: usize = 2 * 1024 * 1024;

/// Returns an upper bound of the nesting of an expression.
///
/// # Errors
///
/// Returns cel-go's message if the expression exceeds a limit.
pub(super) fn levels(expression: &str) -> Result<usize, String> {
    let size = expression.chars().count();
    if size > MAX_CHARACTERS {
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_CHARACTERS}"
        ));
    }
    let levels = height(expression).unwrap_or_else(|| {
        // Not an expression. The parser reports why, but it may interpret any part of the text.
        let is_word = |c: &char| c.is_ascii_alphanumeric();
        expression.chars().filter(|c| !is_word(c)).count()
    });
    if levels > MAX_LEVELS {
        return Err("ERROR: <input>:-1:0: max recursion depth exceeded".to_owned());
    }
    Ok(levels)
}

/// Runs `work` with at least `stack` bytes of stack. Returns `None` if no thread can be spawned or
/// if `work` panics.
pub(super) fn with_stack<T: Send>(stack: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    if stack <= SMALL_STACK {
        return Some(work());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cel".to_owned());
        let running = thread.stack_size(stack + MARGIN).spawn_scoped(scope, work);
        running.ok()?.join().ok()
    })
}

/// The part of an expression between two brackets, or the whole expression, as read so far.
#[derive(Default)]
struct Inside {
    /// The height of the tallest complete term.
    tallest: usize,
    /// The height of the tallest operand of the current term, and the number of its operators.
    /// Whatever the precedence, the term is no taller than their sum.
    operand: usize,
    operators: usize,
    /// The number of conditions, which nest to the right.
    conditions: usize,
}

impl Inside {
    /// Ends a term. The terms of `&&` and `||` form a balanced tree, and list items are siblings.
    fn end_term(&mut self) {
        self.tallest = self.height();
        self.operand = 0;
        self.operators = 0;
    }

    fn height(&self) -> usize {
        self.tallest.max(self.operand + self.operators)
    }
}

/// The tokens that matter for nesting.
enum Token {
    Open,
    Close,
    /// A name or a literal.
    Operand,
    /// A binary operator or a selection.
    Operator,
    /// `?`
    Condition,
    /// The end of a term: `&&`, `||`, `:` or a comma.
    End,
    /// Not part of any expression.
    Unknown,
}

/// Returns an upper bound of the nesting, or `None` if the text is not an expression.
fn height(expression: &str) -> Option<usize> {
    let mut outside: Vec<Inside> = Vec::new();
    let mut inside = Inside::default();
    // After an operand, `-` is a binary operator and `[` is an index.
    let mut after_operand = false;
    let mut text = Text {
        rest: expression.chars().peekable(),
    };
    while let Some((token, start)) = text.token() {
        match token {
            Token::Open => {
                inside.operators += usize::from(after_operand && start == '[');
                outside.push(std::mem::take(&mut inside));
            }
            Token::Close => {
                let height = inside.height() + inside.conditions + 1;
                inside = outside.pop()?;
                inside.operand = inside.operand.max(height);
            }
            Token::Operand => inside.operand = inside.operand.max(1),
            Token::Operator => inside.operators += usize::from(after_operand || start != '-'),
            Token::Condition => {
                inside.conditions += 1;
                inside.end_term();
            }
            Token::End => inside.end_term(),
            Token::Unknown => return None,
        }
        after_operand = matches!(token, Token::Operand | Token::Close);
    }
    let whole = outside.is_empty();
    whole.then(|| inside.height() + inside.conditions)
}

fn operand(read: Option<()>) -> Token {
    match read {
        Some(()) => Token::Operand,
        None => Token::Unknown,
    }
}

struct Text<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Text<'_> {
    /// The next token and its first character.
    fn token(&mut self) -> Option<(Token, char)> {
        loop {
            let start = self.rest.next()?;
            let token = match start {
                ' ' | '\t' | '\r' | '\n' | '\u{c}' => continue,
                '/' if self.takes('/') => {
                    while self.rest.next().is_some_and(|c| c != '\n') {}
                    continue;
                }
                // The parser reads a run of `!` in a loop.
                '!' if !self.takes('=') => continue,
                '(' | '[' | '{' => Token::Open,
                ')' | ']' | '}' => Token::Close,
                '?' => Token::Condition,
                ':' | ',' => Token::End,
                '&' | '|' if self.takes(start) => Token::End,
                '=' if self.takes('=') => Token::Operator,
                '<' | '>' => {
                    self.takes('=');
                    Token::Operator
                }
                '!' | '.' | '+' | '-' | '*' | '/' | '%' => Token::Operator,
                '"' | '\'' => operand(self.string(start, false)),
                '`' => {
                    let is_name = |c: &char| c.is_ascii_alphanumeric() || "_.-/ ".contains(*c);
                    while self.rest.next_if(is_name).is_some() {}
                    operand(self.takes('`').then_some(()))
                }
                c if c.is_ascii_alphanumeric() || c == '_' => self.word(c),
                _ => Token::Unknown,
            };
            return Some((token, start));
        }
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.rest.next_if_eq(&wanted).is_some()
    }

    /// A name, a number, or a string with a prefix.
    fn word(&mut self, start: char) -> Token {
        let mut word = String::from(start);
        let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        while let Some(c) = self.rest.next_if(is_word) {
            word.push(c);
        }
        let word = word.to_ascii_lowercase();
        if let Some(quote) = self.rest.next_if(|c| matches!(c, '"' | '\'')) {
            return match word.as_str() {
                "r" | "br" => operand(self.string(quote, true)),
                "b" => operand(self.string(quote, false)),
                // No string follows a name directly.
                _ => Token::Unknown,
            };
        }
        match word.as_str() {
            "in" => Token::Operator,
            _ => Token::Operand,
        }
    }

    /// Reads the rest of a string after its first quote. Returns `None` if the string is malformed:
    /// the lexer then skips the quote and reads the content as code, so it must not be ignored
    /// here.
    fn string(&mut self, quote: char, raw: bool) -> Option<()> {
        let mut long = false;
        if self.takes(quote) {
            if !self.takes(quote) {
                return Some(());
            }
            long = true;
        }
        let mut quotes = 0;
        loop {
            let c = self.rest.next()?;
            quotes = if c == quote { quotes + 1 } else { 0 };
            match c {
                _ if quotes == if long { 3 } else { 1 } => return Some(()),
                '\\' if !raw => self.escape()?,
                '\n' | '\r' if !long => return None,
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let kind = self.rest.next()?;
        let (digits, radix) = match kind {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => (0, 16),
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => (2, 8),
            _ => return None,
        };
        for _ in 0..digits {
            self.rest.next_if(|c| c.is_digit(radix))?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
