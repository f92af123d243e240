use super::*;

#[test]
fn uuids_are_version_4_and_replay() {
    let (a, b) = (Rng::with_seed(1), Rng::with_seed(1));
    for _ in 0..100 {
        let uuid = a.uuid();
        assert_eq!(uuid, b.uuid());
        let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4', "version of {uuid}");
        let variant = uuid.as_bytes()[19];
        assert!(matches!(variant, b'8' | b'9' | b'a' | b'b'), "{uuid}");
    }
}

#[test]
fn empty_range_yields_zero() {
    assert_eq!(Rng::with_seed(1).below(0), 0);
}
