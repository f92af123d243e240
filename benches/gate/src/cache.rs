//! Parsing one object, and reads of a full cache.

use std::hint::black_box;

use k8s_openapi::api::core::v1::Pod;
use pintle::cache::{Indexer, Lister, Object, ObjectKey, Reader, Selector};

use crate::{
    measured,
    pods::{self, FIRST_VERSION, Form, GROUP},
    small,
};

/// Objects in the cache.
const OBJECTS: usize = 5000;

/// Distinct Pods in the parsing benchmarks.
const TURNS: usize = 40;

fn bodies() -> Vec<String> {
    (0..TURNS)
        .map(|i| pods::pod(i, None, FIRST_VERSION, Form::Whole))
        .collect()
}

fn read_all(reader: &Reader<Pod>, bodies: &[String], count: usize) -> Vec<Object<Pod>> {
    let bodies = bodies.iter().cycle().take(count);
    bodies
        .map(|body| reader.read(body.as_bytes()).unwrap())
        .collect()
}

pub(crate) fn skim(count: usize) {
    let (reader, bodies) = (Reader::new(), bodies());
    black_box(read_all(&reader, &bodies, TURNS));
    measured(&mut || {
        black_box(read_all(&reader, &bodies, count));
    });
}

pub(crate) fn decode(count: usize) {
    let objects = read_all(&Reader::new(), &bodies(), count + 1);
    let decode = |object: &Object<Pod>| black_box(object.get().unwrap());
    decode(&objects[count]);
    measured(&mut || {
        for object in &objects[..count] {
            decode(object);
        }
    });
}

fn filled() -> Lister<Pod> {
    let indexer = Indexer::<Pod>::new();
    indexer.index_field("node", "/spec/nodeName").unwrap();
    let reader = Reader::new();
    for i in 0..OBJECTS {
        let pod = reader.read(small::pod(i, 1).as_bytes()).unwrap();
        indexer.put(pod);
    }
    indexer.lister()
}

/// Calls `read` with scattered indices.
fn reads(count: usize, read: &dyn Fn(usize)) {
    read(0);
    measured(&mut || {
        for n in 0..count {
            read(n * 7919);
        }
    });
}

pub(crate) fn get(count: usize) {
    let lister = filled();
    let keys: Vec<ObjectKey> = (0..OBJECTS)
        .map(|i| ObjectKey::namespaced(&small::namespace(i), &small::name(i)))
        .collect();
    reads(count, &|n| {
        black_box(lister.get(&keys[n % OBJECTS]).unwrap());
    });
}

pub(crate) fn index(count: usize) {
    let lister = filled();
    let nodes: Vec<String> = (0..OBJECTS / GROUP).map(|n| format!("node-{n}")).collect();
    reads(count, &|n| {
        let pods = lister.by_index("node", &nodes[n % nodes.len()]).unwrap();
        assert_eq!(black_box(pods).len(), GROUP);
    });
}

/// Counted per cached object, matching or not.
pub(crate) fn selector(count: usize) {
    let lister = filled();
    let selector: Selector = "app=web-7".parse().unwrap();
    reads(count / OBJECTS, &|_| {
        assert_eq!(black_box(lister.list_matching(&selector)).len(), GROUP);
    });
}
