//! The compact form in which an object is stored, and the pass over its JSON that finds the header.

use super::{
    field::{FieldId, FieldSet},
    owner::OwnerRef,
};
use crate::json::{Literal, Malformed, Scanner, Span};

/// An object's own JSON, with its header as spans of it.
///
/// Header strings that are escaped in the JSON (rare) and those that a transform changed or removed
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
    /// `keep_managed_fields`, and with `types` as its first members if it lacks `apiVersion` and
    /// `kind`.
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

    /// Returns the JSON of a registered field: empty if the object lacks it, `None` if the field
    /// was registered after the object was read.
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
    /// The length of the text inserted after the opening brace.
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

    /// Like [`shift`](Self::shift), for a span that may be absent or inside the cut.
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

    /// Iterates over keys and values in the object's order.
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

/// The header of an object, as spans of the input.
///
/// One pass over the JSON finds it and copies nothing. Everything outside `metadata` is skipped,
/// except for registered fields.
#[derive(Debug, Default)]
pub(crate) struct Skim {
    /// The object with its braces.
    pub(crate) whole: Span,
    /// Whether the object has both `apiVersion` and `kind`.
    pub(crate) typed: bool,
    pub(crate) metadata: Option<Span>,
    pub(crate) name: Option<Literal>,
    pub(crate) namespace: Option<Literal>,
    pub(crate) uid: Option<Literal>,
    pub(crate) resource_version: Option<Literal>,
    pub(crate) generation: Option<i64>,
    pub(crate) being_deleted: bool,
    pub(crate) labels: Vec<(Literal, Literal)>,
    pub(crate) owners: Vec<OwnerRef>,
    /// `managedFields`, including the comma to remove with it.
    pub(crate) managed_fields: Option<Span>,
    /// The registered fields, by id; an empty span if the object lacks the field.
    pub(crate) fields: Vec<Span>,
}

impl Skim {
    /// Fills the skim from `text`, including the registered `fields`. After an error it holds
    /// everything found up to that point.
    pub(crate) fn run(&mut self, text: &str, fields: &FieldSet) -> Result<(), Malformed> {
        self.fields.resize(fields.len(), Span::default());
        let mut scanner = Scanner::new(text.as_bytes());
        scanner.peek();
        let start = scanner.position();
        let (mut api_version, mut kind) = (false, false);
        let mut more = scanner.enter_object()?;
        while more {
            let key = scanner.member()?;
            match key.span.of(text) {
                "metadata" if scanner.peek() == Some(b'{') => {
                    let from = scanner.position();
                    self.metadata(text, &mut scanner)?;
                    if let Some(fields) = fields.tree().child("metadata") {
                        let mut again = Scanner::starting_at(text.as_bytes(), from);
                        fields.find(text, &mut again, &mut self.fields)?;
                    }
                    self.metadata = Some(Span::new(from, scanner.position()));
                }
                "apiVersion" => api_version = !scanner.skip()?.of(text).is_empty(),
                "kind" => kind = !scanner.skip()?.of(text).is_empty(),
                key => match fields.tree().child(key) {
                    Some(fields) => fields.find(text, &mut scanner, &mut self.fields)?,
                    None => {
                        scanner.skip()?;
                    }
                },
            }
            more = scanner.more_members()?;
        }
        self.typed = api_version && kind;
        self.whole = Span::new(start, scanner.position());
        scanner.finish()
    }

    fn metadata(&mut self, text: &str, scanner: &mut Scanner<'_>) -> Result<(), Malformed> {
        let mut more = scanner.enter_object()?;
        let mut comma_before = None;
        while more {
            scanner.peek();
            let start = scanner.position();
            let key = scanner.member()?;
            let mut managed = false;
            match key.span.of(text) {
                "name" => self.name = optional_string(scanner)?,
                "namespace" => self.namespace = optional_string(scanner)?,
                "uid" => self.uid = optional_string(scanner)?,
                "resourceVersion" => self.resource_version = optional_string(scanner)?,
                "generation" => self.generation = optional_integer(text, scanner)?,
                "deletionTimestamp" => self.being_deleted = optional_string(scanner)?.is_some(),
                "labels" => self.labels(scanner)?,
                "ownerReferences" => self.owners(text, scanner)?,
                "managedFields" => {
                    scanner.skip()?;
                    managed = true;
                }
                _ => {
                    scanner.skip()?;
                }
            }
            let end = scanner.position();
            more = scanner.more_members()?;
            if managed {
                self.managed_fields = Some(match (more, comma_before) {
                    (true, _) => Span::new(start, scanner.position()),
                    (false, Some(comma)) => Span::new(comma, end),
                    (false, None) => Span::new(start, end),
                });
            }
            comma_before = Some(end);
        }
        Ok(())
    }

    fn labels(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Malformed> {
        self.labels.clear();
        if null(scanner)? {
            return Ok(());
        }
        let mut more = scanner.enter_object()?;
        while more {
            let key = scanner.member()?;
            let value = scanner.string()?;
            self.labels.push((key, value));
            more = scanner.more_members()?;
        }
        Ok(())
    }

    fn owners(&mut self, text: &str, scanner: &mut Scanner<'_>) -> Result<(), Malformed> {
        self.owners.clear();
        if null(scanner)? {
            return Ok(());
        }
        let mut more = scanner.enter_array()?;
        while more {
            self.owners.push(owner(text, scanner)?);
            more = scanner.more_elements()?;
        }
        Ok(())
    }
}

fn owner(text: &str, scanner: &mut Scanner<'_>) -> Result<OwnerRef, Malformed> {
    let mut found: [Option<Literal>; 4] = [None; 4];
    let (mut controller, mut blocks) = (false, false);
    let mut more = scanner.enter_object()?;
    while more {
        let key = scanner.member()?;
        match key.span.of(text) {
            "apiVersion" => found[0] = optional_string(scanner)?,
            "kind" => found[1] = optional_string(scanner)?,
            "name" => found[2] = optional_string(scanner)?,
            "uid" => found[3] = optional_string(scanner)?,
            "controller" => controller = scanner.skip()?.of(text) == "true",
            "blockOwnerDeletion" => blocks = scanner.skip()?.of(text) == "true",
            _ => {
                scanner.skip()?;
            }
        }
        more = scanner.more_members()?;
    }
    let mut parts = [const { std::borrow::Cow::Borrowed("") }; 4];
    for (part, literal) in parts.iter_mut().zip(found) {
        if let Some(literal) = literal {
            *part = literal.text(text)?;
        }
    }
    Ok(OwnerRef::new(
        parts.each_ref().map(AsRef::as_ref),
        controller,
        blocks,
    ))
}

/// Consumes a `null`, if one is next.
fn null(scanner: &mut Scanner<'_>) -> Result<bool, Malformed> {
    if scanner.peek() == Some(b'n') {
        scanner.skip()?;
        return Ok(true);
    }
    Ok(false)
}

fn optional_string(scanner: &mut Scanner<'_>) -> Result<Option<Literal>, Malformed> {
    if null(scanner)? {
        Ok(None)
    } else {
        scanner.string().map(Some)
    }
}

fn optional_integer(text: &str, scanner: &mut Scanner<'_>) -> Result<Option<i64>, Malformed> {
    if null(scanner)? {
        return Ok(None);
    }
    let span = scanner.skip()?;
    let malformed = |_| Malformed {
        at: span.start as usize,
        expected: "an integer",
    };
    span.of(text).parse().map(Some).map_err(malformed)
}
