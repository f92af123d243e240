//! The end of an object or array, found without branching on every byte.
//!
//! Strings have any length, so the processor cannot predict a branch per byte or per string. Blocks
//! of 64 bytes are therefore compared as vectors, which gives bit masks of the quotes and the
//! brackets. Which bytes lie inside strings follows from the quotes alone, and only the brackets
//! outside strings are counted one by one.

/// The bracket depth and string state of a scan, carried from one chunk to the next.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    in_string: bool,
    /// The previous byte was a backslash that escapes the next one.
    escaped: bool,
}

const BLOCK: usize = 64;

/// The bit in which `[` differs from `{`, and `]` from `}`.
const CURLY: u8 = 0x20;

/// The positions of bytes in a block, one bit each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Masks {
    quotes: u64,
    brackets: u64,
    backslashes: u64,
}

impl Masks {
    /// Compares a block with SSE2, which every x86-64 processor has. `wide` does the same, but
    /// takes as long to compile as tokio.
    #[cfg(target_arch = "x86_64")]
    fn of(block: &[u8; BLOCK]) -> Self {
        use safe_arch::{
            cmp_eq_mask_i8_m128i as equal, m128i, move_mask_i8_m128i, set_splat_i8_m128i,
        };

        const LANE: usize = 16;
        let splat = |byte: u8| set_splat_i8_m128i(byte.cast_signed());
        let mut masks = Self::default();
        for (number, lane) in block.as_chunks::<LANE>().0.iter().enumerate() {
            let place = |mask: m128i| {
                u64::from(move_mask_i8_m128i(mask).cast_unsigned()) << (number * LANE)
            };
            let bytes = m128i::from(*lane);
            let curly = bytes | splat(CURLY);
            masks.quotes |= place(equal(bytes, splat(b'"')));
            masks.brackets |= place(equal(curly, splat(b'{')) | equal(curly, splat(b'}')));
            masks.backslashes |= place(equal(bytes, splat(b'\\')));
        }
        masks
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(block: &[u8; BLOCK]) -> Self {
        use wide::u8x64;

        let bytes = u8x64::new(*block);
        let curly = bytes | u8x64::splat(CURLY);
        let brackets = curly.simd_eq(u8x64::splat(b'{')) | curly.simd_eq(u8x64::splat(b'}'));
        Self {
            quotes: bytes.simd_eq(u8x64::splat(b'"')).to_bitmask(),
            brackets: brackets.to_bitmask(),
            backslashes: bytes.simd_eq(u8x64::splat(b'\\')).to_bitmask(),
        }
    }
}

impl Nesting {
    /// Returns the length of the object or array that `bytes` begins with, if its end is among
    /// them.
    pub(super) fn length(bytes: &[u8]) -> Option<usize> {
        Self::default().advance(bytes)
    }

    /// Scans the next piece of an object or array. Returns the length up to its end, if the end is
    /// in this piece.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(end) = self.scan_block(block) {
                return Some(number * BLOCK + end);
            }
        }
        self.scan_bytes(rest).map(|end| blocks.len() * BLOCK + end)
    }

    /// Like [`advance`](Self::advance), for one block.
    fn scan_block(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let Masks {
            mut quotes,
            mut brackets,
            backslashes,
        } = Masks::of(block);
        // Escapes are rare.
        if self.escaped || backslashes != 0 {
            let escaped = self.escaped_bytes(backslashes);
            quotes &= !escaped;
            brackets &= !escaped;
        }
        // Prefix XOR: a bit is set from each opening quote up to its closing quote.
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
            if self.closes(block[at]) {
                return Some(at + 1);
            }
        }
        None
    }

    /// Returns which bytes of a block are escaped, given the positions of its backslashes.
    fn escaped_bytes(&mut self, mut backslashes: u64) -> u64 {
        let mut escaped = u64::from(self.escaped);
        // A backslash that is itself escaped escapes nothing.
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

    /// Like [`advance`](Self::advance), byte by byte.
    pub(super) fn scan_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                // JSON has backslashes only inside strings.
                b'\\' => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' | b'}' | b']' if !self.in_string && self.closes(byte) => {
                    return Some(at + 1);
                }
                _ => {}
            }
        }
        None
    }

    /// Counts a bracket. Returns whether it closes the outermost container.
    fn closes(&mut self, byte: u8) -> bool {
        if matches!(byte, b'{' | b'[') {
            self.depth += 1;
            return false;
        }
        self.depth = self.depth.saturating_sub(1);
        self.depth == 0
    }
}
