//! How the program is told to stop.

use std::io;

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// Ctrl-C, and where there is one SIGTERM. None is missed from the time this is made.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    #[cfg(windows)]
    interrupt: CtrlC,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
            #[cfg(windows)]
            interrupt: ctrl_c()?,
        })
    }

    /// The first stops in order, the second at once.
    pub(crate) async fn stop(mut self, shutdown: CancellationToken) {
        self.next().await;
        shutdown.cancel();
        self.next().await;
        std::process::exit(1);
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            biased; // Both mean the same.
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    #[cfg(windows)]
    async fn next(&mut self) {
        self.interrupt.recv().await;
    }
}
