//! Draws on a terminal in place: the live tree of the embedded cluster, and `top`.

use std::{
    env,
    fmt::Write as _,
    io::{IsTerminal, Write as _, stdout},
};

use pintle::inspect::Verdict;
use terminal_size::{Height, Width, terminal_size};

/// A part of the terminal that is redrawn in place.
#[derive(Default)]
pub(crate) struct Screen {
    /// The number of lines of the last frame.
    drawn: usize,
    last: Vec<String>,
}

impl Screen {
    /// Returns whether stdout can be drawn on.
    pub(crate) fn is_available() -> bool {
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        stdout().is_terminal() && !dumb
    }

    /// Replaces the last frame. Lines are cut at the width of the terminal, and the frame at its
    /// height.
    pub(crate) fn draw(&mut self, frame: &[String]) {
        let size = terminal_size();
        let (width, height) =
            size.map_or((80, 24), |(Width(width), Height(height))| (width, height));
        let mut lines: Vec<_> = frame.iter().map(|line| cut(line, width.into())).collect();
        lines.truncate(usize::from(height).saturating_sub(2).max(1));
        if lines == self.last {
            return;
        }
        let mut out = String::new();
        // Writing to a String cannot fail.
        if self.drawn > 0 {
            let _ = write!(out, "\x1b[{}A", self.drawn);
        }
        for line in &lines {
            let _ = writeln!(out, "\x1b[2K{line}");
        }
        out.push_str("\x1b[J");
        self.drawn = lines.len();
        self.last = lines;
        // A closed stdout must not stop the controller.
        let _ = stdout()
            .write_all(out.as_bytes())
            .and_then(|()| stdout().flush());
    }
}

/// Cuts a line at `width` columns. Escape codes have no width.
fn cut(line: &str, width: usize) -> String {
    let mut cut = String::with_capacity(line.len());
    let (mut columns, mut in_escape) = (0, false);
    for c in line.chars() {
        if c == '\x1b' {
            in_escape = true;
        }
        if !in_escape {
            if columns + 1 >= width && line.chars().count() > width {
                cut.push('…');
                cut.push_str(RESET);
                return cut;
            }
            columns += 1;
        }
        cut.push(c);
        if in_escape && c.is_ascii_alphabetic() {
            in_escape = false;
        }
    }
    cut
}

/// Replaces control characters, so that text from elsewhere cannot move the cursor, change colors
/// or set the clipboard. Line breaks and tabs become spaces.
pub(crate) fn printable(text: &str) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        // These change the direction in which text is written.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(clean).collect()
}

const RESET: &str = "\x1b[0m";

/// Returns whether colors are wanted: on a terminal, unless <https://no-color.org> says otherwise.
fn has_colors() -> bool {
    stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Colors text by verdict.
pub(crate) fn paint(verdict: Verdict, text: &str) -> String {
    let color = match verdict {
        _ if !has_colors() => return text.to_owned(),
        Verdict::Failing => "\x1b[31m",
        Verdict::Waiting => "\x1b[33m",
        Verdict::Fine => "\x1b[32m",
        Verdict::Unknown => "\x1b[2m",
    };
    format!("{color}{text}{RESET}")
}

#[cfg(test)]
mod tests;
