//! Graceful shutdown on SIGTERM, Ctrl-C and a closed terminal.
//!
//! Kubernetes stops a Pod with SIGTERM and kills it after a grace period. A program that only
//! handles Ctrl-C is killed in the middle of its work, with its events unwritten and its lease
//! still held.

use std::io;

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// Returns a token that is cancelled by SIGTERM, Ctrl-C or SIGHUP. A second signal exits the
/// process with status 1.
///
/// SIGHUP, which a closing terminal sends, is left alone if the process was started with it
/// ignored, as nohup does. This can be detected only on Linux; elsewhere it always stops the
/// process.
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

/// Listens for the signals that ask a process to stop.
///
/// [`shutdown_on_signal`] fits most programs. Use this in a program that must clean up whatever
/// happens: none of these signals exits the process, even after this is dropped.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// let mut signals = pintle::signals::Signals::listen()?;
/// println!("stopping after {}", signals.next().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    /// None if SIGHUP is ignored.
    #[cfg(unix)]
    hangup: Option<Signal>,
    #[cfg(windows)]
    interrupt: CtrlC,
}

impl Signals {
    /// Installs the handlers. Signals are handled from the moment this returns.
    ///
    /// # Errors
    ///
    /// Fails if a handler cannot be installed.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
            #[cfg(unix)]
            hangup: if ignores_hangup() {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            #[cfg(windows)]
            interrupt: ctrl_c()?,
        })
    }

    async fn cancel(mut self, shutdown: CancellationToken) {
        let signal = self.next().await;
        tracing::info!(
            signal,
            "received signal; shutting down (a second signal exits immediately)"
        );
        shutdown.cancel();
        self.next().await;
        std::process::exit(1);
    }

    /// Waits for a signal and returns its name. See [`shutdown_on_signal`] for which signals count.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal that arrives later is returned by the next call.
    #[cfg(unix)]
    pub async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
        }
    }

    /// Waits for Ctrl-C and returns its name.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a signal that arrives later is returned by the next call.
    #[cfg(windows)]
    pub async fn next(&mut self) -> &'static str {
        self.interrupt.recv().await;
        "Ctrl-C"
    }
}

/// Returns whether the process was started with SIGHUP ignored. Installing a handler would undo
/// that.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    mask.is_some_and(|mask| mask & 1 == 1)
}
