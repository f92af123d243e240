//! Shows progress.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Instant;

/// A progress bar on a terminal, one line per step elsewhere.
pub(super) struct Progress {
    done: usize,
    total: usize,
    begin: Instant,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self {
            done: 0,
            total,
            begin: Instant::now(),
        }
    }

    /// Starts the next step.
    pub(super) fn step(&mut self, what: &str) {
        self.done += 1;
        let (done, total) = (self.done, self.total.max(self.done));
        let elapsed = self.begin.elapsed().as_secs();
        let (minutes, seconds) = (elapsed / 60, elapsed % 60);
        if stderr().is_terminal() {
            let full = done * 24 / total;
            let drawn = "█".repeat(full) + &"░".repeat(24 - full);
            eprint!("\r\x1b[2K{drawn} {done}/{total} {minutes}:{seconds:02} {what}");
        } else {
            eprintln!("[{done}/{total} {minutes}:{seconds:02}] {what}");
        }
        let _ = stderr().flush();
    }

    /// Prints a line above the progress bar.
    pub(super) fn say(line: &str) {
        let clear = if stderr().is_terminal() {
            "\r\x1b[2K"
        } else {
            ""
        };
        eprintln!("{clear}{line}");
    }
}
