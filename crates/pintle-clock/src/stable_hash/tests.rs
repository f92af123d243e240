use super::*;

/// The test vectors of the algorithm's authors.
#[test]
fn hashes_match_the_reference_vectors() {
    assert_eq!(StableHash::of(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(StableHash::of(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(StableHash::of(b"foobar"), 0x8594_4171_f739_67e8);
}
