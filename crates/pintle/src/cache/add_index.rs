//! Adding indexes to a cache that may already hold objects.

use std::sync::{Arc, atomic::Ordering};

use super::{
    index::{Definition, Extract},
    indexer::{IndexState, Indexer},
};
use crate::object::{InvalidPointer, Kind, Object, Pointer};

/// Why an index cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// An index with that name already exists; it is unchanged.
    #[error("index {name:?} already exists")]
    Duplicate {
        /// The name of the index.
        name: String,
    },
    /// The field path is invalid.
    #[error(transparent)]
    InvalidPointer(#[from] InvalidPointer),
    /// The informer has stopped, so its cache no longer changes.
    #[error("cannot add index {name:?}: the informer has stopped")]
    Stopped {
        /// The name of the index.
        name: String,
    },
}

/// How many existing objects a new index adds per lock.
const BACKFILL: usize = 1024;

impl<K: Kind> Indexer<K> {
    /// Indexes objects by the field at `path`, a JSON pointer such as `/spec/nodeName`.
    ///
    /// The field is located when the object is read, so nothing is decoded. Numbers and booleans
    /// are indexed as written, and each scalar of an array is a value. Objects without the field
    /// are not in the index. Existing objects are indexed before this returns.
    ///
    /// # Errors
    ///
    /// Fails if the name is taken or the path is invalid.
    pub fn index_field(&self, name: &str, path: &str) -> Result<(), IndexError> {
        let extract = self.extract_field(path.parse()?);
        self.add_index(name, extract, false)
    }

    pub(super) fn extract_field(&self, pointer: Pointer) -> Extract<K> {
        let fields = self.shared.fields.as_ref();
        let id = fields.map(|fields| fields.add(pointer.clone()));
        Extract::Field(id, pointer)
    }

    /// Indexes objects by the values that a function returns for their header, such as the
    /// controller owner or a label.
    ///
    /// Nothing is decoded. If `values` panics, the object is left out of the index, counted in
    /// [`unindexed`](Self::unindexed) and logged.
    ///
    /// # Errors
    ///
    /// Fails if the name is taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use pintle::cache::{Indexer, Object};
    ///
    /// let pods = Indexer::<Pod>::new();
    /// let owner = |pod: &Object<Pod>| {
    ///     pod.controller_owner().map(|owner| owner.uid().to_owned()).into_iter().collect()
    /// };
    /// pods.index_header("owner", owner).unwrap();
    /// assert!(pods.lister().by_index("owner", "some-uid").unwrap().is_empty());
    /// ```
    pub fn index_header<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    {
        self.add_index(name, Extract::Header(Arc::new(values)), false)
    }

    /// Indexes objects by the values that a function returns for the typed object.
    ///
    /// Every object is decoded once on arrival; [`index_field`](Self::index_field) costs less. If
    /// an object cannot be decoded or `values` panics, it is left out of the index, counted in
    /// [`unindexed`](Self::unindexed) and logged.
    ///
    /// # Errors
    ///
    /// Fails if the name is taken.
    pub fn index_by<F>(&self, name: &str, values: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        self.add_index(name, Extract::By(Arc::new(values)), false)
    }

    /// Returns how many times an object was left out of an index because its values could not be
    /// computed.
    pub fn unindexed(&self) -> u64 {
        self.shared.unindexed.load(Ordering::Relaxed)
    }

    /// Adds the definition first, so that every later write is indexed. Then indexes, in batches,
    /// the objects that existed before and have not been written since.
    pub(super) fn add_index(
        &self,
        name: &str,
        extract: Extract<K>,
        inherited: bool,
    ) -> Result<(), IndexError> {
        let definition = Arc::new(Definition {
            name: name.into(),
            extract,
        });
        let (number, existing) = {
            let mut state = self.shared.state.write();
            let mut known = state.definitions.iter().zip(&state.indices);
            if known.any(|(known, index)| &*known.name == name && !index.inherited) {
                return Err(IndexError::Duplicate {
                    name: name.to_owned(),
                });
            }
            Arc::make_mut(&mut state.definitions).push(definition.clone());
            state.indices.push(IndexState {
                ready: false,
                inherited,
            });
            state.store.add_index();
            let existing: Vec<Object<K>> = state.store.iter().cloned().collect();
            (state.indices.len() - 1, existing)
        };
        for objects in existing.chunks(BACKFILL) {
            let values: Vec<_> = objects
                .iter()
                .map(|o| self.values(&definition, o))
                .collect();
            let mut state = self.shared.state.write();
            for (object, values) in objects.iter().zip(&values) {
                state.store.index_if_current(number, object, values);
            }
        }
        let mut state = self.shared.state.write();
        let replaced = state.index(name);
        state.indices[number].ready = true;
        if let Some(replaced) = replaced {
            state.indices[replaced].ready = false;
            Arc::make_mut(&mut state.definitions)[replaced] = Arc::new(Definition {
                name: name.into(),
                extract: Extract::Retired,
            });
            state.store.clear_index(replaced);
        }
        Ok(())
    }
}
