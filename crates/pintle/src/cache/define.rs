//! What an index is of: a field read while skimming, or what a user's function says of the header or
//! of the whole object.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::object::{FieldId, Kind, Object, Pointer, panic_message};

type ValuesOf<T> = dyn Fn(&T) -> Vec<String> + Send + Sync;

/// The definition of one index.
pub(super) struct Definition<K> {
    pub(super) name: Box<str>,
    pub(super) extract: Extract<K>,
}

pub(super) enum Extract<K> {
    /// With the number under which the reader of the objects looked for it, if it did.
    Field(Option<FieldId>, Pointer),
    Header(Arc<ValuesOf<Object<K>>>),
    By(Arc<ValuesOf<K>>),
    /// Another definition of the same name has taken its place.
    Retired,
}

impl<K> Clone for Extract<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Field(id, pointer) => Self::Field(*id, pointer.clone()),
            Self::Header(values_of) => Self::Header(values_of.clone()),
            Self::By(values_of) => Self::By(values_of.clone()),
            Self::Retired => Self::Retired,
        }
    }
}

/// The values one object has in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    #[default]
    None,
    /// A field without escapes: read where it stands in the object.
    Field(FieldId),
    Owned(Vec<String>),
}

impl Values {
    /// The values, given the object they were taken from.
    pub(super) fn iter<'a, K>(
        &'a self,
        object: &'a Object<K>,
    ) -> impl Iterator<Item = &'a str> + Clone {
        let field = match self {
            Self::Field(id) => object.field_text(*id),
            _ => None,
        };
        let owned = match self {
            Self::Owned(values) => values.as_slice(),
            _ => &[],
        };
        field.into_iter().chain(owned.iter().map(String::as_str))
    }
}

/// Why an object is left out of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unindexed {
    pub(super) index: Box<str>,
    pub(super) reason: String,
}

impl<K: Kind> Definition<K> {
    /// Reads an object's values. Runs user code: never called under a lock.
    pub(super) fn values(&self, object: &Object<K>) -> Result<Values, Unindexed> {
        let unindexed = |reason| Unindexed {
            index: self.name.clone(),
            reason,
        };
        match &self.extract {
            Extract::Field(Some(id), _) if object.field_text(*id).is_some() => {
                Ok(Values::Field(*id))
            }
            Extract::Field(id, pointer) => Ok(owned(object.field(*id, pointer))),
            Extract::Retired => Ok(Values::None),
            Extract::Header(values_of) => ask(values_of, object).map_err(unindexed),
            Extract::By(values_of) => {
                let view = object.get().map_err(|error| unindexed(error.to_string()))?;
                ask(values_of, &view).map_err(unindexed)
            }
        }
    }
}

/// What a user's function says, or the message of its panic.
fn ask<T>(values_of: &Arc<ValuesOf<T>>, of: &T) -> Result<Values, String> {
    // What it is asked about is shared and read-only, so a panic leaves nothing half done.
    catch_unwind(AssertUnwindSafe(|| values_of(of)))
        .map(|values| owned(values.into_iter().map(Cow::Owned).collect()))
        .map_err(|panic| panic_message(panic.as_ref()))
}

fn owned(values: Vec<Cow<'_, str>>) -> Values {
    if values.is_empty() {
        return Values::None;
    }
    Values::Owned(values.into_iter().map(Cow::into_owned).collect())
}
