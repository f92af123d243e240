//! The random number generator.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

/// A shared random number generator.
///
/// Clones draw from the same sequence. If all parts of a program share one `Rng` with a fixed seed,
/// a run under a paused clock can be replayed. It is not cryptographically secure.
///
/// ```
/// use pintle_clock::Rng;
///
/// let (a, b) = (Rng::with_seed(7), Rng::with_seed(7));
/// assert_eq!(a.u64(), b.u64());
/// assert!((0.0..1.0).contains(&a.f64()));
/// ```
#[derive(Clone)]
pub struct Rng {
    inner: Arc<Mutex<fastrand::Rng>>,
}

impl Rng {
    /// Returns a generator that yields the same sequence for the same seed.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            inner: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    /// Returns a generator seeded by the operating system.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where real entropy enters"
    )]
    pub fn from_entropy() -> Self {
        Self {
            inner: Arc::new(Mutex::new(fastrand::Rng::new())),
        }
    }

    /// Returns a number drawn uniformly from `[0, 1)`.
    pub fn f64(&self) -> f64 {
        self.inner.lock().f64()
    }

    /// Returns a number drawn uniformly from all of `u64`.
    pub fn u64(&self) -> u64 {
        self.inner.lock().u64(..)
    }

    /// Returns a number drawn uniformly from `0..end`, or 0 if that range is empty.
    pub fn below(&self, end: u64) -> u64 {
        self.inner.lock().u64(..end.max(1))
    }

    /// Returns a version 4 UUID in its hyphenated form.
    ///
    /// ```
    /// # use pintle_clock::Rng;
    /// let uid = Rng::with_seed(7).uuid();
    /// assert_eq!(uid.len(), 36);
    /// assert_eq!(&uid[14..15], "4"); // the version
    /// ```
    pub fn uuid(&self) -> String {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = [0_u8; 16];
        self.inner.lock().fill(&mut bytes);
        // RFC 9562: the version and the variant.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let mut text = String::with_capacity(36);
        for (i, byte) in bytes.into_iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 0x0f)]));
        }
        text
    }
}

impl Default for Rng {
    fn default() -> Self {
        Self::from_entropy()
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rng").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
