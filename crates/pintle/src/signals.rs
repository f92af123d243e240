//! Graceful shutdown on SIGTERM and Ctrl-C.
//!
//! Kubernetes stops a Pod with SIGTERM and kills it after a grace period. A program that only
//! handles Ctrl-C is killed in the middle of its work, with its events unwritten and its lease still
//! held.

use std::io;

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// Returns a token that is cancelled by SIGTERM or Ctrl-C. A second signal exits the process with
/// status 1.
///
/// Signals are handled from the moment this returns. Call it once, early in `main`. On Windows only
/// Ctrl-C is handled.
///
/// # Errors
///
/// Fails if the signal handlers cannot be installed.
///
/// # Panics
///
/// Panics outside a tokio runtime.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let shutdown = pintle::signals::shutdown_on_signal()?;
/// // Run controllers with the token; they drain and return once it is cancelled.
/// shutdown.cancelled().await;
/// # Ok(())
/// # }
/// ```
pub fn shutdown_on_signal() -> io::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    tokio::spawn(Signals::listen()?.cancel(shutdown.clone()));
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

    async fn cancel(mut self, shutdown: CancellationToken) {
        let signal = self.next().await;
        tracing::info!(
            signal,
            "received signal; shutting down (a second signal exits at once)"
        );
        shutdown.cancel();
        self.next().await;
        std::process::exit(1);
    }

    #[cfg(unix)]
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    #[cfg(windows)]
    async fn next(&mut self) -> &'static str {
        self.interrupt.recv().await;
        "Ctrl-C"
    }
}
