use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    cache::{Object, ObjectKey, compare_versions},
    testing::contents,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    /// Deletes an object and creates another with the same name.
    Recreate(u8),
    Bookmark,
    CutWatches,
    ForgetHistory,
    RefuseList,
    AddHandler,
    DropHandler(u8),
    AddIndex,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u8, 0..3_u8).prop_map(|(key, value)| Step::Put(key, value)),
        4 => (0..6_u8).prop_map(Step::Delete),
        2 => (0..6_u8).prop_map(Step::Recreate),
        1 => Just(Step::Bookmark),
        1 => Just(Step::CutWatches),
        1 => Just(Step::ForgetHistory),
        1 => Just(Step::RefuseList),
        2 => Just(Step::AddHandler),
        1 => any::<u8>().prop_map(Step::DropHandler),
        1 => Just(Step::AddIndex),
        4 => (0..20_u8).prop_map(Step::Wait),
    ]
}

/// The objects a handler knows from its events. Every event must fit.
#[derive(Clone, Default)]
struct View {
    objects: Arc<Mutex<BTreeMap<ObjectKey, Object<Thing>>>>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl View {
    fn watch(&self, informer: &SharedInformer<Thing>) -> Registration {
        let (objects, faults) = (self.objects.clone(), self.faults.clone());
        let lister = informer.lister();
        informer
            .handler()
            .coalesce_beyond(2)
            .on_event(move |event| {
                let mut objects = objects.lock();
                let key = event.key().clone();
                let summary = line(&event);
                let fits = match event {
                    Event::Added { object, .. } => objects.insert(key, object).is_none(),
                    Event::Updated { old, new } => {
                        let newer =
                            compare_versions(old.resource_version(), new.resource_version());
                        let same = |known: Object<Thing>| {
                            known.resource_version() == old.resource_version()
                        };
                        new.uid() == old.uid()
                            && newer.is_ok_and(std::cmp::Ordering::is_le)
                            && objects.insert(key, new.clone()).is_some_and(same)
                    }
                    Event::Deleted(_) => objects.remove(&key).is_some(),
                };
                // The cache is never behind the events.
                let behind = objects.values().any(|known| {
                    let order =
                        |version: &str| compare_versions(&lister.resource_version(), version);
                    order(known.resource_version()).is_ok_and(std::cmp::Ordering::is_lt)
                });
                if !fits || behind {
                    faults.lock().push(summary);
                }
            })
    }

    fn contents(&self) -> Vec<Object<Thing>> {
        self.objects.lock().values().cloned().collect()
    }
}

async fn play(steps: Vec<Step>) {
    let server = Server::new();
    let informer = SharedInformer::builder(server.clone())
        .resync(SECOND * 7)
        .build();
    informer
        .index_by("value", |thing: &Thing| {
            thing.data.clone().unwrap().into_values().collect()
        })
        .unwrap();
    let mut indices = vec!["value".to_owned()];
    let mut views: Vec<(View, Registration)> = Vec::new();
    let mut version = String::new();
    let running = run(informer.clone());
    for step in steps {
        match step {
            Step::Put(key, value) => {
                server.put(&format!("n{}/{key}", key % 2), &format!("v{value}"));
            }
            Step::Delete(key) => server.delete(&format!("n{}/{key}", key % 2)),
            Step::Recreate(key) => {
                let key = format!("n{}/{key}", key % 2);
                server.delete(&key);
                server.put(&key, "again");
            }
            Step::Bookmark => {
                server.bookmark();
            }
            Step::CutWatches => server.cut_watches(),
            Step::ForgetHistory => server.forget_history(),
            Step::RefuseList => {
                server.refuse_list(crate::source::ApiError::new(500, "InternalError", "no"));
            }
            Step::AddHandler => {
                let view = View::default();
                let registration = view.watch(&informer);
                views.push((view, registration));
            }
            Step::DropHandler(which) => {
                if !views.is_empty() {
                    let at = usize::from(which) % views.len();
                    drop(views.swap_remove(at));
                }
            }
            Step::AddIndex => {
                let name = format!("value-{}", indices.len());
                informer.index_field(&name, "/data/value").unwrap();
                indices.push(name);
            }
            Step::Wait(tenths) => {
                tokio::time::sleep(Duration::from_millis(u64::from(tenths) * 100)).await;
            }
        }
        let shown = informer.lister().resource_version();
        if !version.is_empty() {
            assert!(
                compare_versions(&version, &shown).unwrap().is_le(),
                "{version} → {shown}"
            );
        }
        version = shown;
    }
    tokio::time::sleep(SECOND * 300).await;

    let lister = informer.lister();
    assert_eq!(
        contents(&lister.list()),
        server.contents(),
        "cache differs from the server"
    );
    for (view, registration) in &views {
        assert!(registration.has_synced());
        assert!(
            view.faults.lock().is_empty(),
            "unfitting events: {:?}",
            view.faults.lock()
        );
        assert_eq!(
            contents(&view.contents()),
            server.contents(),
            "view differs from the server"
        );
    }
    for index in &indices {
        for value in ["v0", "v1", "v2", "again"] {
            let mut found = contents(&lister.by_index(index, value).unwrap());
            found.sort();
            let scanned: Vec<_> = server
                .contents()
                .into_iter()
                .filter(|(_, _, _, held)| held == value)
                .collect();
            assert_eq!(found, scanned, "index {index} of {value}");
        }
    }
    for namespace in ["n0", "n1"] {
        let found = contents(&lister.namespace(namespace).list());
        let prefix = format!("{namespace}/");
        let scanned: Vec<_> = server
            .contents()
            .into_iter()
            .filter(|(key, ..)| key.starts_with(&prefix))
            .collect();
        assert_eq!(found, scanned, "namespace {namespace}");
    }
    running.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    // Proves informer/handler-order, informer/late-handler-sees-existing, cache/indexes.
    // Proves cache/version, informer/eventually-consistent.
    #[test]
    fn caches_views_and_indexes_converge_to_the_server(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(steps));
    }
}
