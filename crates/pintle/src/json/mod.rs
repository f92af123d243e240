//! Navigates JSON text without decoding it.
//!
//! A watch event or a list item is typically 6 KB of JSON, of which the cache needs a name, a few
//! labels and the bytes as they are. Decoding it all to throw most of it away would dominate the
//! cost of a first sync, so this module only finds where values begin and end:
//!
//! - [`Scanner`] walks over text that is in memory as a whole; [`members`] is its shortcut for one
//!   object.
//! - [`ValueEnd`] finds the end of a value that arrives in chunks.
//!
//! Both pair quotes and brackets and validate little else. Bytes that are not JSON produce an error
//! or a wrong end, never a panic; decoding the same bytes later reports the error.

mod nesting;
mod scanner;
#[cfg(test)]
mod tests;
mod value_end;

pub(crate) use self::{
    scanner::{Literal, Malformed, Scanner, Span, members},
    value_end::ValueEnd,
};

/// Returns whether `byte` is JSON white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns whether a JSON value can begin with `byte`.
pub(crate) fn begins_value(byte: u8) -> bool {
    matches!(
        byte,
        b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'
    )
}

/// How many eight-byte words to compare before setting up a vectorised search, which pays off only
/// for long strings.
const SHORT_STRING: usize = 4;

/// Returns the position of the next quote or backslash from `at` on.
fn quote_or_backslash(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);
    for _ in 0..SHORT_STRING {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        // An equal byte becomes zero, and the subtraction borrows into its high bit. Bytes above
        // the first match may be wrong, but only the first is used.
        let (quotes, backslashes) = (word ^ QUOTES, word ^ BACKSLASHES);
        let found =
            (quotes.wrapping_sub(ONES) & !quotes) | (backslashes.wrapping_sub(ONES) & !backslashes);
        let found = found & HIGHS;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    memchr::memchr2(b'"', b'\\', rest).map(|further| at + further)
}
