//! Walking JSON text without building anything.
//!
//! A [`Scanner`] knows only strings, brackets and where it is. What it passes over is not
//! validated beyond that: whoever decodes the same bytes later finds out, and it is the error of
//! that one object.

use std::borrow::Cow;

use super::nesting::Nesting;

/// A part of a text, small: texts beyond 4 GB are refused before any part is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// The caller has checked that the text is shorter than 4 GB.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let small = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: small(start),
            end: small(end),
        }
    }

    pub(crate) fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// The inside of a string literal, still with its escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal {
    pub(crate) span: Span,
    pub(crate) escaped: bool,
}

impl Literal {
    /// The string that the literal means.
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

/// Where the text stopped being JSON, and what should have been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) expected: &'static str,
}

/// A position in JSON text.
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Strings are mostly short: looking at so many words of eight bytes beats setting up a search.
const SHORT_STRING: usize = 4;

/// Where the next quote or backslash stands, from `at` on.
fn quote_or_backslash(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);
    for _ in 0..SHORT_STRING {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        // A byte that is equal becomes zero, and borrows its high bit; bytes above the first such
        // may be wrong, but only the first is asked for.
        let (quotes, backslashes) = (word ^ QUOTES, word ^ BACKSLASHES);
        let found =
            (quotes.wrapping_sub(ONES) & !quotes) | (backslashes.wrapping_sub(ONES) & !backslashes);
        let found = found & HIGHS;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    memchr::memchr2(b'"', b'\\', rest).map(|further| at + further)
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    /// Starts at byte `at` of `text`.
    pub(crate) fn starting_at(text: &'a str, at: usize) -> Self {
        Self {
            bytes: text.as_bytes(),
            at,
        }
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

    /// The next byte that is not white space, without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), Malformed> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            self.malformed(expected)
        }
    }

    /// Enters an object; false if it is empty and already left again.
    pub(crate) fn enter_object(&mut self) -> Result<bool, Malformed> {
        self.take(b'{', "an object")?;
        Ok(self.entered(b'}'))
    }

    /// Enters an array; false if it is empty and already left again.
    pub(crate) fn enter_array(&mut self) -> Result<bool, Malformed> {
        self.take(b'[', "an array")?;
        Ok(self.entered(b']'))
    }

    fn entered(&mut self, close: u8) -> bool {
        let empty = self.peek() == Some(close);
        self.at += usize::from(empty);
        !empty
    }

    /// The key of a member; the scanner then stands at its value.
    pub(crate) fn member(&mut self) -> Result<Literal, Malformed> {
        let key = self.string()?;
        self.take(b':', "a colon")?;
        Ok(key)
    }

    /// After a member's value: true at a further member, false when the object was left.
    pub(crate) fn more_members(&mut self) -> Result<bool, Malformed> {
        self.more(b'}', "a comma or the end of the object")
    }

    /// After an element: true at a further element, false when the array was left.
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

    pub(crate) fn string(&mut self) -> Result<Literal, Malformed> {
        self.take(b'"', "a string")?;
        let start = self.at;
        let escaped = self.skip_string_body()?;
        Ok(Literal {
            span: Span::new(start, self.at - 1),
            escaped,
        })
    }

    /// From behind the opening quote to behind the closing one; whether there were escapes.
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

    /// Passes over one value of any kind and says where it stood.
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
        while let Some(byte) = self.bytes.get(self.at) {
            if matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') {
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
