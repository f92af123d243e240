use super::*;
use crate::testing::{Thing, object};

fn unread(key: &str, uid: Option<&str>) -> Unread {
    Unread {
        key: key.parse().unwrap(),
        uid: uid.map(str::to_owned),
    }
}

/// Proves reflector/unreadable-object.
#[test]
fn unread_state_replaces_only_another_object() {
    let mut found = Collection::<Thing>::new();
    for key in ["n/same", "n/unknown", "n/other"] {
        found.put(object(key, "u1", 2, "x"));
    }
    found.put_unread(unread("n/same", Some("u1")));
    found.put_unread(unread("n/unknown", None));
    for key in ["n/other", "n/later", "n/gone"] {
        found.put_unread(unread(key, Some("u2")));
    }
    found.put(object("n/later", "u2", 3, "x"));
    found.remove(&"n/gone".parse().unwrap());

    let mut listed = Collection::new();
    for key in ["n/same", "n/unknown", "n/other"] {
        listed.put_unread(unread(key, None));
    }
    listed.put(object("n/later", "u2", 3, "x"));
    assert_eq!(
        found.first_difference(&listed),
        None,
        "unread objects are not compared"
    );

    let (items, unread_left) = found.finish();
    let items: Vec<_> = items.iter().map(|item| item.key().to_string()).collect();
    assert_eq!(items, ["n/same", "n/unknown", "n/later"]);
    assert_eq!(unread_left, [unread("n/other", Some("u2"))]);
}
