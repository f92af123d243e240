//! Objects that kube-apiserver creates at startup: RBAC roles and bindings, system priority
//! classes, and an `APIService` per group version.
//!
//! The table holds them in stored form, with placeholders for what differs between servers, so a
//! server starts without decoding, validating or encoding any of them.

static TABLE: &str = include_str!("../tables/seeds.txt");

/// Placeholder for the object's UID.
const UID: &str = "$uid";
/// Placeholder for the server's start time.
const TIME: &str = "$time";
/// Placeholder for `managedFields`.
const MANAGERS: &str = "$managers";

/// An object in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed {
    /// The group and the plural of its resource.
    pub resource: (&'static str, &'static str),
    /// `namespace/name`, or `name`.
    pub key: &'static str,
    labels: &'static str,
    managers: &'static str,
    content: &'static str,
}

impl Seed {
    /// Returns the object's labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let pairs = self.labels.split(',');
        pairs.filter_map(|pair| pair.split_once('='))
    }

    /// Returns the object in stored form, without its type and `resourceVersion`.
    pub(crate) fn content(&self, uid: &str, time: &str) -> String {
        self.content
            .replace(MANAGERS, self.managers)
            .replace(UID, uid)
            .replace(TIME, time)
    }
}

/// Iterates over the objects in the order of the table.
pub(crate) fn seeds() -> impl Iterator<Item = Seed> {
    let mut resource = ("", "");
    let mut managers: Vec<&'static str> = Vec::new();
    TABLE.lines().filter_map(move |line| {
        let mut words = line.split('\t');
        let mut word = || words.next().unwrap_or_default();
        match word() {
            "R" => resource = (word(), word()),
            "M" => managers.push(word()),
            "O" => {
                let (key, labels) = (word(), word());
                let at: usize = word().parse().unwrap_or_default();
                return Some(Seed {
                    resource,
                    key,
                    labels,
                    managers: managers.get(at).copied().unwrap_or("[]"),
                    content: word(),
                });
            }
            _ => {}
        }
        None
    })
}
