use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn indexes_are_written_as_intervals() {
    for text in ["", "0", "0,1", "0-2", "1,3-5,7,8", "0-99"] {
        assert_eq!(Indexes::parse(text, 100).to_string(), text);
    }
    assert_eq!(Indexes::parse("0-5,7,9", 8).to_string(), "0-5,7");
    assert_eq!(Indexes::parse("0-5", 3).to_string(), "0-2");
    assert_eq!(Indexes::parse("1,x,2-y,4", 8).to_string(), "1,4");
    assert_eq!(Indexes::parse("1,2,3", 8).to_string(), "1-3");
}

proptest! {
    #[test]
    fn indexes_are_a_set(
        inserted in prop::collection::vec(0..30_i32, 0..40),
        other in prop::collection::btree_set(0..30_i32, 0..20),
        count in 0..8_usize,
    ) {
        let mut indexes = Indexes::default();
        indexes.extend(inserted.iter().copied());
        let expected: BTreeSet<i32> = inserted.into_iter().collect();
        prop_assert_eq!(usize::try_from(indexes.len()).unwrap(), expected.len());
        for index in 0..32 {
            prop_assert_eq!(indexes.contains(index), expected.contains(&index));
        }
        prop_assert_eq!(&Indexes::parse(&indexes.to_string(), 30), &indexes);
        let free: Vec<i32> = (0..25).filter(|it| !expected.contains(it)).take(count).collect();
        prop_assert_eq!(indexes.missing(25, count), free);
        let mut second = Indexes::default();
        second.extend(other.iter().copied());
        let common = expected.intersection(&other).count();
        prop_assert_eq!(usize::try_from(indexes.overlap(&second)).unwrap(), common);
        indexes.merge(&second);
        let mut union = Indexes::default();
        union.extend(expected.union(&other).copied());
        prop_assert_eq!(indexes, union);
    }
}
