//! Splits an expression into tokens. Positions are counted in code points.

use crate::source::Errors;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    In,
    /// An operator or a bracket, identified by its text.
    Symbol,
    End,
}

#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// Returns the text as syntax errors quote it.
    pub(crate) fn shown(&self) -> String {
        if self.kind == Kind::End {
            "<EOF>".to_owned()
        } else {
            escape_whitespace(&self.text)
        }
    }
}

pub(crate) fn escape_whitespace(text: &str) -> String {
    text.replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t")
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

/// Splits `source` into tokens, ending with [`Kind::End`].
pub(crate) fn tokens(source: &str, errors: &mut Errors) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer {
        chars: &chars,
        at: 0,
    };
    let mut found = Vec::new();
    loop {
        lexer.skip_hidden();
        let start = lexer.at;
        let Some(first) = lexer.peek(0) else {
            break;
        };
        if let Some(kind) = lexer.token(first) {
            found.push(Token {
                kind,
                at: start,
                text: chars[start..lexer.at].iter().collect(),
            });
        } else {
            // The failing character belongs to the error, and reading resumes after it.
            let end = lexer.at.max(start + 1).min(chars.len());
            lexer.at = end;
            let text: String = chars[start..end].iter().collect();
            let text = escape_whitespace(&text);
            errors.report(
                Some(start),
                format!("Syntax error: token recognition error at: '{text}'"),
            );
        }
    }
    found.push(Token {
        kind: Kind::End,
        at: chars.len(),
        text: String::new(),
    });
    found
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip_hidden(&mut self) {
        loop {
            match self.peek(0) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Reads a token. On failure `at` is after the character that does not fit.
    fn token(&mut self, first: char) -> Option<Kind> {
        match first {
            'a'..='z' | 'A'..='Z' | '_' => self.word(first),
            '0'..='9' => Some(self.number()),
            '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => {
                self.at += 1;
                self.digits();
                self.exponent();
                Some(Kind::Float)
            }
            '"' | '\'' => self.string(false).then_some(Kind::String),
            '`' => self.escaped_ident(),
            '=' | '&' | '|' => {
                self.at += 1;
                let matched = self.peek(0) == Some(first);
                if self.peek(0).is_some() {
                    self.at += 1;
                }
                matched.then_some(Kind::Symbol)
            }
            '!' | '<' | '>' => {
                self.at += 1;
                if self.peek(0) == Some('=') {
                    self.at += 1;
                }
                Some(Kind::Symbol)
            }
            '[' | ']' | '{' | '}' | '(' | ')' | '.' | ',' | '-' | '?' | ':' | '+' | '*' | '/'
            | '%' => {
                self.at += 1;
                Some(Kind::Symbol)
            }
            _ => {
                self.at += 1;
                None
            }
        }
    }

    fn word(&mut self, first: char) -> Option<Kind> {
        let quote = |c: Option<char>| matches!(c, Some('"' | '\''));
        let (one, two) = (self.peek(1), self.peek(2));
        let raw = |c: Option<char>| matches!(c, Some('r' | 'R'));
        let bytes = matches!(first, 'b' | 'B');
        if raw(Some(first)) && quote(one) {
            self.at += 1;
            return self.string(true).then_some(Kind::String);
        }
        if bytes && quote(one) {
            self.at += 1;
            return self.string(false).then_some(Kind::Bytes);
        }
        if bytes && raw(one) && quote(two) {
            self.at += 2;
            return self.string(true).then_some(Kind::Bytes);
        }
        let start = self.at;
        while self
            .peek(0)
            .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            self.at += 1;
        }
        let text: String = self.chars[start..self.at].iter().collect();
        Some(match text.as_str() {
            "true" => Kind::True,
            "false" => Kind::False,
            "null" => Kind::Null,
            "in" => Kind::In,
            _ => Kind::Ident,
        })
    }

    fn escaped_ident(&mut self) -> Option<Kind> {
        self.at += 1;
        let start = self.at;
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
        while self.peek(0).is_some_and(inner) {
            self.at += 1;
        }
        let closed = self.peek(0) == Some('`') && self.at > start;
        if self.peek(0).is_some() {
            self.at += 1;
        }
        closed.then_some(Kind::EscapedIdent)
    }

    fn digits(&mut self) {
        while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn exponent(&mut self) -> bool {
        if !matches!(self.peek(0), Some('e' | 'E')) {
            return false;
        }
        let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
        if !self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
            return false;
        }
        self.at += 1 + sign;
        self.digits();
        true
    }

    fn number(&mut self) -> Kind {
        let hex = self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit());
        if hex {
            self.at += 2;
            while self.peek(0).is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
        } else {
            self.digits();
            let mut float = false;
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1;
                self.digits();
                float = true;
            }
            if self.exponent() || float {
                return Kind::Float;
            }
        }
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Kind::Uint;
        }
        Kind::Int
    }

    /// Reads a string from its opening quote. Returns false if it does not end or has a wrong
    /// escape.
    fn string(&mut self, raw: bool) -> bool {
        let Some(quote) = self.peek(0) else {
            return false;
        };
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if long { 3 } else { 1 };
        loop {
            let Some(c) = self.peek(0) else {
                return false;
            };
            if c == quote && (!long || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote)))
            {
                self.at += if long { 3 } else { 1 };
                return true;
            }
            self.at += 1;
            match c {
                '\n' | '\r' if !long => return false,
                '\\' if !raw && !self.escape() => {
                    return false;
                }
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> bool {
        let Some(c) = self.peek(0) else {
            return false;
        };
        self.at += 1;
        let hex = |c: char| c.is_ascii_hexdigit();
        let octal = |c: char| matches!(c, '0'..='7');
        let (count, fits): (usize, &dyn Fn(char) -> bool) = match c {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => (0, &hex),
            'x' | 'X' => (2, &hex),
            'u' => (4, &hex),
            'U' => (8, &hex),
            '0'..='3' => (2, &octal),
            _ => return false,
        };
        for _ in 0..count {
            let Some(c) = self.peek(0) else {
                return false;
            };
            self.at += 1;
            if !fits(c) {
                return false;
            }
        }
        true
    }
}

/// Returns the value of a string or bytes literal, given without the `b` prefix.
pub(crate) fn unquote(text: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    const FAILED: &str = "unable to unescape string";
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let quotes = if text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\"")) {
        3
    } else {
        1
    };
    let inner = text
        .get(quotes..text.len().saturating_sub(quotes))
        .ok_or(FAILED)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    let mut utf8 = [0; 4];
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
            continue;
        }
        let Some(c) = chars.next() else {
            return Err("unable to unescape string, found '\\' as last character");
        };
        let simple = match c {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => u8::try_from(c).ok(),
            _ => None,
        };
        if let Some(byte) = simple {
            out.push(byte);
            continue;
        }
        let (count, radix, mut value) = match c {
            'x' | 'X' => (2, 16, 0),
            'u' if !bytes => (4, 16, 0),
            'U' if !bytes => (8, 16, 0),
            '0'..='3' => (2, 8, c.to_digit(8).unwrap_or_default()),
            _ => return Err(FAILED),
        };
        for _ in 0..count {
            let digit = chars.next().and_then(|c| c.to_digit(radix)).ok_or(FAILED)?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
        }
        if bytes {
            out.push(u8::try_from(value).map_err(|_| FAILED)?);
        } else {
            let c = char::from_u32(value).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
        }
    }
    Ok(out)
}
