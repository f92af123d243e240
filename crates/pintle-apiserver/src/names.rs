//! Suffixes for `generateName`.

use pintle_clock::Rng;

/// The alphabet of Kubernetes' generated names: no vowels and no look-alikes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns five random characters to append to a `generateName`.
pub(crate) fn random_suffix(rng: &Rng) -> String {
    let random = || {
        let index = usize::try_from(rng.below(ALPHABET.len() as u64)).unwrap_or_default();
        char::from(ALPHABET[index])
    };
    std::iter::repeat_with(random).take(5).collect()
}
