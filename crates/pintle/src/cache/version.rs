//! Comparing `resourceVersion`s.

use std::cmp::Ordering;

/// The error returned for a `resourceVersion` that is not a positive decimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot compare resourceVersion {text:?}: it is not a positive decimal number")]
pub struct OpaqueVersion {
    text: String,
}

/// Compares two `resourceVersion`s of the same resource.
///
/// Kubernetes API servers use decimal numbers of any length. Other servers may use opaque strings,
/// which cannot be compared. The `resourceVersion`s of different resources must not be compared.
///
/// # Errors
///
/// Fails if either is not a positive decimal number. Callers that wait for a `resourceVersion`
/// should then assume that it has been reached.
///
/// ```
/// use pintle::cache::compare_versions;
/// use std::cmp::Ordering;
///
/// assert_eq!(compare_versions("9", "10"), Ok(Ordering::Less));
/// assert!(compare_versions("9", "0x10").is_err());
/// ```
pub fn compare_versions(left: &str, right: &str) -> Result<Ordering, OpaqueVersion> {
    for text in [left, right] {
        let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !number || text.starts_with('0') {
            return Err(OpaqueVersion {
                text: text.to_owned(),
            });
        }
    }
    Ok(left.len().cmp(&right.len()).then_with(|| left.cmp(right)))
}

#[cfg(test)]
mod tests;
