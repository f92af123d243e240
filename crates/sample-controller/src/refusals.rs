//! Which requests the server refused for good, and when to ask again.
//!
//! A Deployment that is invalid stays invalid until its Foo changes, so the same question is not
//! put at every resync. It is still put now and then: an admission policy may have changed.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use pintle::cache::ObjectKey;
use tokio::time::Instant;

/// The wait after the first refusal; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(30);

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(30);

/// What a request depended on: if any of it changes, asking again makes sense.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    /// Of the Foo.
    pub(crate) uid: Option<String>,
    pub(crate) generation: Option<i64>,
    /// Of the Deployment, if there was one.
    pub(crate) deployment: Option<String>,
}

#[derive(Debug)]
struct Refusal {
    basis: Basis,
    until: Instant,
    wait: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<ObjectKey, Refusal>>);

impl Refusals {
    /// How long not to ask again, if the same was refused before.
    pub(crate) fn wait(&self, key: &ObjectKey, basis: &Basis) -> Option<Duration> {
        let refusals = self.0.lock();
        let refusal = refusals.get(key).filter(|known| known.basis == *basis)?;
        let wait = refusal.until.saturating_duration_since(Instant::now());
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// Notes a refusal. Returns how long not to ask again.
    pub(crate) fn note(&self, key: &ObjectKey, basis: Basis) -> Duration {
        let mut refusals = self.0.lock();
        let before = refusals.get(key).filter(|known| known.basis == basis);
        let wait = before.map_or(FIRST, |known| (known.wait * 2).min(LONGEST));
        let until = Instant::now() + wait;
        refusals.insert(key.clone(), Refusal { basis, until, wait });
        wait
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}
