use std::sync::Arc;

use futures::FutureExt;

use super::{
    store::{Selected, Store},
    *,
};
use crate::testing::{Thing, object};

fn names(objects: &[Object<Thing>]) -> Vec<String> {
    let mut names: Vec<_> = objects
        .iter()
        .map(|object| object.key().to_string())
        .collect();
    names.sort();
    names
}

fn data_value(thing: &Thing) -> Vec<String> {
    thing
        .data
        .iter()
        .flatten()
        .map(|(_, value)| value.clone())
        .collect()
}

/// Proves cache/snapshot-reads, cache/indexes.
#[test]
fn objects_are_found_by_key() {
    let things = Indexer::<Thing>::new();
    let lister = things.lister();
    let key: ObjectKey = "n/a".parse().unwrap();
    assert!(lister.get(&key).is_none() && lister.is_empty());

    assert!(things.put(object("n/a", "u", 1, "x")).is_none());
    let old = things.put(object("n/a", "u", 2, "y")).unwrap();
    assert_eq!(old.resource_version(), "1");
    things.put(object("cluster-wide", "u", 3, "z"));
    assert_eq!(lister.get(&key).unwrap().resource_version(), "2");
    assert_eq!(names(&lister.list()), ["cluster-wide", "n/a"]);
    assert!(lister.get(&key).unwrap().ptr_eq(&lister.get(&key).unwrap()));

    assert_eq!(things.remove(&key).unwrap().resource_version(), "2");
    assert!(things.remove(&key).is_none());
    assert_eq!((lister.len(), lister.is_empty()), (1, false));
}

/// Proves cache/indexes.
#[test]
fn namespace_lister_sees_only_its_namespace() {
    let things = Indexer::<Thing>::new();
    for key in ["a/1", "a/2", "b/1", "wide"] {
        things.put(object(key, "u", 1, "x"));
    }
    let lister = things.lister();
    assert_eq!(names(&lister.namespace("a").list()), ["a/1", "a/2"]);
    assert_eq!(
        lister.namespace("a").get("1").unwrap().key().to_string(),
        "a/1"
    );
    assert!(lister.namespace("a").get("wide").is_none());
    assert!(lister.namespace("c").list().is_empty());
    assert_eq!(lister.namespace("").list().len(), 4);
    assert!(lister.namespace("").get("wide").is_some());
    assert!(lister.namespace("").get("1").is_none());
    things.remove(&"a/1".parse().unwrap());
    assert_eq!(names(&lister.namespace("a").list()), ["a/2"]);
}

/// Proves cache/label-selectors.
#[test]
fn selector_runs_under_the_lock_only_if_label_sets_are_few() {
    let mut store = Store::new(0);
    let mut put = |key: &str, value: &str| store.put(object(key, "u", 1, value), &[]);
    for number in 0..6 {
        put(
            &format!("many/{number}"),
            if number < 2 { "x" } else { "y" },
        );
    }
    for (key, value) in [("few/1", "x"), ("few/2", "y"), ("few/3", "z")] {
        put(key, value);
    }
    let selector: Selector = "value=x".parse().unwrap();
    for (namespace, matched, expected) in [
        (None, true, &["few/1", "many/0", "many/1"][..]),
        (Some("many"), true, &["many/0", "many/1"]),
        (Some("few"), false, &["few/1"]),
        (Some("none"), false, &[]),
    ] {
        let selected = store.selected(namespace, &selector);
        assert_eq!(matches!(selected, Selected::Matched(_)), matched);
        assert_eq!(names(&selected.resolve(&selector)), expected);
    }
}

/// Proves cache/label-selectors.
#[test]
fn selector_matches_labels() {
    let things = Indexer::<Thing>::new();
    for (key, value) in [("a/1", "x"), ("a/2", "y"), ("b/1", "x")] {
        things.put(object(key, "u", 1, value));
    }
    let lister = things.lister();
    let selector: Selector = "value=x".parse().unwrap();
    assert_eq!(names(&lister.list_matching(&selector)), ["a/1", "b/1"]);
    assert_eq!(
        names(&lister.namespace("a").list_matching(&selector)),
        ["a/1"]
    );
    assert_eq!(lister.list_matching(&Selector::everything()).len(), 3);
    assert!(lister.list_matching(&Selector::nothing()).is_empty());
}

/// Proves cache/indexes.
#[test]
fn index_can_be_added_before_or_after_the_objects() {
    let things = Indexer::<Thing>::new();
    things.index_by("value", data_value).unwrap();
    for (key, value) in [("n/a", "x"), ("n/b", "x"), ("n/c", "y")] {
        things.put(object(key, "u", 1, value));
    }
    things
        .index_field("label", "/metadata/labels/value")
        .unwrap();
    let label = |thing: &Object<Thing>| thing.labels().iter().map(|(_, v)| v.to_owned()).collect();
    things.index_header("header", label).unwrap();
    things.index_field("absent", "/spec/nodeName").unwrap();
    let lister = things.lister();
    for index in ["value", "label", "header"] {
        assert_eq!(names(&lister.by_index(index, "x").unwrap()), ["n/a", "n/b"]);
        assert!(lister.by_index(index, "z").unwrap().is_empty());
        let keys = lister.index_keys(index, "x").unwrap();
        assert_eq!(keys, ["n/a", "n/b"].map(|key| key.parse().unwrap()));
        assert_eq!(lister.index_values(index), ["x", "y"]);
    }
    assert!(lister.index_values("absent").is_empty());
    let duplicate = things.index_field("value", "/kind").unwrap_err();
    assert_eq!(
        duplicate,
        IndexError::Duplicate {
            name: "value".into()
        }
    );
    assert_eq!(
        names(&lister.by_index("value", "y").unwrap()),
        ["n/c"],
        "the index is unchanged"
    );
    assert_eq!(
        lister.by_index("other", "x").unwrap_err().to_string(),
        "unknown index \"other\": add it to the informer first"
    );
    assert!(lister.index_values("other").is_empty());
    assert!(matches!(
        things.index_field("bad", "spec"),
        Err(IndexError::InvalidPointer(_))
    ));

    things.put(object("n/a", "u", 2, "y"));
    things.remove(&"n/b".parse().unwrap());
    for index in ["value", "label", "header"] {
        assert!(lister.by_index(index, "x").unwrap().is_empty());
        assert_eq!(names(&lister.by_index(index, "y").unwrap()), ["n/a", "n/c"]);
        assert_eq!(lister.index_values(index), ["y"]);
    }
}

/// Proves cache/indexes.
#[test]
fn object_is_left_out_if_its_index_function_panics() {
    let things = Indexer::<Thing>::new();
    things
        .index_by("value", |thing| {
            let values = data_value(thing);
            assert!(values != ["bad"], "a test's panic");
            values
        })
        .unwrap();
    things.put(object("n/a", "u", 1, "bad"));
    things.put(object("n/b", "u", 1, "good"));
    let undecodable = br#"{"metadata":{"name":"c"},"data":7}"#;
    things.put(Reader::new().read(undecodable).unwrap());
    let lister = things.lister();
    assert_eq!(lister.len(), 3);
    assert_eq!(lister.index_values("value"), ["good"]);
    assert_eq!(things.unindexed(), 2);
}

#[test]
fn fields_are_indexed_as_written() {
    let things = Indexer::<Thing>::new();
    for (name, path) in [
        ("name", "/metadata/name"),
        ("list", "/metadata/finalizers"),
        ("second", "/list/1/x"),
        ("number", "/number"),
        ("flag", "/flag"),
        ("escaped", "/odd~1key/~0"),
        ("object", "/metadata"),
        ("null", "/null"),
    ] {
        things.index_field(name, path).unwrap();
    }
    let json = br#"{"metadata":{"name":"a","finalizers":["x","y\u0041",{"z":1}]},"number":-1.5,
        "list":[{"x":"0"},{"x":"1"}],"flag":true,"odd/key":{"~":"\"q\""},"null":null}"#;
    things.put(Reader::new().read(json).unwrap());
    let lister = things.lister();
    for (index, values) in [
        ("name", vec!["a"]),
        ("list", vec!["x", "yA"]),
        ("second", vec!["1"]),
        ("number", vec!["-1.5"]),
        ("flag", vec!["true"]),
        ("escaped", vec!["\"q\""]),
        ("object", vec![]),
        ("null", vec![]),
    ] {
        assert_eq!(lister.index_values(index), values, "{index}");
    }
}

#[test]
fn skimmed_fields_agree_with_a_search() {
    let reader = Reader::<Thing>::new();
    let skimmed = Indexer::with_fields(reader.fields().clone());
    let searched = Indexer::new();
    for (name, path) in [
        ("label", "/metadata/labels/value"),
        ("data", "/data/value"),
        ("none", "/data/none"),
    ] {
        skimmed.index_field(name, path).unwrap();
        searched.index_field(name, path).unwrap();
    }
    let json = crate::testing::json_of("n/a", "u", 1, "x").to_string();
    skimmed.put(reader.read(json.as_bytes()).unwrap());
    searched.put(reader.read(json.as_bytes()).unwrap());
    for (index, values) in [("label", vec!["x"]), ("data", vec!["x"]), ("none", vec![])] {
        assert_eq!(skimmed.lister().index_values(index), values);
        assert_eq!(searched.lister().index_values(index), values);
    }
    // The object was read before this index was added.
    skimmed.index_field("name", "/metadata/name").unwrap();
    assert_eq!(skimmed.lister().index_values("name"), ["a"]);
}

/// Proves cache/snapshot-reads, fifo/batches, cache/version.
#[test]
fn replace_sets_contents_and_version() {
    let things = Indexer::<Thing>::new();
    things.index_by("value", data_value).unwrap();
    let lister = things.lister();
    assert_eq!(lister.resource_version(), "");
    things.put(object("n/a", "u", 1, "x"));
    things.put(object("n/b", "u", 2, "x"));
    assert_eq!(lister.resource_version(), "2");
    let twice = object("n/c", "u", 6, "old");
    things.replace(
        vec![
            twice,
            object("n/b", "u", 5, "y"),
            object("n/c", "u", 7, "z"),
        ],
        "9",
    );
    assert_eq!(names(&lister.list()), ["n/b", "n/c"]);
    assert_eq!(lister.index_values("value"), ["y", "z"]);
    assert_eq!(names(&lister.namespace("n").list()), ["n/b", "n/c"]);
    assert_eq!(lister.resource_version(), "9");
    let unversioned = Reader::new().read(br#"{"metadata":{"name":"x"}}"#).unwrap();
    things.put(unversioned);
    assert_eq!(
        lister.resource_version(),
        "9",
        "an object without a resourceVersion changes nothing"
    );
}

/// Proves cache/snapshot-reads.
#[test]
fn readers_never_see_a_half_replaced_cache() {
    let things = Indexer::<Thing>::new();
    let generation = |value: &str| -> Vec<Object<Thing>> {
        (0..50)
            .map(|n| object(&format!("n/{n}"), "u", 1, value))
            .collect()
    };
    let (even, odd) = (generation("even"), generation("odd"));
    things.replace(even.clone(), "2");
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (lister, stop) = (things.lister(), done.clone());
        let reader = scope.spawn(move || {
            let mut seen = 0;
            while seen < 20 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let objects = lister.list();
                let first = objects[0].labels().get("value").unwrap().to_owned();
                assert_eq!(objects.len(), 50);
                assert!(
                    objects
                        .iter()
                        .all(|o| o.labels().get("value") == Some(&first))
                );
                seen += 1;
            }
        });
        for round in 0..200 {
            let next = if round % 2 == 0 { &odd } else { &even };
            things.replace(next.clone(), "3");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
}

/// Proves cache/indexes.
#[test]
fn index_added_during_writes_is_complete() {
    let things = Indexer::<Thing>::new();
    for n in 0..2000 {
        things.put(object(&format!("n/{n}"), "u", 1, "old"));
    }
    std::thread::scope(|scope| {
        let writer = things.clone();
        scope.spawn(move || {
            for n in 0..2000 {
                writer.put(object(&format!("n/{n}"), "u", 2, "new"));
                if n % 500 == 0 {
                    writer.put(object(&format!("n/extra-{n}"), "u", 2, "new"));
                }
            }
        });
        for n in 0..5 {
            things.index_by(&format!("value-{n}"), data_value).unwrap();
        }
    });
    for n in 0..5 {
        let found = things
            .lister()
            .by_index(&format!("value-{n}"), "new")
            .unwrap()
            .len();
        assert_eq!(found, 2004);
    }
}

/// Proves cache/indexes.
#[test]
fn object_with_many_values_is_found_under_each() {
    let things = Indexer::<Thing>::new();
    let letters = |thing: &Object<Thing>| {
        let value = thing.labels().get("value").unwrap_or_default();
        value.chars().map(String::from).collect()
    };
    things.index_header("letters", letters).unwrap();
    for (key, value) in [
        ("n/a", "xyx"),
        ("n/b", "yx"),
        ("n/c", "zy"),
        ("n/d", "z"),
        ("n/e", ""),
    ] {
        things.put(object(key, "u", 1, value));
    }
    let lister = things.lister();
    let with = |value: &str| names(&lister.by_index("letters", value).unwrap());
    assert_eq!(with("x"), ["n/a", "n/b"]);
    assert_eq!(with("y"), ["n/a", "n/b", "n/c"]);
    assert_eq!(with("z"), ["n/c", "n/d"]);
    assert!(with("").is_empty());
    assert!(lister.index_keys("none", "x").is_err());

    things.put(object("n/b", "u", 2, "z"));
    assert_eq!(with("x"), ["n/a"]);
    assert_eq!(with("z"), ["n/b", "n/c", "n/d"]);
    assert_eq!(lister.index_values("letters"), ["x", "y", "z"]);
}

/// Proves cache/label-selectors, cache/indexes.
#[test]
fn selector_in_a_namespace_matches_only_there() {
    let things = Indexer::<Thing>::new();
    for number in 0..8 {
        let value = if number % 2 == 0 { "x" } else { "y" };
        things.put(object(&format!("a/{number}"), "u", 1, value));
        things.put(object(&format!("b/{number}"), "u", 1, "x"));
    }
    let lister = things.lister();
    let selector: Selector = "value=x".parse().unwrap();
    let count = |namespace: &str, selector: &Selector| {
        lister.namespace(namespace).list_matching(selector).len()
    };
    assert_eq!((count("a", &selector), count("b", &selector)), (4, 8));
    assert_eq!((count("", &selector), count("c", &selector)), (12, 0));
    assert_eq!(count("a", &Selector::everything()), 8);
    assert_eq!(count("", &Selector::everything()), 16);
    assert_eq!(count("a", &Selector::nothing()), 0);
    things.remove(&"a/0".parse().unwrap());
    assert_eq!((count("a", &selector), count("", &selector)), (3, 11));
}

/// Proves fifo/batches, cache/version.
#[test]
fn batch_reports_replaced_objects_and_sets_version() {
    let things = Indexer::<Thing>::new();
    things.index_by("value", data_value).unwrap();
    let apply = |writes| {
        let applied = things.commit(things.prepare(writes));
        let old =
            |(_, old): (_, Option<Object<Thing>>)| old.map(|old| old.resource_version().to_owned());
        let old: Vec<_> = applied.unwrap().into_iter().map(old).collect();
        (old, things.lister().resource_version())
    };
    let (old, version) = apply(vec![
        Write::Put(object("n/a", "u", 1, "x")),
        Write::Remove(object("n/none", "u", 2, "x")),
        Write::Put(object("n/b", "u", 3, "y")),
        Write::Put(object("n/a", "u", 4, "z")),
    ]);
    assert_eq!(old, [None, None, None, Some("1".to_owned())]);
    assert_eq!(version, "4");
    assert_eq!(things.lister().index_values("value"), ["y", "z"]);
    assert_eq!(apply(vec![Write::Reached("7".to_owned())]).1, "7");
    let (old, version) = apply(vec![Write::Remove(object("n/a", "u", 8, "z"))]);
    assert_eq!((old, version.as_str()), (vec![Some("4".to_owned())], "8"));
    assert!(things.get(Some("n"), "a").is_none());
    assert_eq!(things.get(Some("n"), "b").unwrap().resource_version(), "3");
}

/// Proves cache/snapshot-reads.
#[test]
fn swap_reports_deleted_and_replaced_objects() {
    let things = Indexer::<Thing>::new();
    things.replace(
        vec![object("n/a", "u", 1, "x"), object("n/b", "u", 2, "x")],
        "2",
    );
    let list = vec![
        object("n/c", "u", 3, "early"),
        object("n/b", "u", 4, "y"),
        object("n/c", "u", 5, "later"),
        object("n/c", "u", 6, "last"),
    ];
    let replaced = things.swap(things.build(list, "6")).ok().unwrap();
    assert_eq!(names(&replaced.gone), ["n/a"]);
    let items: Vec<_> = replaced
        .items
        .iter()
        .map(|(old, new)| {
            (
                old.as_ref().map(Object::resource_version),
                new.resource_version(),
            )
        })
        .collect();
    assert_eq!(
        items,
        [(Some("2"), "4"), (None, "6")],
        "each key once, in its last state"
    );
}

/// Proves cache/indexes.
#[test]
fn writes_prepared_before_a_new_index_are_returned() {
    let things = Indexer::<Thing>::new();
    let prepared = things.prepare(vec![Write::Put(object("n/a", "u", 1, "x"))]);
    let generation = things.build(vec![object("n/b", "u", 2, "y")], "2");
    things.index_by("value", data_value).unwrap();
    let again = things.commit(prepared).unwrap_err();
    let items = things.swap(generation).err().unwrap();
    let lister = things.lister();
    assert!(
        lister.is_empty() && lister.resource_version().is_empty(),
        "nothing happened"
    );
    things.commit(things.prepare(again)).unwrap();
    assert_eq!(lister.index_values("value"), ["x"]);
    assert!(things.swap(things.build(items, "2")).is_ok());
    assert_eq!(lister.index_values("value"), ["y"]);
}

#[test]
fn replaced_cache_drops_late_writes() {
    let (old, new) = (Indexer::<Thing>::new(), Indexer::<Thing>::new());
    old.index_by("value", data_value).unwrap();
    old.put(object("n/a", "u", 1, "x"));
    let late = || vec![Write::Put(object("n/late", "u", 3, "z"))];
    let items = || vec![object("n/late", "u", 3, "z")];
    let (prepared, built) = (old.prepare(late()), old.build(items(), "3"));
    new.succeed(&old);
    new.put(object("n/b", "u", 2, "y"));
    drop(new.take_over());
    assert!(old.commit(prepared).unwrap().is_empty(), "prepared before");
    let swapped = old.swap(built).ok().unwrap();
    assert!(swapped.items.is_empty() && swapped.gone.is_empty());

    // A redefined index leaves the successor with more definitions than the old cache has.
    new.index_by("value", data_value).unwrap();
    assert!(old.commit(old.prepare(late())).unwrap().is_empty());
    let swapped = old.swap(old.build(items(), "3")).ok().unwrap();
    assert!(swapped.items.is_empty() && swapped.gone.is_empty());
    assert_eq!(names(&old.lister().list()), ["n/b"]);
    assert_eq!(old.lister().index_values("value"), ["y"]);
}

/// Proves cache/indexes.
#[test]
fn new_index_covers_more_objects_than_one_batch() {
    let things = Indexer::<Thing>::new();
    for number in 0..2100 {
        things.put(object(&format!("n/{number}"), "u", 1, "x"));
    }
    things.index_by("value", data_value).unwrap();
    assert_eq!(things.lister().by_index("value", "x").unwrap().len(), 2100);
    assert_eq!(things.unindexed(), 0);
}

#[test]
fn changed_resolves_on_every_kind_of_change() {
    let things = Indexer::<Thing>::default();
    let lister = things.lister();
    let changes: [&dyn Fn(); 4] = [
        &|| drop(things.put(object("n/a", "u", 1, "x"))),
        &|| drop(things.remove(&"n/a".parse().unwrap())),
        &|| things.replace(Vec::new(), "2"),
        &|| drop(things.commit(things.prepare(vec![Write::Reached("3".to_owned())]))),
    ];
    for change in changes {
        let (mut before, mut after) = (Box::pin(lister.changed()), Box::pin(lister.changed()));
        assert!((&mut before).now_or_never().is_none());
        change();
        assert!(before.now_or_never().is_some());
        assert!(
            (&mut after).now_or_never().is_some(),
            "polled only after the change"
        );
        assert!(lister.changed().now_or_never().is_none());
    }
}

#[test]
fn lister_keeps_its_guard_until_the_last_clone_drops() {
    let things = Indexer::<Thing>::new();
    let kept = Arc::new(());
    let lister = things.lister_keeping(kept.clone());
    let namespace = lister.clone().namespace("n");
    drop(lister);
    let again = namespace.clone();
    drop(namespace);
    assert_eq!(Arc::strong_count(&kept), 2);
    drop(again);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn debug_output_shows_only_the_size() {
    let things = Indexer::<Thing>::new();
    things.put(object("n/a", "u", 1, "x"));
    let lister = things.lister();
    assert_eq!(format!("{things:?}"), "Indexer { len: 1, .. }");
    assert_eq!(format!("{lister:?}"), "Lister { len: 1, .. }");
    let namespace = format!("{:?}", lister.namespace("n"));
    assert_eq!(namespace, r#"NamespaceLister { namespace: "n", .. }"#);
}
