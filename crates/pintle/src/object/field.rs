//! Fields selected by path, found in the pass that reads the header.
//!
//! An index on a field would otherwise decode every object that arrives. Registered fields are
//! located by the skim instead, which costs little more than skipping them.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use parking_lot::RwLock;

use crate::json::{Literal, Malformed, Scanner, Span};

/// A path to a field, written as a JSON pointer: `/spec/nodeName`.
///
/// If the path ends at an array of scalars, each of them is a value; a number in the path selects
/// an element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    tokens: Vec<String>,
}

/// A string that is not a JSON pointer to a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid field path {text:?}: expected a JSON pointer such as \"/spec/nodeName\"")]
pub struct InvalidPointer {
    text: String,
}

impl FromStr for Pointer {
    type Err = InvalidPointer;

    fn from_str(text: &str) -> Result<Self, InvalidPointer> {
        let tokens = text.strip_prefix('/').filter(|rest| !rest.is_empty());
        let tokens = tokens.ok_or_else(|| InvalidPointer {
            text: text.to_owned(),
        })?;
        let unescape = |token: &str| token.replace("~1", "/").replace("~0", "~");
        Ok(Self {
            tokens: tokens.split('/').map(unescape).collect(),
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// The id of a registered field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldId(u32);

/// The registered fields, shared by the reader and the indexes.
///
/// Fields are only ever added. An object that was read before a field was added is searched on
/// demand.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    current: Arc<RwLock<Arc<FieldSet>>>,
}

/// The fields registered at one point in time.
#[derive(Clone, Default)]
pub(crate) struct FieldSet {
    pointers: Vec<Pointer>,
    tree: Tree,
}

impl Fields {
    pub(crate) fn add(&self, pointer: Pointer) -> FieldId {
        let mut current = self.current.write();
        let known = current.pointers.iter().position(|known| *known == pointer);
        let number = known.unwrap_or_else(|| {
            let next = Arc::make_mut(&mut *current);
            let number = next.pointers.len();
            next.tree.add(&pointer.tokens, number);
            next.pointers.push(pointer);
            number
        });
        FieldId(u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(crate) fn current(&self) -> Arc<FieldSet> {
        self.current.read().clone()
    }
}

impl FieldSet {
    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl FieldId {
    pub(crate) fn of(self, spans: &[Span]) -> Option<Span> {
        spans.get(self.0 as usize).copied()
    }
}

/// The paths as a prefix tree.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    field: Option<usize>,
    children: Vec<(String, Tree)>,
}

impl Tree {
    fn add(&mut self, tokens: &[String], number: usize) {
        let Some((first, rest)) = tokens.split_first() else {
            self.field = Some(number);
            return;
        };
        let at = self
            .children
            .iter()
            .position(|(token, _)| token == first)
            .unwrap_or_else(|| {
                self.children.push((first.clone(), Self::default()));
                self.children.len() - 1
            });
        self.children[at].1.add(rest, number);
    }

    pub(crate) fn child(&self, token: &str) -> Option<&Self> {
        self.children
            .iter()
            .find(|(name, _)| name == token)
            .map(|(_, tree)| tree)
    }

    /// Skips one value and notes the spans of the registered fields in it.
    pub(crate) fn find(
        &self,
        text: &str,
        scanner: &mut Scanner<'_>,
        found: &mut [Span],
    ) -> Result<(), Malformed> {
        let first = scanner.peek();
        let start = scanner.position();
        match first {
            Some(b'{') if !self.children.is_empty() => {
                let mut more = scanner.enter_object()?;
                while more {
                    let key = scanner.member()?;
                    self.find_in(key.span.of(text), text, scanner, found)?;
                    more = scanner.more_members()?;
                }
            }
            Some(b'[') if !self.children.is_empty() => {
                let mut more = scanner.enter_array()?;
                let mut number = 0_usize;
                while more {
                    self.find_in(&number.to_string(), text, scanner, found)?;
                    more = scanner.more_elements()?;
                    number += 1;
                }
            }
            _ => {
                scanner.skip()?;
            }
        }
        if let Some(slot) = self.field.and_then(|number| found.get_mut(number)) {
            *slot = Span::new(start, scanner.position());
        }
        Ok(())
    }

    fn find_in(
        &self,
        token: &str,
        text: &str,
        scanner: &mut Scanner<'_>,
        found: &mut [Span],
    ) -> Result<(), Malformed> {
        match self.child(token) {
            Some(child) => child.find(text, scanner, found),
            None => scanner.skip().map(|_| ()),
        }
    }
}

/// Returns the value of a field as text, if it is a string without escapes, a number or a boolean.
pub(crate) fn plain(raw: &str) -> Option<&str> {
    match raw.as_bytes().first()? {
        b'"' => raw
            .get(1..raw.len() - 1)
            .filter(|inside| !inside.contains('\\')),
        b'{' | b'[' | b'n' => None,
        _ => Some(raw),
    }
}

/// Returns the values of a field: one for a scalar, one for each scalar of an array.
pub(crate) fn values(raw: &str) -> Vec<Cow<'_, str>> {
    if let Some(plain) = plain(raw) {
        return vec![Cow::Borrowed(plain)];
    }
    let mut scanner = Scanner::new(raw.as_bytes());
    match scanner.peek() {
        Some(b'"') => scanner
            .string()
            .ok()
            .and_then(|text| text.text(raw).ok())
            .into_iter()
            .collect(),
        Some(b'[') => elements(raw, &mut scanner).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn elements<'a>(raw: &'a str, scanner: &mut Scanner<'_>) -> Result<Vec<Cow<'a, str>>, Malformed> {
    let mut values = Vec::new();
    let mut more = scanner.enter_array()?;
    while more {
        let element = scanner.skip()?;
        match element.of(raw).as_bytes().first() {
            Some(b'"') => {
                let inside = Span {
                    start: element.start + 1,
                    end: element.end - 1,
                };
                let escaped = inside.of(raw).contains('\\');
                values.push(
                    Literal {
                        span: inside,
                        escaped,
                    }
                    .text(raw)?,
                );
            }
            Some(b'{' | b'[' | b'n') | None => {}
            Some(_) => values.push(Cow::Borrowed(element.of(raw))),
        }
        more = scanner.more_elements()?;
    }
    Ok(values)
}

/// Searches an object that was read before the field was registered.
pub(crate) fn search<'a>(json: &'a str, pointer: &Pointer) -> &'a str {
    let mut tree = Tree::default();
    tree.add(&pointer.tokens, 0);
    let mut found = [Span::default()];
    // A malformed object has no fields; decoding it reports the error.
    let _ = tree.find(json, &mut Scanner::new(json.as_bytes()), &mut found);
    found[0].of(json)
}
