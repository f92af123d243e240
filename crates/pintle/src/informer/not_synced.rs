//! Who has not synced, and why.

use std::fmt;

use crate::reflector::Status;

/// Informers that have not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NotSynced {
    /// Each of them.
    pub informers: Vec<Unsynced>,
}

/// An informer that has not synced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unsynced {
    /// What it follows: `pods at cluster scope`.
    pub informer: String,
    /// What it is doing, and what went wrong.
    pub status: Status,
}

impl std::error::Error for NotSynced {}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not synced: ")?;
        for (number, Unsynced { informer, status }) in self.informers.iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            write!(f, "{separator}{informer} ({status})")?;
        }
        Ok(())
    }
}
