//! One pass over an object's JSON that finds its header.
//!
//! The pass copies nothing: names, labels and the rest are spans of the input. Everything outside
//! `metadata` is skipped, except for registered fields.

use super::{field::FieldSet, owner::OwnerRef};
use crate::json::{Literal, Malformed, Scanner, Span};

/// The header of an object, as spans of the input.
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
    /// Fills the skim from `text`, including the registered `fields`. After an error it holds what
    /// was found up to there.
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
