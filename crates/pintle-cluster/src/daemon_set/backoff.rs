//! How long a set waits before it deletes the next failed Pod on a node: 1 s, doubled each time up
//! to 15 min. Without this delay, a Pod that a node rejects would be replaced in a tight loop.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

const INITIAL: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_mins(15);

/// The UID of a set, the generation that its status observed, and the name of a node.
pub(super) type Key = (String, i64, String);

/// The delays by set and node. As upstream, they are lost when the loop restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    entries: BTreeMap<Key, Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    delay: Duration,
    since: Timestamp,
}

impl Entry {
    /// Returns whether the last failure was so long ago that the delay starts over.
    fn has_expired(self, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(self.since));
        age.is_ok_and(|age| age > LIMIT * 2)
    }
}

impl Backoff {
    /// Returns how long to wait before a failed Pod may be deleted.
    pub(super) fn remaining(&self, key: &Key, now: Timestamp) -> Duration {
        let entry = self.entries.get(key).filter(|it| !it.has_expired(now));
        entry.map_or(Duration::ZERO, |Entry { delay, since }| {
            let end = since.saturating_add(*delay).unwrap_or(now);
            Duration::try_from(end.duration_since(now)).unwrap_or_default()
        })
    }

    /// Records that a failed Pod is deleted now.
    pub(super) fn record(&mut self, key: Key, now: Timestamp) {
        self.entries.retain(|_, entry| !entry.has_expired(now));
        let before = self.entries.get(&key);
        let delay = before.map_or(INITIAL, |entry| (entry.delay * 2).min(LIMIT));
        self.entries.insert(key, Entry { delay, since: now });
    }
}

#[cfg(test)]
mod tests;
