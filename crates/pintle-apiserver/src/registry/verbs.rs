//! The verbs of a resource as a bit set.

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

/// The names of a verb set, in discovery's (alphabetical) order.
pub(crate) fn verb_names(verbs: Verbs) -> Vec<&'static str> {
    NAMES
        .iter()
        .filter(|(bit, _)| verbs & bit != 0)
        .map(|(_, name)| *name)
        .collect()
}

/// The set of the named verbs.
pub(crate) fn verb_set(names: &[&str]) -> Verbs {
    NAMES
        .iter()
        .filter(|(_, name)| names.contains(name))
        .fold(0, |set, (bit, _)| set | bit)
}
