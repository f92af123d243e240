//! The objects a kube-apiserver creates when it starts: RBAC's roles and bindings, the priority
//! classes of the system, and an `APIService` for each group and version.
//!
//! The table holds them as they are stored, with placeholders for what differs between servers, so
//! that a server begins with them without decoding, checking or encoding any.

static TABLE: &str = include_str!("../tables/seeds.txt");

/// What stands for the object's uid.
const UID: &str = "$uid";
/// What stands for the moment the server started.
const TIME: &str = "$time";
/// What stands for who manages the object's fields.
const MANAGERS: &str = "$managers";

/// An object of the table.
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
    /// Its labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let pairs = self.labels.split(',');
        pairs.filter_map(|pair| pair.split_once('='))
    }

    /// The object as it is stored, without its type and version.
    pub(crate) fn content(&self, uid: &str, time: &str) -> String {
        self.content
            .replace(MANAGERS, self.managers)
            .replace(UID, uid)
            .replace(TIME, time)
    }
}

/// Every object of the table, in its order.
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
