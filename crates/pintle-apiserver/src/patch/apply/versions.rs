//! The versions that managers wrote in.
//!
//! A manager owns fields under the names of the version that it wrote in, so a write is compared in
//! the version of each manager. Built-in kinds convert by functions, and the versions of a CRD
//! without a webhook differ only in their schemas.
//!
//! A conversion webhook requires a request, but the functions here are pure. They fail with the
//! [conversion they need](Unconverted::Pending); the caller performs it, adds it to the
//! [`Conversions`] and starts over. The functions are deterministic, so each round needs only
//! conversions that earlier rounds did not make.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    Write, filtered,
    managed::{Entry, Managed},
    shape::Shape,
    walk::{self, Changes},
};

/// The maximum number of conversions that one write may need. The versions of a CRD bound them for
/// each state of the object, but the object may change concurrently.
const MAX_CONVERSIONS: usize = 256;

/// Another version of a kind. A manager that wrote in it owns fields under that version's names,
/// with that version's list types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OtherVersion<'a> {
    /// For example `autoscaling/v1`.
    pub api_version: &'a str,
    /// The schema of that version.
    pub shape: Shape<'a>,
    /// Converts from the request's version to this one, unless a webhook does.
    pub to_other: fn(Map<String, Value>) -> Map<String, Value>,
    /// Converts from this version to the request's, unless a webhook does.
    pub from_other: fn(Map<String, Value>) -> Map<String, Value>,
}

/// The conversions that a webhook made for one write.
#[derive(Debug, Default)]
pub(crate) struct Conversions {
    made: Vec<(Pending, Result<Value, String>)>,
}

/// A conversion that a webhook has to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The version that the object is in.
    pub from: String,
    /// The version that is needed.
    pub to: String,
    pub object: Value,
}

/// Why an object is not available in another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unconverted {
    /// The caller has to make this conversion and start over.
    #[error("conversion from {} to {} is pending", .0.from, .0.to)]
    Pending(Box<Pending>),
    /// The webhook failed.
    #[error("{0}")]
    Failed(String),
}

impl Conversions {
    /// Adds a conversion.
    pub(crate) fn add(&mut self, pending: Pending, outcome: Result<Value, String>) {
        self.made.push((pending, outcome));
    }

    fn get(&self, object: &Value, from: &str, to: &str) -> Result<Value, Unconverted> {
        let mut made = self.made.iter();
        let is_this = |pending: &Pending| {
            pending.from == from && pending.to == to && pending.object == *object
        };
        if let Some((_, outcome)) = made.find(|(pending, _)| is_this(pending)) {
            return outcome.clone().map_err(Unconverted::Failed);
        }
        if self.made.len() >= MAX_CONVERSIONS {
            let why = "too many conversions to compare managed fields";
            return Err(Unconverted::Failed(why.to_owned()));
        }
        Err(Unconverted::Pending(Box::new(Pending {
            from: from.to_owned(),
            to: to.to_owned(),
            object: object.clone(),
        })))
    }
}

impl<'a> Write<'a> {
    /// Returns a version, or `None` if it is the request's or unknown.
    fn other(&self, api_version: &str) -> Option<&'a OtherVersion<'a>> {
        let mut others = self.others.iter();
        others.find(|other| other.api_version == api_version)
    }

    /// Returns the version in which an entry's fields are compared: the one it was written in or,
    /// if that is unknown, the request's.
    pub(super) fn version_of<'e>(&self, entry: &'e Entry) -> &'e str
    where
        'a: 'e,
    {
        match self.other(&entry.api_version) {
            Some(_) => &entry.api_version,
            None => self.api_version,
        }
    }

    /// Returns the schema of a version; `shape` is the request's.
    pub(super) fn shape_of(&self, api_version: &str, shape: Shape<'a>) -> Shape<'a> {
        self.other(api_version).map_or(shape, |other| other.shape)
    }

    /// Converts an object between versions, via the request's version, as upstream does.
    pub(super) fn convert<'v>(
        &self,
        object: &'v Value,
        from: &str,
        to: &str,
    ) -> Result<Cow<'v, Value>, Unconverted> {
        if from == to {
            return Ok(Cow::Borrowed(object));
        }
        let mut object = Cow::Borrowed(object);
        for (other, from, to) in [
            (self.other(from), from, self.api_version),
            (self.other(to), self.api_version, to),
        ] {
            let Some(other) = other else {
                continue;
            };
            object = Cow::Owned(match self.conversions {
                Some(conversions) => conversions.get(&object, from, to)?,
                None if to == self.api_version => converted(&object, other.from_other),
                None => converted(&object, other.to_other),
            });
        }
        Ok(object)
    }
}

fn converted(object: &Value, convert: fn(Map<String, Value>) -> Map<String, Value>) -> Value {
    Value::Object(convert(object.as_object().cloned().unwrap_or_default()))
}

/// The changes of a write, as seen in each version that a manager wrote in.
pub(super) struct VersionedChanges<'a> {
    pub(super) here: Changes,
    others: Vec<(&'a str, Changes)>,
}

impl<'a> VersionedChanges<'a> {
    /// Compares `before` and `after`, in other versions only if a manager wrote in them.
    pub(super) fn new(
        before: &Value,
        after: &Value,
        shape: Shape<'_>,
        managed: &Managed,
        write: &Write<'a>,
    ) -> Result<Self, Unconverted> {
        let compare = |before: &Value, after: &Value, shape: Shape<'_>| {
            filtered(walk::compare(before, after, shape.root()), write.reset)
        };
        let wrote_in = |other: &&OtherVersion<'a>| {
            let mut entries = managed.entries.values();
            entries.any(|entry| entry.api_version == other.api_version)
        };
        let mut others = Vec::new();
        for other in write.others.iter().filter(wrote_in) {
            let there = |object| write.convert(object, write.api_version, other.api_version);
            let changes = compare(&*there(before)?, &*there(after)?, other.shape);
            others.push((other.api_version, changes));
        }
        Ok(Self {
            here: compare(before, after, shape),
            others,
        })
    }

    /// Returns the changes in the version of an entry.
    pub(super) fn seen_by(&self, entry: &Entry) -> &Changes {
        let mut others = self.others.iter();
        others
            .find(|(version, _)| entry.api_version == *version)
            .map_or(&self.here, |(_, changes)| changes)
    }
}

/// Drops managers that wrote in a version that the kind no longer has: their fields cannot be
/// compared.
pub(super) fn drop_unknown_versions(managed: &mut Managed, shape: Shape<'_>, write: &Write<'_>) {
    // Without a webhook all versions of a CRD use the same field names, removed ones included.
    if !matches!(shape, Shape::Builtin(_)) && write.conversions.is_none() {
        return;
    }
    managed.entries.retain(|_, entry| {
        entry.api_version == write.api_version || write.other(&entry.api_version).is_some()
    });
}
