//! How a program is asked to stop.

use std::io;

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// Returns a token that Ctrl-C or, where there is one, SIGTERM cancels. A second signal exits the
/// process at once with status 1.
///
/// SIGTERM is how Kubernetes stops a Pod, so a program that listens for Ctrl-C alone is killed in
/// the middle of its work. Signals are caught from the moment this returns. Call it once.
///
/// # Errors
///
/// The handlers cannot be installed.
///
/// # Panics
///
/// Outside a tokio runtime.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let shutdown = pintle::signals::shutdown_token()?;
/// // … run controllers with it …
/// shutdown.cancelled().await;
/// # Ok(())
/// # }
/// ```
pub fn shutdown_token() -> io::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    tokio::spawn(Signals::listen()?.stop(shutdown.clone()));
    Ok(shutdown)
}

struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    #[cfg(windows)]
    interrupt: CtrlC,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
            #[cfg(windows)]
            interrupt: ctrl_c()?,
        })
    }

    async fn stop(mut self, shutdown: CancellationToken) {
        self.next().await;
        tracing::info!("stopping; a second signal exits at once");
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
