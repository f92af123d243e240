//! How a built-in kind is described: one row of the table in `kinds`.

/// The verbs a resource answers, as a set of bits.
pub(crate) type Verbs = u16;

pub(crate) const CREATE: Verbs = 1;
pub(crate) const DELETE: Verbs = 1 << 1;
pub(crate) const DELETE_COLLECTION: Verbs = 1 << 2;
pub(crate) const GET: Verbs = 1 << 3;
pub(crate) const LIST: Verbs = 1 << 4;
pub(crate) const PATCH: Verbs = 1 << 5;
pub(crate) const UPDATE: Verbs = 1 << 6;
pub(crate) const WATCH: Verbs = 1 << 7;
/// What an ordinary stored resource answers.
pub(crate) const ALL: Verbs =
    CREATE | DELETE | DELETE_COLLECTION | GET | LIST | PATCH | UPDATE | WATCH;

/// The kind counts changes of its spec in `metadata.generation`.
pub(crate) const GENERATION: u8 = 1;
/// A PUT may leave the resource version out.
pub(crate) const UNCONDITIONAL_UPDATE: u8 = 1 << 1;
/// A PUT of an object that does not exist creates it.
pub(crate) const CREATE_ON_UPDATE: u8 = 1 << 2;

/// The names of a verb set, in discovery's (alphabetical) order.
pub(crate) fn verb_names(verbs: Verbs) -> Vec<&'static str> {
    const NAMES: [(Verbs, &str); 8] = [
        (CREATE, "create"),
        (DELETE, "delete"),
        (DELETE_COLLECTION, "deletecollection"),
        (GET, "get"),
        (LIST, "list"),
        (PATCH, "patch"),
        (UPDATE, "update"),
        (WATCH, "watch"),
    ];
    NAMES
        .iter()
        .filter(|(bit, _)| verbs & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// A built-in kind as one version of its group serves it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) verbs: Verbs,
    pub(crate) traits: u8,
    pub(crate) subresources: &'static [Subresource],
}

/// A path below an object, with the kind it speaks.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) verbs: Verbs,
}

impl Kind {
    /// Whether objects of the kind are kept.
    pub(crate) fn is_stored(&self) -> bool {
        self.verbs & LIST != 0 && self.verbs & CREATE != 0
    }
}
