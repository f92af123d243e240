//! Mail addresses of RFC 5322.

use std::net::IpAddr;

/// Returns true for a string that `mail.ParseAddress` accepts: a single address, with or without a
/// display name, comments, or a group around it.
///
/// ```
/// use pintle_cel::go::is_mail_address;
///
/// assert!(is_mail_address("Ada <ada@example.com>"));
/// assert!(!is_mail_address("ada@example..com"));
/// ```
#[must_use]
pub fn is_mail_address(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let addresses = parser.address(true);
    addresses == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

/// The unread text. Methods return `None` for text that they cannot read.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Reads a mailbox, or a group of them if `group`. Returns the number of addresses.
    fn address(&mut self, group: bool) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        if self.address_spec().is_some() {
            self.skip_space();
            if self.consume('(') {
                let comment = self.comment()?;
                let mut words = comment.split(|byte| matches!(byte, b' ' | b'\t'));
                if words.any(|word| encoded(word) == Encoded::UnknownCharset) {
                    return None;
                }
            }
            return Some(1);
        }
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if group && self.consume(':') {
            return self.group();
        }
        if !self.consume('<') {
            return None;
        }
        self.address_spec()?;
        self.consume('>').then_some(1)
    }

    /// Reads the members of a group, up to its semicolon.
    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        let mut count = 0;
        if self.consume(';') {
            self.skip_comments()?;
            return Some(count);
        }
        loop {
            count += self.address(false)?;
            self.skip_comments()?;
            if self.consume(';') {
                self.skip_comments()?;
                return Some(count);
            }
            if !self.consume(',') {
                return None;
            }
        }
    }

    /// Reads `local@domain`, or nothing.
    fn address_spec(&mut self) -> Option<()> {
        let start = self.rest;
        let read = self.try_address_spec();
        if read.is_none() {
            self.rest = start;
        }
        read
    }

    fn try_address_spec(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            if self.quoted_string()? == 0 {
                return None;
            }
        } else {
            self.strict_atom()?;
        }
        if !self.consume('@') {
            return None;
        }
        self.skip_space();
        if self.consume('[') {
            let (literal, rest) = self.rest.split_once(']')?;
            self.rest = rest;
            literal.parse::<IpAddr>().ok()?;
            return Some(());
        }
        self.strict_atom()
    }

    /// Reads the words of a display name, and leaves the text after the last one.
    fn phrase(&mut self) -> Option<()> {
        let mut words = 0;
        let mut has_encoded = false;
        loop {
            if words > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            let kind = if self.rest.is_empty() {
                // Reaching the end is not an error, even if no word was read.
                return Some(());
            } else if self.rest.starts_with('"') {
                self.quoted_string().map(|_| Encoded::No)
            } else {
                self.atom().map(|atom| encoded(atom.as_bytes()))
            };
            match kind {
                None | Some(Encoded::UnknownCharset) => break,
                Some(Encoded::Yes { empty }) => has_encoded |= !empty,
                Some(Encoded::No) => words += 1,
            }
        }
        (words > 0 || has_encoded).then_some(())
    }

    /// Reads a quoted string, and returns the number of its characters. Without a closing quote,
    /// nothing is read.
    fn quoted_string(&mut self) -> Option<usize> {
        let mut count = 0;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            let visible = is_visible(c) || matches!(c, ' ' | '\t');
            match c {
                '"' if !escaped => {
                    self.rest = &self.rest[at + 1..];
                    return Some(count);
                }
                '\\' if !escaped => escaped = true,
                _ if visible => {
                    escaped = false;
                    count += 1;
                }
                _ => return None,
            }
        }
        None
    }

    /// Reads an atom, which may contain dots.
    fn atom(&mut self) -> Option<&'a str> {
        let special = |c| "()<>[]:;@\\,\"".contains(c);
        let end = self.rest.find(|c| special(c) || !is_visible(c));
        let (atom, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!atom.is_empty()).then_some(atom)
    }

    /// Reads an atom without consecutive, leading or trailing dots.
    fn strict_atom(&mut self) -> Option<()> {
        let atom = self.atom()?;
        atom.split('.').all(|part| !part.is_empty()).then_some(())
    }

    /// Skips space and comments. Fails if a comment does not end.
    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.consume('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// Reads a comment whose parenthesis is already read.
    fn comment(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut depth = 1;
        let mut bytes = self.rest.bytes().enumerate();
        while let Some((at, mut byte)) = bytes.next() {
            match byte {
                b'\\' => {
                    if let Some((_, escaped)) = bytes.next() {
                        byte = escaped;
                    }
                }
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[at + 1..];
                return Some(text);
            }
            text.push(byte);
        }
        None
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn consume(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

fn is_visible(c: char) -> bool {
    ('!'..='~').contains(&c) || !c.is_ascii()
}

/// Whether a word is an encoded word of RFC 2047.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoded {
    No,
    Yes {
        empty: bool,
    },
    /// Well-formed, but in a character set that Go does not know.
    UnknownCharset,
}

fn encoded(word: &[u8]) -> Encoded {
    let Some(inner) = word
        .strip_prefix(b"=?")
        .and_then(|word| word.strip_suffix(b"?="))
    else {
        return Encoded::No;
    };
    let parts: Vec<&[u8]> = inner.split(|byte| *byte == b'?').collect();
    let [charset, encoding, text] = parts[..] else {
        return Encoded::No;
    };
    let valid = match encoding {
        b"B" | b"b" => is_base64(text),
        b"Q" | b"q" => is_quoted_printable(text),
        _ => false,
    };
    if charset.is_empty() || !valid {
        return Encoded::No;
    }
    let known: [&[u8]; 3] = [b"utf-8", b"iso-8859-1", b"us-ascii"];
    if known.iter().any(|name| name.eq_ignore_ascii_case(charset)) {
        Encoded::Yes {
            empty: text.is_empty(),
        }
    } else {
        Encoded::UnknownCharset
    }
}

fn is_base64(text: &[u8]) -> bool {
    let text: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let data = &text[..text.len() - padding];
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4) && padding <= 2 && data.iter().all(known)
}

fn is_quoted_printable(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let valid = match byte {
            b'=' => {
                let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
                hex(bytes.next()) && hex(bytes.next())
            }
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => true,
            _ => false,
        };
        if !valid {
            return false;
        }
    }
    true
}
