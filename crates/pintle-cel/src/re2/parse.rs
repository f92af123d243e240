//! Parses patterns with the rules and errors of Go's `regexp/syntax`.

use std::fmt;

use super::class::{self, Class};
use super::node::{Count, Node};

/// Go's limit on the product of nested repetition counts.
const MAX_REPEAT: usize = 1_000;

/// Why a pattern is not valid, with the offending part.
#[derive(Debug)]
pub(super) struct Error<'a> {
    reason: &'static str,
    part: &'a str,
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.reason, self.part)
    }
}

fn error<'a, T>(reason: &'static str, part: &'a str) -> Result<T, Error<'a>> {
    Err(Error { reason, part })
}

const BAD_RANGE: &str = "invalid character class range";
const BAD_ESCAPE: &str = "invalid escape sequence";
const BAD_NAME: &str = "invalid named capture";
const BAD_COUNT: &str = "invalid repeat count";

#[derive(Debug, Clone, Copy, Default)]
// One field per regexp flag (`imsU`).
#[allow(clippy::struct_excessive_bools)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_newline: bool,
    lazy: bool,
}

/// A group that is not closed yet.
#[derive(Debug, Default)]
struct Frame {
    done: Vec<Node>,
    current: Vec<Node>,
    captures: bool,
    /// The flags to restore at the end.
    flags: Flags,
}

impl Frame {
    fn finish(mut self) -> Node {
        self.done.push(Node::concat(self.current));
        Node::alternate(self.done)
    }
}

struct Parser<'a> {
    whole: &'a str,
    flags: Flags,
    open: Vec<Frame>,
    frame: Frame,
}

/// Parses a pattern. Returns it with its estimated size.
pub(super) fn parse(whole: &str) -> Result<(Node, usize), Error<'_>> {
    let mut parser = Parser {
        whole,
        flags: Flags::default(),
        open: Vec::new(),
        frame: Frame::default(),
    };
    let mut rest = whole;
    let mut last_repeat = None;
    while !rest.is_empty() {
        let before = rest;
        let repeats = matches!(rest.as_bytes()[0], b'*' | b'+' | b'?')
            || rest.starts_with('{') && parse_repeat(rest).is_some();
        rest = if repeats {
            parser.repeat(rest, last_repeat)?
        } else {
            parser.item(rest)?
        };
        last_repeat = repeats.then_some(before);
    }
    if !parser.open.is_empty() {
        return error("missing closing )", whole);
    }
    let node = parser.frame.finish();
    if node.too_deep() {
        return error("expression nests too deeply", whole);
    }
    let size = node.size();
    if size > super::MAX_SIZE {
        return error("expression too large", whole);
    }
    Ok((node, size))
}

impl<'a> Parser<'a> {
    fn push(&mut self, node: Node) -> Result<(), Error<'a>> {
        if node.too_deep() {
            return error("expression nests too deeply", self.whole);
        }
        self.frame.current.push(node);
        Ok(())
    }

    /// Parses anything but a repetition. Returns the rest.
    fn item(&mut self, text: &'a str) -> Result<&'a str, Error<'a>> {
        let mut chars = text.chars();
        let first = chars.next().unwrap_or_default();
        let rest = chars.as_str();
        let look = |single: &'static str, multi: &'static str| {
            Node::look(if self.flags.multi_line { multi } else { single })
        };
        let node = match first {
            '(' if rest.starts_with('?') => return self.perl_group(text),
            '(' => {
                self.open_group(true);
                return Ok(rest);
            }
            '|' => {
                let done = Node::concat(std::mem::take(&mut self.frame.current));
                self.frame.done.push(done);
                return Ok(rest);
            }
            ')' => {
                self.close_group()?;
                return Ok(rest);
            }
            '^' => look("\\A", "(?m:^)"),
            '$' => look("\\z", "(?m:$)"),
            '.' if self.flags.dot_newline => Node::class(Class::group(class::ANY, false), false),
            '.' => Node::class(Class::group(class::NEWLINE, true), false),
            '[' => return self.class(text),
            '\\' => return self.escaped(text),
            c => Node::literal(c, self.flags.fold),
        };
        self.push(node)?;
        Ok(rest)
    }

    fn open_group(&mut self, captures: bool) {
        let frame = Frame {
            captures,
            flags: self.flags,
            ..Frame::default()
        };
        self.open.push(std::mem::replace(&mut self.frame, frame));
    }

    fn close_group(&mut self) -> Result<(), Error<'a>> {
        let Some(outer) = self.open.pop() else {
            return error("unexpected )", self.whole);
        };
        let frame = std::mem::replace(&mut self.frame, outer);
        self.flags = frame.flags;
        let captures = frame.captures;
        let node = frame.finish();
        self.push(if captures { node.captured() } else { node })
    }

    fn repeat(&mut self, text: &'a str, last: Option<&'a str>) -> Result<&'a str, Error<'a>> {
        let (min, max, mut after) = match text.as_bytes()[0] {
            b'*' => (Some(0), Max::None, &text[1..]),
            b'+' => (Some(1), Max::None, &text[1..]),
            b'?' => (Some(0), Max::Some(1), &text[1..]),
            _ => parse_repeat(text).unwrap_or((None, Max::None, text)),
        };
        let counted = text.starts_with('{');
        let part = |whole: &'a str, after: &str| &whole[..whole.len() - after.len()];
        let max = match max {
            Max::TooLarge => None,
            Max::None => Some(None),
            Max::Some(max) => Some(Some(max)),
        };
        let (Some(min), Some(max)) = (min, max) else {
            return error(BAD_COUNT, part(text, after));
        };
        if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || min > max) {
            return error(BAD_COUNT, part(text, after));
        }
        let mut greedy = !self.flags.lazy;
        if let Some(rest) = after.strip_prefix('?') {
            after = rest;
            greedy = !greedy;
        }
        if let Some(last) = last {
            return error("invalid nested repetition operator", part(last, after));
        }
        let Some(node) = self.frame.current.pop() else {
            let reason = "missing argument to repetition operator";
            return error(reason, part(text, after));
        };
        let node = node.repeat(Count {
            min,
            max,
            greedy,
            counted,
        });
        let many = min >= 2 || max.is_some_and(|max| max >= 2);
        if counted && many && node.repeats() > MAX_REPEAT {
            return error(BAD_COUNT, part(text, after));
        }
        self.push(node)?;
        Ok(after)
    }

    /// Parses `(?`: flags, groups that do not capture and groups with a name.
    fn perl_group(&mut self, text: &'a str) -> Result<&'a str, Error<'a>> {
        let name = if text.len() > 4 && text.starts_with("(?P<") {
            Some(4)
        } else if text.len() > 3 && text.starts_with("(?<") {
            Some(3)
        } else {
            None
        };
        if let Some(start) = name {
            let Some(end) = text.find('>') else {
                return error(BAD_NAME, text);
            };
            let name = &text[start..end];
            let plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(plain) {
                return error(BAD_NAME, &text[..=end]);
            }
            self.open_group(true);
            return Ok(&text[end + 1..]);
        }
        let mut flags = self.flags;
        let (mut set, mut seen) = (true, false);
        let mut chars = text[2..].chars();
        while let Some(c) = chars.next() {
            match c {
                'i' => flags.fold = set,
                'm' => flags.multi_line = set,
                's' => flags.dot_newline = set,
                'U' => flags.lazy = set,
                '-' if set => {
                    set = false;
                    seen = false;
                    continue;
                }
                ':' | ')' if set || seen => {
                    if c == ':' {
                        self.open_group(false);
                    }
                    self.flags = flags;
                    return Ok(chars.as_str());
                }
                _ => break,
            }
            seen = true;
        }
        let rest = chars.as_str();
        let part = &text[..text.len() - rest.len()];
        error("invalid or unsupported Perl syntax", part)
    }

    fn escaped(&mut self, text: &'a str) -> Result<&'a str, Error<'a>> {
        let look = match text.as_bytes().get(1) {
            Some(b'A') => Some("\\A"),
            Some(b'b') => Some("(?-u:\\b)"),
            Some(b'B') => Some("(?-u:\\B)"),
            Some(b'z') => Some("\\z"),
            Some(b'C') => return error(BAD_ESCAPE, &text[..2]),
            Some(b'Q') => {
                let (plain, rest) = text[2..].split_once("\\E").unwrap_or((&text[2..], ""));
                for c in plain.chars() {
                    self.push(Node::literal(c, self.flags.fold))?;
                }
                return Ok(rest);
            }
            _ => None,
        };
        if let Some(look) = look {
            self.push(Node::look(look))?;
            return Ok(&text[2..]);
        }
        if let Some((class, rest)) = class_escape(text)? {
            self.push(Node::class(class, self.flags.fold))?;
            return Ok(rest);
        }
        let (c, rest) = escape(text)?;
        let node = match char::from_u32(c) {
            Some(c) => Node::literal(c, self.flags.fold),
            None => Node::class(Class::default(), false),
        };
        self.push(node)?;
        Ok(rest)
    }

    fn class(&mut self, text: &'a str) -> Result<&'a str, Error<'a>> {
        let mut class = Class::default();
        let mut rest = &text[1..];
        if let Some(after) = rest.strip_prefix('^') {
            rest = after;
            class.negate();
        }
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if let Some((group, after)) = posix_class(rest)? {
                class.add(group);
                rest = after;
                continue;
            }
            if let Some((group, after)) = class_escape(rest)? {
                class.add(group);
                rest = after;
                continue;
            }
            let range = rest;
            let (low, after) = class_char(rest, text)?;
            rest = after;
            let mut high = low;
            if rest.len() >= 2 && rest.starts_with('-') && !rest[1..].starts_with(']') {
                (high, rest) = class_char(&rest[1..], text)?;
                if high < low {
                    return error(BAD_RANGE, &range[..range.len() - rest.len()]);
                }
            }
            class.range(low, high);
        }
        self.push(Node::class(class, self.flags.fold))?;
        Ok(&rest[1..])
    }
}

/// The upper end of a counted repetition.
#[derive(Debug, Clone, Copy)]
enum Max {
    None,
    Some(usize),
    TooLarge,
}

/// Parses `{n}`, `{n,}` or `{n,m}`. The lower bound is `None` if it overflows.
fn parse_repeat(text: &str) -> Option<(Option<usize>, Max, &str)> {
    let (min, rest) = parse_int(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (min.map_or(Max::TooLarge, Max::Some), rest),
        Some(rest) if rest.starts_with('}') => (Max::None, rest),
        Some(rest) => {
            let (max, rest) = parse_int(rest)?;
            (max.map_or(Max::TooLarge, Max::Some), rest)
        }
    };
    Some((min, max, rest.strip_prefix('}')?))
}

/// Parses a number without leading zeros. The inner `None` means the number is too long.
fn parse_int(text: &str) -> Option<(Option<usize>, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    let number = if length > 8 {
        None
    } else {
        digits.parse().ok()
    };
    Some((number, rest))
}

type Found<'a, T> = Result<Option<(T, &'a str)>, Error<'a>>;

/// Parses `[:name:]` inside brackets.
fn posix_class(text: &str) -> Found<'_, Class> {
    let Some(end) = text.strip_prefix("[:").and_then(|rest| rest.find(":]")) else {
        return Ok(None);
    };
    let name = &text[2..end + 2];
    let (name, negated) = match name.strip_prefix('^') {
        Some(name) => (name, true),
        None => (name, false),
    };
    match class::posix(name) {
        Some(ranges) => Ok(Some((Class::group(ranges, negated), &text[end + 4..]))),
        None => error(BAD_RANGE, &text[..end + 4]),
    }
}

/// Parses groups such as `\d`, and `\p{name}`.
fn class_escape(text: &str) -> Found<'_, Class> {
    let &[b'\\', letter, ..] = text.as_bytes() else {
        return Ok(None);
    };
    if let Some(ranges) = class::perl(letter.to_ascii_lowercase()) {
        let group = Class::group(ranges, letter.is_ascii_uppercase());
        return Ok(Some((group, &text[2..])));
    }
    if !matches!(letter, b'p' | b'P') {
        return Ok(None);
    }
    let (name, rest) = match text[2..].chars().next() {
        Some('{') => match text.find('}') {
            Some(end) => (&text[3..end], &text[end + 1..]),
            None => return error(BAD_RANGE, text),
        },
        Some(c) => text[2..].split_at(c.len_utf8()),
        None => ("", ""),
    };
    let mut negated = letter == b'P';
    let name = match name.strip_prefix('^') {
        Some(name) => {
            negated = !negated;
            name
        }
        None => name,
    };
    match Class::unicode(name, negated) {
        Some(class) => Ok(Some((class, rest))),
        None => error(BAD_RANGE, &text[..text.len() - rest.len()]),
    }
}

fn class_char<'a>(text: &'a str, whole: &'a str) -> Result<(u32, &'a str), Error<'a>> {
    if text.starts_with('\\') {
        return escape(text);
    }
    let mut chars = text.chars();
    match chars.next() {
        Some(c) => Ok((c.into(), chars.as_str())),
        None => error("missing closing ]", whole),
    }
}

/// Parses a single-character escape.
fn escape(text: &str) -> Result<(u32, &str), Error<'_>> {
    let mut chars = text[1..].chars();
    let Some(c) = chars.next() else {
        return error("trailing backslash at end of expression", "");
    };
    let rest = chars.as_str();
    let octal = |c: char| c.is_digit(8);
    let found = match c {
        '0'..='7' if c == '0' || rest.starts_with(octal) => {
            let more = rest
                .bytes()
                .take(2)
                .take_while(|c| matches!(c, b'0'..=b'7'));
            let end = 2 + more.count();
            return Ok((
                u32::from_str_radix(&text[1..end], 8).unwrap_or(0),
                &text[end..],
            ));
        }
        'x' => return hexadecimal(text),
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return error(BAD_ESCAPE, &text[..text.len() - rest.len()]),
    };
    Ok((found.into(), rest))
}

/// Parses `\x41` or `\x{41}`.
fn hexadecimal(text: &str) -> Result<(u32, &str), Error<'_>> {
    let mut chars = text[2..].chars();
    let bad =
        |chars: &std::str::Chars<'_>| error(BAD_ESCAPE, &text[..text.len() - chars.as_str().len()]);
    let Some(first) = chars.next() else {
        return bad(&chars);
    };
    if first != '{' {
        let second = chars.next();
        return match (first.to_digit(16), second.and_then(|c| c.to_digit(16))) {
            (Some(high), Some(low)) => Ok((high * 16 + low, chars.as_str())),
            _ => bad(&chars),
        };
    }
    let mut value: Option<u32> = None;
    loop {
        match (chars.next(), value) {
            (Some('}'), Some(value)) => return Ok((value, chars.as_str())),
            (Some(c), _) if c.is_ascii_hexdigit() => {
                let next = value.unwrap_or(0) * 16 + c.to_digit(16).unwrap_or(0);
                if next > 0x0010_ffff {
                    return bad(&chars);
                }
                value = Some(next);
            }
            _ => return bad(&chars),
        }
    }
}
