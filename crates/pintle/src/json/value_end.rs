//! The end of a value that arrives in chunks.

use super::{is_space, nesting::Nesting, quote_or_backslash};

/// Follows one JSON value across any number of chunks to its end.
///
/// An object or array ends with its closing bracket, a string with its closing quote, and anything
/// else (a number, `true`, `null`) before the next byte that cannot belong to it.
#[derive(Debug, Default)]
pub(crate) struct ValueEnd {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Before the first byte.
    #[default]
    Start,
    /// In a number, `true`, `false` or `null`.
    Scalar,
    /// In an object or array.
    Container(Nesting),
    /// In a string.
    String,
    /// In a string, after a backslash.
    Escape,
}

impl ValueEnd {
    /// Returns how many bytes of `chunk` belong to the value, and whether the value ends there.
    pub(crate) fn advance(&mut self, chunk: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < chunk.len() {
            match &mut self.state {
                State::Start => match chunk[at] {
                    // Not consumed, because the nesting also counts this bracket.
                    b'{' | b'[' => self.state = State::Container(Nesting::default()),
                    b'"' => {
                        self.state = State::String;
                        at += 1;
                    }
                    _ => {
                        self.state = State::Scalar;
                        at += 1;
                    }
                },
                State::Scalar => {
                    return match chunk[at..].iter().position(|&byte| ends_scalar(byte)) {
                        Some(end) => (at + end, true),
                        None => (chunk.len(), false),
                    };
                }
                State::Container(nesting) => {
                    return match nesting.advance(&chunk[at..]) {
                        Some(end) => (at + end, true),
                        None => (chunk.len(), false),
                    };
                }
                State::Escape => {
                    self.state = State::String;
                    at += 1;
                }
                State::String => {
                    let Some(found) = quote_or_backslash(chunk, at) else {
                        break;
                    };
                    at = found + 1;
                    if chunk[found] == b'"' {
                        return (at, true);
                    }
                    self.state = State::Escape;
                }
            }
        }
        (chunk.len(), false)
    }
}

fn ends_scalar(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[')
}
