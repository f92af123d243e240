//! Verbs as a bit set.

/// A set of verbs.
pub(crate) type Verbs = u16;

pub(crate) const CREATE: Verbs = 1;
pub(crate) const DELETE: Verbs = 1 << 1;
pub(crate) const DELETE_COLLECTION: Verbs = 1 << 2;
pub(crate) const GET: Verbs = 1 << 3;
pub(crate) const LIST: Verbs = 1 << 4;
pub(crate) const PATCH: Verbs = 1 << 5;
pub(crate) const UPDATE: Verbs = 1 << 6;
pub(crate) const WATCH: Verbs = 1 << 7;
/// The verbs of an ordinary stored resource.
pub(crate) const ALL: Verbs =
    CREATE | DELETE | DELETE_COLLECTION | GET | LIST | PATCH | UPDATE | WATCH;

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

/// Returns the names of a verb set in alphabetical order, as discovery lists them.
pub(crate) fn verb_names(verbs: Verbs) -> Vec<&'static str> {
    NAMES
        .iter()
        .filter(|(bit, _)| verbs & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// Returns the set of the named verbs.
pub(crate) fn verb_set(names: &[&str]) -> Verbs {
    NAMES
        .iter()
        .filter(|(_, name)| names.contains(name))
        .fold(0, |set, (bit, _)| set | bit)
}
