//! Fields of an object by path, found in the pass that reads its header.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use parking_lot::RwLock;

use super::scan::{Literal, Malformed, Scanner, Span};

/// A path to a field, as JSON pointers write it: `/spec/nodeName`.
///
/// Where the path ends at an array of scalars, each is a value; a number in the path picks an
/// element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    tokens: Vec<String>,
}

/// A text that is not a path to a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a path to a field: expected the form \"/spec/nodeName\"")]
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

/// The number of a field among those that are read while skimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldId(u32);

/// The fields that are read while skimming, shared by the reader and the indices.
///
/// Fields are only ever added. An object read before a field was added is searched for it when
/// asked.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    wanted: Arc<RwLock<Arc<Wanted>>>,
}

/// The fields wanted at one time.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    pointers: Vec<Pointer>,
    tree: Tree,
}

impl Fields {
    pub(crate) fn add(&self, pointer: Pointer) -> FieldId {
        let mut wanted = self.wanted.write();
        let known = wanted.pointers.iter().position(|known| *known == pointer);
        let number = known.unwrap_or_else(|| {
            let next = Arc::make_mut(&mut *wanted);
            let number = next.pointers.len();
            next.tree.add(&pointer.tokens, number);
            next.pointers.push(pointer);
            number
        });
        FieldId(u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(crate) fn wanted(&self) -> Arc<Wanted> {
        self.wanted.read().clone()
    }
}

impl Wanted {
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

/// Paths that share their beginnings.
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

    /// Passes over one value, noting where the wanted parts of it stand.
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

/// The value of a field as one text, if it is a string without escapes, a number or a boolean.
pub(crate) fn plain(raw: &str) -> Option<&str> {
    match raw.as_bytes().first()? {
        b'"' => raw
            .get(1..raw.len() - 1)
            .filter(|inside| !inside.contains('\\')),
        b'{' | b'[' | b'n' => None,
        _ => Some(raw),
    }
}

/// The values of a field: one for a scalar, one for each scalar of an array.
pub(crate) fn values(raw: &str) -> Vec<Cow<'_, str>> {
    if let Some(plain) = plain(raw) {
        return vec![Cow::Borrowed(plain)];
    }
    let mut scanner = Scanner::new(raw);
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

/// Searches an object that was read before the field was wanted.
pub(crate) fn search<'a>(json: &'a str, pointer: &Pointer) -> &'a str {
    let mut tree = Tree::default();
    tree.add(&pointer.tokens, 0);
    let mut found = [Span::default()];
    // What cannot be read has no fields; whoever decodes the object learns why.
    let _ = tree.find(json, &mut Scanner::new(json), &mut found);
    found[0].of(json)
}
