//! The compact form in which an object is stored.

use super::{field::FieldId, owner::OwnerRef, skim::Skim};
use crate::json::{Literal, Malformed, Span};

/// An object's own JSON, with its header as spans of it.
///
/// Header strings that are escaped in the JSON (no sane label is) and those that a transform removed
/// are appended to the JSON in the same allocation.
#[derive(Debug)]
pub(crate) struct Body {
    text: Box<str>,
    /// The length of the JSON within `text`.
    json: u32,
    metadata: Span,
    uid: Span,
    resource_version: Span,
    generation: Option<i64>,
    being_deleted: bool,
    labels: Box<[(Span, Span)]>,
    owners: Box<[OwnerRef]>,
    fields: Box<[Span]>,
}

/// The fields that a transform must not change.
pub(crate) struct Identity<'a> {
    pub(crate) uid: &'a str,
    pub(crate) resource_version: &'a str,
}

impl Body {
    /// Copies the object that `skim` found in `input`, without `managedFields` unless
    /// `keep_managed_fields`, and with `types` as its first members if it has no type of its own.
    pub(crate) fn compose(
        input: &str,
        skim: Skim,
        types: Option<&str>,
        keep_managed_fields: bool,
    ) -> Result<Self, Malformed> {
        let cut = skim
            .managed_fields
            .filter(|_| !keep_managed_fields)
            .unwrap_or_default();
        let types = types.filter(|_| !skim.typed).unwrap_or_default();
        let mut out = Composer::new(input, skim.whole, cut, types);
        let optional = |out: &mut Composer<'_>, literal: Option<Literal>| {
            literal.map_or(Ok(Span::default()), |literal| out.place(literal))
        };
        let uid = optional(&mut out, skim.uid)?;
        let resource_version = optional(&mut out, skim.resource_version)?;
        let mut fields = skim.fields;
        for field in &mut fields {
            *field = out.shift_if_present(*field);
        }
        let mut labels = Vec::with_capacity(skim.labels.len());
        for (key, value) in skim.labels {
            labels.push((out.place(key)?, out.place(value)?));
        }
        Ok(Self {
            metadata: skim
                .metadata
                .map_or_else(Span::default, |span| out.shift(span)),
            json: out.json,
            text: out.text.into_boxed_str(),
            uid,
            resource_version,
            generation: skim.generation,
            being_deleted: skim.being_deleted,
            labels: labels.into_boxed_slice(),
            owners: skim.owners.into_boxed_slice(),
            fields: fields.into_boxed_slice(),
        })
    }

    /// Restores the fields that a transform must not change.
    pub(crate) fn identify(&mut self, identity: &Identity<'_>) {
        if self.uid() == identity.uid && self.resource_version() == identity.resource_version {
            return;
        }
        let mut text = std::mem::take(&mut self.text).into_string();
        text.reserve_exact(identity.uid.len() + identity.resource_version.len());
        self.uid = append(&mut text, identity.uid);
        self.resource_version = append(&mut text, identity.resource_version);
        self.text = text.into_boxed_str();
    }

    /// Returns how many bytes are allocated outside the body itself.
    #[cfg(test)]
    pub(crate) fn heap_size(&self) -> usize {
        let owners: usize = self.owners.iter().map(OwnerRef::heap_size).sum();
        self.text.len()
            + size_of_val(&*self.labels)
            + size_of_val(&*self.owners)
            + size_of_val(&*self.fields)
            + owners
    }

    pub(crate) fn json(&self) -> &str {
        &self.text[..self.json as usize]
    }

    pub(crate) fn metadata(&self) -> &str {
        self.metadata.of(&self.text)
    }

    pub(crate) fn uid(&self) -> &str {
        self.uid.of(&self.text)
    }

    pub(crate) fn resource_version(&self) -> &str {
        self.resource_version.of(&self.text)
    }

    pub(crate) fn generation(&self) -> Option<i64> {
        self.generation
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.being_deleted
    }

    pub(crate) fn owners(&self) -> &[OwnerRef] {
        &self.owners
    }

    /// Returns the JSON of a registered field: empty if the object lacks it, `None` if the field was
    /// registered after the object was read.
    pub(crate) fn field(&self, id: FieldId) -> Option<&str> {
        id.of(&self.fields).map(|span| span.of(&self.text))
    }

    pub(crate) fn labels(&self) -> Labels<'_> {
        Labels {
            text: &self.text,
            spans: &self.labels,
        }
    }
}

fn append(text: &mut String, part: &str) -> Span {
    let start = text.len();
    text.push_str(part);
    Span::new(start, text.len())
}

/// Copies the retained parts of an input and maps spans of the input to spans of the copy.
struct Composer<'a> {
    input: &'a str,
    start: u32,
    /// The length of what was inserted after the opening brace.
    inserted: u32,
    /// The span of the input that was left out.
    cut: Span,
    text: String,
    json: u32,
}

impl<'a> Composer<'a> {
    fn new(input: &'a str, whole: Span, cut: Span, types: &str) -> Self {
        let (before, after) = if cut == Span::default() {
            (whole, Span::default())
        } else {
            (
                Span {
                    end: cut.start,
                    ..whole
                },
                Span {
                    start: cut.end,
                    end: whole.end,
                },
            )
        };
        let (before, after) = (before.of(input), after.of(input));
        let empty = before
            .get(1..)
            .is_some_and(|rest| rest.trim_start().starts_with('}'));
        let comma = if types.is_empty() || empty { "" } else { "," };
        let mut text =
            String::with_capacity(before.len() + after.len() + types.len() + comma.len());
        if types.is_empty() {
            text.push_str(before);
        } else {
            text.push('{');
            text.push_str(types);
            text.push_str(comma);
            text.push_str(before.get(1..).unwrap_or_default());
        }
        text.push_str(after);
        let inserted = Span::new(0, types.len() + comma.len()).end;
        let json = Span::new(0, text.len()).end;
        Self {
            input,
            start: whole.start,
            inserted,
            cut,
            text,
            json,
        }
    }

    fn shift(&self, span: Span) -> Span {
        let shift = |at: u32| {
            let cut = if at >= self.cut.end {
                self.cut.end - self.cut.start
            } else {
                0
            };
            at + self.inserted - self.start - cut
        };
        Span {
            start: shift(span.start),
            end: shift(span.end),
        }
    }

    /// As [`shift`](Self::shift), for a span that may be absent or inside the cut.
    fn shift_if_present(&self, span: Span) -> Span {
        let cut = span.start < self.cut.end && span.end > self.cut.start;
        if span == Span::default() || cut {
            Span::default()
        } else {
            self.shift(span)
        }
    }

    /// Returns where the string of `literal` is in the copy, appending it if it has escapes.
    fn place(&mut self, literal: Literal) -> Result<Span, Malformed> {
        if literal.escaped {
            let unescaped = literal.text(self.input)?;
            Ok(append(&mut self.text, &unescaped))
        } else {
            Ok(self.shift(literal.span))
        }
    }
}

/// An object's labels.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use pintle::cache::Reader;
/// let pod = Reader::<Pod>::new()
///     .read(br#"{"metadata":{"name":"web-0","labels":{"app":"web"}}}"#)
///     .unwrap();
/// assert_eq!(pod.labels().get("app"), Some("web"));
/// ```
#[derive(Clone, Copy)]
pub struct Labels<'a> {
    text: &'a str,
    spans: &'a [(Span, Span)],
}

impl<'a> Labels<'a> {
    /// Returns the value of the label `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// Returns whether the object has the label `key`.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Iterates over keys and values in the order of the object.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let text = self.text;
        self.spans
            .iter()
            .map(move |(key, value)| (key.of(text), value.of(text)))
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl std::fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
