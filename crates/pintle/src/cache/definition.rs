//! Index definitions: a registered field, or a user function of the header or the typed object.

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
    /// With its id, if the reader of the objects has registered the field.
    Field(Option<FieldId>, Pointer),
    Header(Arc<ValuesOf<Object<K>>>),
    By(Arc<ValuesOf<K>>),
    /// Replaced by another definition of the same name.
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

/// The values of one object in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    #[default]
    None,
    /// A field without escapes, read in place from the object.
    Field(FieldId),
    Owned(Vec<String>),
}

impl Values {
    /// Returns the values, given the object they were taken from.
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

/// Why an object is not in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unindexed {
    pub(super) index: Box<str>,
    pub(super) reason: String,
}

impl<K: Kind> Definition<K> {
    /// Computes the values of an object. This runs user code and must not be called under a lock.
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
            Extract::Header(values_of) => call(values_of, object).map_err(unindexed),
            Extract::By(values_of) => {
                let view = object.get().map_err(|error| unindexed(error.to_string()))?;
                call(values_of, &view).map_err(unindexed)
            }
        }
    }
}

/// Calls a user function. Returns its values or the message of its panic.
fn call<T>(values_of: &Arc<ValuesOf<T>>, of: &T) -> Result<Values, String> {
    // Unwind safe: the argument is immutable.
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
