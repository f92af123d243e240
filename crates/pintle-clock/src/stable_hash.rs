//! A hash that is the same in every run.

use std::io;

/// The 64-bit FNV-1a hash, for names and fingerprints that must not change between runs, platforms
/// or Rust releases. The standard library's hashers promise none of that.
///
/// It does not resist deliberate collisions.
///
/// # Examples
///
/// ```
/// use std::io::Write;
///
/// use pintle_clock::StableHash;
///
/// let mut hash = StableHash::default();
/// hash.write_all(b"foo")?;
/// hash.write_all(b"bar")?;
/// assert_eq!(hash.finish(), StableHash::of(b"foobar"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StableHash(u64);

impl StableHash {
    /// Returns the hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::default();
        hash.add(bytes);
        hash.finish()
    }

    /// Continues the hash with `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    }

    /// Returns the hash of everything that was added.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for StableHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

/// Writing never fails.
impl io::Write for StableHash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
