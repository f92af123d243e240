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
    message: String,
    until: Instant,
    wait: Duration,
}

/// A refusal that still stands.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The server's answer.
    pub(crate) message: String,
    /// How long not to ask again.
    pub(crate) wait: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<ObjectKey, Refusal>>);

impl Refusals {
    /// Returns the refusal of the same request, until it is time to ask again.
    pub(crate) fn standing(&self, key: &ObjectKey, basis: &Basis) -> Option<Standing> {
        let refusals = self.0.lock();
        let refusal = refusals.get(key).filter(|known| known.basis == *basis)?;
        let wait = refusal.until.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then(|| Standing {
            message: refusal.message.clone(),
            wait,
        })
    }

    /// Notes a refusal. Returns how long not to ask again.
    pub(crate) fn note(&self, key: &ObjectKey, basis: Basis, message: &str) -> Duration {
        let mut refusals = self.0.lock();
        let before = refusals.get(key).filter(|known| known.basis == basis);
        let wait = before.map_or(FIRST, |known| (known.wait * 2).min(LONGEST));
        let refusal = Refusal {
            basis,
            message: message.to_owned(),
            until: Instant::now() + wait,
            wait,
        };
        refusals.insert(key.clone(), refusal);
        wait
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}
