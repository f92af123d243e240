//! Randomness that replays: every jitter and every generated name comes from one seeded source.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

/// A shared source of chance.
///
/// Give the parts of one program the same `Chance` and a run under a paused clock replays from its
/// seed. Clones draw from the same sequence.
///
/// ```
/// use pintle::chance::Chance;
///
/// let (a, b) = (Chance::seeded(7), Chance::seeded(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!((0.0..1.0).contains(&a.unit()));
/// ```
#[derive(Clone)]
pub struct Chance {
    rng: Arc<Mutex<fastrand::Rng>>,
}

impl Chance {
    /// A source that always gives the same sequence for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self {
            rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    /// A source seeded by the operating system: the right one for production.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where real entropy enters"
    )]
    pub fn from_entropy() -> Self {
        Self {
            rng: Arc::new(Mutex::new(fastrand::Rng::new())),
        }
    }

    /// A number drawn uniformly from `[0, 1)`.
    pub fn unit(&self) -> f64 {
        self.rng.lock().f64()
    }

    /// Any 64-bit number.
    pub fn next_u64(&self) -> u64 {
        self.rng.lock().u64(..)
    }
}

impl Default for Chance {
    fn default() -> Self {
        Self::from_entropy()
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}
