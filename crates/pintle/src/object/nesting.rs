//! Finding the end of an object or array without looking at each byte in turn.
//!
//! Strings are of any length, so a branch for each byte, or each string, is one the processor cannot
//! foresee. Here sixty-four bytes at a time are compared as vectors, and become bit masks: where
//! quotes stand, and where brackets. What lies between an opening and a closing quote follows from
//! the quotes alone, and only the brackets outside are counted one by one.

use wide::u8x64;

/// How deep in brackets, and whether in a string. It goes on from one piece of a text to the next.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    depth: usize,
    in_string: bool,
    /// The byte before was a backslash that escapes the next.
    escaped: bool,
}

const BLOCK: usize = 64;

impl Nesting {
    /// The length of the object or array with which `bytes` begins, if it ends among them.
    pub(super) fn length(bytes: &[u8]) -> Option<usize> {
        Self::default().advance(bytes)
    }

    /// Takes the next piece of an object or array; how much of it there is to the end, if that is
    /// in it.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(end) = self.at_once(block) {
                return Some(number * BLOCK + end);
            }
        }
        self.one_by_one(rest).map(|end| blocks.len() * BLOCK + end)
    }

    /// Takes a block; how much of it there is to the end, if that is in it.
    fn at_once(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let bytes = u8x64::new(*block);
        let mut quotes = bytes.simd_eq(u8x64::splat(b'"')).to_bitmask();
        // `[` and `{`, and `]` and `}`, differ in this one bit.
        let curly = bytes | u8x64::splat(0x20);
        let brackets = curly.simd_eq(u8x64::splat(b'{')) | curly.simd_eq(u8x64::splat(b'}'));
        let mut brackets = brackets.to_bitmask();
        let backslashes = bytes.simd_eq(u8x64::splat(b'\\')).to_bitmask();
        // Escapes are rare.
        if self.escaped || backslashes != 0 {
            let escaped = self.escaped(backslashes);
            quotes &= !escaped;
            brackets &= !escaped;
        }
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        if self.in_string {
            inside = !inside;
        }
        self.in_string = inside >> (BLOCK - 1) == 1;
        brackets &= !inside;
        while brackets != 0 {
            let at = brackets.trailing_zeros() as usize;
            brackets &= brackets - 1;
            if self.bracket(block[at]) {
                return Some(at + 1);
            }
        }
        None
    }

    /// Which bytes of a block are escaped, by where its backslashes stand.
    fn escaped(&mut self, mut backslashes: u64) -> u64 {
        let mut escaped = u64::from(self.escaped);
        // One that is escaped itself escapes nothing.
        backslashes &= !escaped;
        self.escaped = false;
        while backslashes != 0 {
            let at = backslashes.trailing_zeros();
            let next = (1_u64 << at) << 1;
            self.escaped = next == 0;
            escaped |= next;
            backslashes &= !(next | 1 << at);
        }
        escaped
    }

    fn one_by_one(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                // Outside of strings there is none in JSON.
                b'\\' => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' | b'}' | b']' if !self.in_string && self.bracket(byte) => {
                    return Some(at + 1);
                }
                _ => {}
            }
        }
        None
    }

    /// Counts a bracket; whether it was the last.
    fn bracket(&mut self, byte: u8) -> bool {
        if matches!(byte, b'{' | b'[') {
            self.depth += 1;
            return false;
        }
        self.depth = self.depth.saturating_sub(1);
        self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;
    use crate::testing::any_json;

    #[test]
    fn the_end_is_found_wherever_blocks_begin_and_end() {
        for filler in 0..200 {
            let text = format!(
                r#"{{"{}":["}}]","\\","\"]}}",{{"a":[]}}]}}"#,
                "x".repeat(filler)
            );
            for after in ["", "}", "]}\"", ",{}"] {
                let whole = format!("{text}{after}");
                assert_eq!(
                    Nesting::length(whole.as_bytes()),
                    Some(text.len()),
                    "{whole}"
                );
            }
            for cut in 0..text.len() {
                assert_eq!(Nesting::length(&text.as_bytes()[..cut]), None);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // What serde_json writes ends where it ends, whatever follows and wherever it is cut.
        #[test]
        fn any_json_ends_where_it_ends(items in collection::vec(any_json(), 0..6), pretty: bool) {
            let written = if pretty { serde_json::to_string_pretty } else { serde_json::to_string };
            let text = written(&items).unwrap();
            let whole = format!("{text},{text}");
            prop_assert_eq!(Nesting::length(whole.as_bytes()), Some(text.len()));
            for cut in 0..text.len() {
                let (before, after) = whole.as_bytes().split_at(cut);
                let mut nesting = Nesting::default();
                prop_assert_eq!(nesting.advance(before), None);
                prop_assert_eq!(nesting.advance(after), Some(text.len() - cut));
            }
        }
    }

    proptest! {
        // The blocks and the bytes one by one agree on anything.
        #[test]
        fn blocks_agree_with_bytes(text in r#"[\{\[]([\{\}\[\]"\\a,:]|[a-z]{1,9}){0,200}"#) {
            let mut bytewise = Nesting::default();
            prop_assert_eq!(Nesting::length(text.as_bytes()), bytewise.one_by_one(text.as_bytes()));
        }

        // Nor does it matter how a text is cut.
        #[test]
        fn pieces_agree_with_the_whole(
            text in r#"[\{\[]([\{\}\[\]"\\a,:]|[a-z]{1,9}){0,200}"#,
            size in 1usize..200,
        ) {
            let (mut nesting, mut before) = (Nesting::default(), 0);
            let mut end = None;
            for piece in text.as_bytes().chunks(size) {
                end = nesting.advance(piece).map(|end| before + end);
                before += piece.len();
                if end.is_some() {
                    break;
                }
            }
            prop_assert_eq!(end, Nesting::length(text.as_bytes()));
        }
    }
}
