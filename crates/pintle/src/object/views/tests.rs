use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::ConfigMap;

use super::{BYTES_PER_JSON_BYTE, Views};
use crate::object::{Object, Reader};

fn read(reader: &Reader<ConfigMap>, name: &str) -> Object<ConfigMap> {
    let json = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    reader.read(json.as_bytes()).unwrap()
}

fn decode(object: &Object<ConfigMap>) -> Weak<ConfigMap> {
    Arc::downgrade(&object.get().unwrap())
}

fn in_memory(view: &Weak<ConfigMap>) -> bool {
    view.upgrade().is_some()
}

/// The estimated size of the view of an object with a name of one letter.
fn one_view() -> usize {
    size_of::<ConfigMap>() + BYTES_PER_JSON_BYTE * r#"{"metadata":{"name":"a"}}"#.len()
}

fn room_for(views: usize) -> Reader<ConfigMap> {
    Reader::new().recent_views(views * one_view())
}

/// Proves cache/recent-views.
#[test]
fn views_stay_up_to_the_limit() {
    let reader = room_for(3);
    let objects = ["a", "b", "c", "d", "e"].map(|name| read(&reader, name));
    let views = objects.each_ref().map(decode);
    let kept = views.iter().filter(|view| in_memory(view)).count();
    assert_eq!(kept, 3);
    assert!(in_memory(&views[4]), "the last view was dropped");
}

/// Proves cache/recent-views.
#[test]
fn view_that_is_read_again_outlives_others() {
    let reader = room_for(3);
    let hot = read(&reader, "a");
    let view = decode(&hot);
    let mut others = Vec::new();
    for name in ('b'..='z').map(String::from) {
        let other = read(&reader, &name);
        decode(&other);
        others.push(other);
        hot.get().unwrap();
    }
    assert!(in_memory(&view));
}

#[test]
fn evicted_view_is_decoded_again() {
    let reader = room_for(1);
    let (first, second) = (read(&reader, "a"), read(&reader, "b"));
    let view = decode(&first);
    decode(&second);
    assert!(!in_memory(&view));
    assert_eq!(first.get().unwrap().metadata.name.as_deref(), Some("a"));
}

#[test]
fn view_in_use_survives_eviction() {
    let reader = room_for(1);
    let (first, second) = (read(&reader, "a"), read(&reader, "b"));
    let view = first.get().unwrap();
    decode(&second);
    assert_eq!(view.metadata.name.as_deref(), Some("a"));
}

#[test]
fn limit_of_zero_keeps_the_last_view() {
    let reader = room_for(0);
    let (first, second) = (read(&reader, "a"), read(&reader, "b"));
    let views = [decode(&first), decode(&second)];
    assert_eq!(views.each_ref().map(in_memory), [false, true]);
}

/// Proves cache/recent-views.
#[test]
fn dropped_object_takes_its_view_along() {
    let reader = room_for(100);
    let object = read(&reader, "a");
    let (view, copy) = (decode(&object), object.clone());
    drop(object);
    assert!(in_memory(&view));
    drop(copy);
    assert!(!in_memory(&view));

    // An informer replaces objects for as long as it runs, so their entries must not pile up.
    for _ in 0..1000 {
        decode(&read(&reader, "a"));
    }
    let survivor = read(&reader, "b");
    decode(&survivor);
    assert_eq!(reader.kept_views(), (1, one_view()));
}

/// An object whose view was evicted must not remove the view that took its place.
#[test]
fn evicted_object_leaves_its_successor_alone() {
    let reader = room_for(1);
    let (first, second) = (read(&reader, "a"), read(&reader, "b"));
    let first_view = first.get().unwrap();
    let view = decode(&second);
    drop((first, first_view));
    assert!(in_memory(&view));
    assert_eq!(reader.kept_views(), (1, one_view()));
}

#[test]
fn threads_agree_on_one_view_each() {
    let reader = room_for(2);
    let objects = ["a", "b", "c", "d"].map(|name| read(&reader, name));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for object in objects.iter().cycle().take(2000) {
                    let view = object.get().unwrap();
                    assert_eq!(view.metadata.name.as_deref(), Some(object.key().name()));
                }
            });
        }
    });
    // Threads that decode concurrently can exceed the limit by one view each, until the next object
    // is decoded.
    let last = read(&reader, "z");
    decode(&last);
    assert_eq!(reader.kept_views(), (2, 2 * one_view()));
    drop((objects, last));
    assert_eq!(reader.kept_views(), (0, 0));
}

#[test]
fn removing_an_evicted_entry_does_nothing() {
    let views = Views::new(10);
    let entry = views.keep(Arc::new(1_u8), 1);
    views.make_room(1);
    assert_eq!(views.kept(), (0, 0));
    let successor = views.keep(Arc::new(2_u8), 1);
    views.remove(&entry);
    assert_eq!(views.kept(), (1, 1 + BYTES_PER_JSON_BYTE));
    views.remove(&successor);
    assert_eq!(views.kept(), (0, 0));
}
