//! Randomness that replays: uids, generated names and jitter come from one seeded source.

use std::fmt;

use parking_lot::Mutex;

/// The letters of a generated name's tail: no vowels and no look-alikes.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The server's source of chance.
pub(crate) struct Chance {
    rng: Mutex<fastrand::Rng>,
}

impl Chance {
    /// The same sequence for the same seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
        }
    }

    /// A source seeded by the operating system.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where real entropy enters"
    )]
    pub(crate) fn from_entropy() -> Self {
        Self {
            rng: Mutex::new(fastrand::Rng::new()),
        }
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let mut bytes = [0_u8; 16];
        self.rng.lock().fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// The five letters appended to a `generateName`.
    pub(crate) fn name_tail(&self) -> String {
        let mut rng = self.rng.lock();
        (0..5)
            .map(|_| char::from(NAME_LETTERS[rng.usize(..NAME_LETTERS.len())]))
            .collect()
    }

    /// A number drawn uniformly from `0..end`; 0 if that is empty.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.rng.lock().u64(..end.max(1))
    }

    /// A number drawn uniformly from `[0, 1)`.
    pub(crate) fn unit(&self) -> f64 {
        self.rng.lock().f64()
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}
