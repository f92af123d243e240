use super::*;
use crate::{object::Object, testing::Thing};

fn labelled(labels: &str) -> Object<Thing> {
    let json = format!(r#"{{"metadata":{{"name":"a","labels":{{{labels}}}}}}}"#);
    crate::object::Reader::new().read(json.as_bytes()).unwrap()
}

fn selected(sets: &LabelSets, selector: &str) -> Vec<u32> {
    let selector = selector.parse().unwrap();
    let mut matches = sets.matches(&selector);
    (0..4).filter(|slot| matches.slot(*slot)).collect()
}

/// Proves cache/label-selectors.
#[test]
fn equal_labels_are_stored_once_while_in_use() {
    let (web, api) = (
        labelled(r#""app":"web","x":"1""#),
        labelled(r#""app":"api""#),
    );
    let mut sets = LabelSets::default();
    for (slot, object) in [(0, &web), (1, &api), (2, &web), (3, &labelled(""))] {
        sets.set(slot, object.labels());
    }
    assert_eq!(sets.by_labels.len(), 3);
    assert_eq!(selected(&sets, "app=web"), [0, 2]);
    assert_eq!(selected(&sets, "app!=web"), [1, 3]);
    assert_eq!(selected(&sets, "x=1,app in (api, web)"), [0, 2]);
    assert_eq!(selected(&sets, ""), [0, 1, 2, 3]);

    sets.set(0, api.labels());
    assert_eq!(selected(&sets, "app=web"), [2]);
    sets.set(2, api.labels());
    assert_eq!((sets.by_labels.len(), sets.free.len()), (2, 1));
    sets.clear(1);
    sets.clear(1);
    sets.clear(9);
    assert_eq!(selected(&sets, "app"), [0, 2]);
    assert_eq!(selected(&sets, ""), [0, 2, 3], "a slot without an object");
    sets.set(1, web.labels());
    assert_eq!(selected(&sets, "x"), [1]);
    assert!(
        sets.free.is_empty(),
        "the position of a removed set is reused"
    );
}

#[test]
fn unused_positions_at_the_end_are_freed() {
    let mut sets = LabelSets::default();
    for slot in 0..1000 {
        sets.set(slot, labelled(&format!(r#""x":"{slot}""#)).labels());
    }
    assert_eq!(sets.capacity(), 1000);
    for slot in (1..999).rev() {
        sets.clear(slot);
    }
    assert_eq!((sets.capacity(), sets.free.len()), (1000, 998));
    sets.clear(999);
    assert_eq!((sets.capacity(), sets.free.len()), (1, 0));
    assert!(sets.sets.capacity() < 10, "{}", sets.sets.capacity());
    sets.set(3, labelled(r#""x":"0""#).labels());
    sets.set(1, labelled(r#""x":"1""#).labels());
    assert_eq!(selected(&sets, "x=0"), [0, 3]);
    assert_eq!(selected(&sets, "x=1"), [1]);
}

#[test]
fn keys_and_values_are_delimited() {
    let mut sets = LabelSets::default();
    sets.set(0, labelled(r#""ab":"c""#).labels());
    sets.set(1, labelled(r#""a":"bc""#).labels());
    assert_eq!(selected(&sets, "a=bc"), [1]);
    assert_eq!(selected(&sets, "ab=c"), [0]);
}
