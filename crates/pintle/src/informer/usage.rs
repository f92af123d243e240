//! Who still needs an informer.

use tokio_util::sync::CancellationToken;

/// Shared by everything that keeps an informer running: handles, listers, registrations, streams.
/// With the last of them goes the informer.
#[derive(Debug, Default)]
pub(super) struct Usage {
    unused: CancellationToken,
}

impl Usage {
    /// Cancelled when nobody uses the informer any more.
    pub(super) fn unused(&self) -> CancellationToken {
        self.unused.clone()
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.unused.cancel();
    }
}
