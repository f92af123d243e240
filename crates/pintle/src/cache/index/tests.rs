use super::*;

fn sorted(index: &Index, value: &str) -> Vec<u32> {
    let mut slots = index.get(value).to_vec();
    slots.sort_unstable();
    slots
}

/// Proves cache/indexes.
#[test]
fn slots_change_values_and_unused_values_are_removed() {
    let mut index = Index::default();
    index.set(0, ["a", "b"].into_iter());
    index.set(1, ["b"].into_iter());
    index.set(2, ["b", "b"].into_iter());
    assert_eq!(
        (sorted(&index, "a"), sorted(&index, "b")),
        (vec![0], vec![0, 1, 2])
    );

    index.set(0, ["c"].into_iter());
    assert_eq!(sorted(&index, "b"), [1, 2]);
    assert!(index.get("a").is_empty());
    assert_eq!(index.sets(), (2, 2), "value a has no slots left");

    index.clear(1);
    index.clear(2);
    index.clear(2);
    index.clear(9);
    assert_eq!(index.values().collect::<Vec<_>>(), ["c"]);
    assert_eq!(index.of(0).collect::<Vec<_>>(), ["c"]);
}
