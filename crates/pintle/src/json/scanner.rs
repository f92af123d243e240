//! A cursor over complete JSON text.

use std::borrow::Cow;

use super::{is_space, nesting::Nesting, quote_or_backslash};

/// A byte range of JSON text. Input beyond 4 GB is rejected before any span is taken, so 32 bits
/// are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Returns the span from `start` to `end`. The caller has checked that the text is shorter than
    /// 4 GB.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let narrow = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: narrow(start),
            end: narrow(end),
        }
    }

    /// Returns this part of `text`; empty if the text is shorter.
    pub(crate) fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Like [`of`](Self::of), for bytes that may not be UTF-8.
    pub(crate) fn of_bytes(self, bytes: &[u8]) -> &[u8] {
        bytes
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// The inside of a string literal, with its escapes as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    pub(crate) span: Span,
    pub(crate) escaped: bool,
}

impl Literal {
    /// Returns the unescaped string.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, Malformed> {
        let raw = self.span.of(text);
        if !self.escaped {
            return Ok(Cow::Borrowed(raw));
        }
        let quoted = text.get(self.span.start as usize - 1..self.span.end as usize + 1);
        serde_json::from_str::<String>(quoted.unwrap_or_default())
            .map(Cow::Owned)
            .map_err(|_| Malformed {
                at: self.span.start as usize,
                expected: "a valid escape",
            })
    }
}

/// Where the input stopped being JSON, and the expected syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) expected: &'static str,
}

/// A cursor over JSON text.
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::starting_at(bytes, 0)
    }

    /// Returns a scanner at byte `at` of `bytes`.
    pub(crate) fn starting_at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn malformed<T>(&self, expected: &'static str) -> Result<T, Malformed> {
        Err(Malformed {
            at: self.at.min(self.bytes.len()),
            expected,
        })
    }

    /// Skips white space and returns the next byte without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(&byte) if is_space(byte) => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn consume(&mut self, byte: u8, expected: &'static str) -> Result<(), Malformed> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            self.malformed(expected)
        }
    }

    /// Enters an object. Returns false if it is empty; the scanner is then past it.
    pub(crate) fn enter_object(&mut self) -> Result<bool, Malformed> {
        self.consume(b'{', "an object")?;
        Ok(self.entered(b'}'))
    }

    /// Enters an array. Returns false if it is empty; the scanner is then past it.
    pub(crate) fn enter_array(&mut self) -> Result<bool, Malformed> {
        self.consume(b'[', "an array")?;
        Ok(self.entered(b']'))
    }

    fn entered(&mut self, close: u8) -> bool {
        let empty = self.peek() == Some(close);
        self.at += usize::from(empty);
        !empty
    }

    /// Reads the key of a member and stops at its value.
    pub(crate) fn member(&mut self) -> Result<Literal, Malformed> {
        let key = self.string()?;
        self.consume(b':', "a colon")?;
        Ok(key)
    }

    /// Moves on after a member's value. Returns true at another member, false past the end of the
    /// object.
    pub(crate) fn more_members(&mut self) -> Result<bool, Malformed> {
        self.more(b'}', "a comma or the end of the object")
    }

    /// Moves on after an element. Returns true at another element, false past the end of the array.
    pub(crate) fn more_elements(&mut self) -> Result<bool, Malformed> {
        self.more(b']', "a comma or the end of the array")
    }

    fn more(&mut self, close: u8, expected: &'static str) -> Result<bool, Malformed> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => self.malformed(expected),
        }
    }

    /// Reads a string literal.
    pub(crate) fn string(&mut self) -> Result<Literal, Malformed> {
        self.consume(b'"', "a string")?;
        let start = self.at;
        let escaped = self.skip_string_body()?;
        Ok(Literal {
            span: Span::new(start, self.at - 1),
            escaped,
        })
    }

    /// Moves from just after the opening quote to just after the closing one. Returns whether the
    /// string has escapes.
    fn skip_string_body(&mut self) -> Result<bool, Malformed> {
        let mut escaped = false;
        loop {
            let Some(at) = quote_or_backslash(self.bytes, self.at) else {
                self.at = self.bytes.len();
                return self.malformed("the end of a string");
            };
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return Ok(escaped);
            }
            escaped = true;
            self.at = at + 2;
        }
    }

    /// Skips one value of any type and returns its span.
    pub(crate) fn skip(&mut self) -> Result<Span, Malformed> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => {
                self.at += 1;
                self.skip_string_body()?;
            }
            Some(b'{' | b'[') => self.skip_container()?,
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => self.skip_scalar(),
            _ => return self.malformed("a value"),
        }
        Ok(Span::new(start, self.at))
    }

    fn skip_scalar(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            if matches!(byte, b',' | b'}' | b']') || is_space(byte) {
                break;
            }
            self.at += 1;
        }
    }

    fn skip_container(&mut self) -> Result<(), Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(length) = Nesting::length(rest) {
            self.at += length;
            return Ok(());
        }
        self.at = self.bytes.len();
        self.malformed("the end of an object or array")
    }

    /// Fails unless only white space follows.
    pub(crate) fn finish(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.malformed("nothing after the object"),
        }
    }
}

/// Iterates over the members of a JSON object, in order, as raw key and raw value.
///
/// Keys are yielded without their quotes and with escapes as written. Iteration ends at the first
/// member that is malformed or incomplete, so it also works on a prefix of an object.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut scanner = Scanner::new(object);
    let mut more = scanner.enter_object() == Ok(true);
    std::iter::from_fn(move || {
        if !std::mem::take(&mut more) {
            return None;
        }
        let key = scanner.member().ok()?;
        let value = scanner.skip().ok()?;
        more = scanner.more_members() == Ok(true);
        Some((key.span.of_bytes(object), value.of_bytes(object)))
    })
}
