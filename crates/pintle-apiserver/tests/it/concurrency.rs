//! Concurrent writers and watchers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::support::*;
use serde_json::{Value, json};

const WRITERS: usize = 8;
const WRITES: usize = 60;

/// Proves watch/complete-and-ordered, watch/selectors, objects/identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_see_all_writes_once_in_one_order() {
    let server = server();
    let http = Arc::new(http(&server));
    let path = format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        server.resource_version()
    );
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(http.watch(&path).await);
    }
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let http = Arc::clone(&http);
        writers.push(tokio::spawn(async move {
            for n in 0..WRITES {
                let name = format!("k{}", (writer + n) % 5);
                let patch = json!({"data": {"v": format!("{writer}-{n}")}});
                let path = format!("{CONFIG_MAPS}/{name}");
                if http.merge(&path, &patch).await.0 == 404 {
                    http.post(CONFIG_MAPS, &config_map(&name)).await;
                }
                if n % 7 == 0 {
                    http.delete(&path).await;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    http.post(CONFIG_MAPS, &config_map("end")).await;
    let mut logs: Vec<Vec<(u64, String)>> = Vec::new();
    for watch in &mut watches {
        let mut log = Vec::new();
        let mut live: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            let event = watch.next().await.unwrap();
            let metadata = &event["object"]["metadata"];
            let name = metadata["name"].as_str().unwrap().to_owned();
            let version: u64 = metadata["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            let kind = event["type"].as_str().unwrap();
            let known = match kind {
                "DELETED" => live.remove(&name).is_some(),
                _ => live.insert(name.clone(), version).is_some() == (kind == "MODIFIED"),
            };
            assert!(known, "{kind} {name} does not follow from earlier events");
            assert!(
                log.last().is_none_or(|(last, _)| *last < version),
                "versions must increase"
            );
            let end = name == "end";
            log.push((version, format!("{kind} {name}")));
            if end {
                break;
            }
        }
        let (_, list) = http.get(CONFIG_MAPS).await;
        let now: BTreeMap<String, u64> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item: &Value| {
                let metadata = &item["metadata"];
                let version = metadata["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse()
                    .unwrap();
                (metadata["name"].as_str().unwrap().to_owned(), version)
            })
            .collect();
        assert_eq!(live, now, "watch and list differ");
        logs.push(log);
    }
    assert!(
        logs.windows(2).all(|pair| pair[0] == pair[1]),
        "watchers saw different orders"
    );
}

/// Proves objects/preconditions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_updates_are_not_lost() {
    let server = server();
    let http = Arc::new(http(&server));
    let mut counter = config_map("n");
    counter["data"] = json!({"n": "0"});
    http.post(CONFIG_MAPS, &counter).await;
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let http = Arc::clone(&http);
        writers.push(tokio::spawn(async move {
            let path = format!("{CONFIG_MAPS}/n");
            let mut done = 0;
            while done < 20 {
                let (_, mut object) = http.get(&path).await;
                let n: u32 = object["data"]["n"].as_str().unwrap().parse().unwrap();
                object["data"]["n"] = (n + 1).to_string().into();
                match http.put(&path, &object).await.0 {
                    200 => done += 1,
                    code => assert_eq!(code, 409),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let (_, object) = http.get(&format!("{CONFIG_MAPS}/n")).await;
    assert_eq!(object["data"]["n"], (WRITERS * 20).to_string());
}

/// Proves watch/expired.
#[tokio::test]
async fn watcher_that_never_reads_gets_expired() {
    let server = pintle_apiserver::ApiServer::builder().history(16).build();
    let http = http(&server);
    let path = format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        server.resource_version()
    );
    let mut watch = http.watch(&path).await;
    http.post(CONFIG_MAPS, &config_map("a")).await;
    for n in 0..40 {
        let patch = json!({"data": {"n": n.to_string()}});
        http.merge(&format!("{CONFIG_MAPS}/a"), &patch).await;
    }
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(watch.next().await, None);
}

fn version_of(event: &Value) -> u64 {
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

/// Returns the events that a client sees if it disconnects after every few events and resumes from
/// the last `resourceVersion` of an event or bookmark, and the number of bookmarks.
async fn interrupted(http: Arc<Http>, from: u64, patience: usize) -> (Vec<(u64, String)>, usize) {
    let mut seen: Vec<(u64, String)> = Vec::new();
    let mut bookmarks = 0;
    let mut last = from;
    loop {
        // A watch sends a bookmark shortly before it times out.
        let path = format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion={last}&allowWatchBookmarks=true&timeoutSeconds=3"
        );
        let mut watch = http.watch(&path).await;
        for _ in 0..patience {
            let Some(event) = watch.next().await else {
                break;
            };
            let version = version_of(&event);
            let kind = event["type"].as_str().unwrap().to_owned();
            if kind == "BOOKMARK" {
                assert!(version >= last, "bookmark went back");
                last = version;
                bookmarks += 1;
                // The client has seen everything up to the bookmark, so it can resume from there.
                break;
            }
            assert!(version > last, "{kind} at {version} after {last}");
            last = version;
            let name = event["object"]["metadata"]["name"].as_str().unwrap();
            seen.push((version, format!("{kind} {name}")));
            if name == "end" {
                return (seen, bookmarks);
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Proves watch/complete-and-ordered, watch/bookmarks, watch/expired.
#[tokio::test(start_paused = true)]
async fn resumed_watch_misses_and_repeats_nothing() {
    let server = server();
    let http = Arc::new(http(&server));
    let from: u64 = server.resource_version().parse().unwrap();
    let clients: Vec<_> = [1, 3, 17, 1000]
        .map(|patience| tokio::spawn(interrupted(Arc::clone(&http), from, patience)))
        .into();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let http = Arc::clone(&http);
            tokio::spawn(async move {
                for n in 0..WRITES {
                    let pause = 20 + 7 * u64::try_from(writer).unwrap();
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    let path = format!("{CONFIG_MAPS}/k{}", (writer + n) % 5);
                    let patch = json!({"data": {"v": format!("{writer}-{n}")}});
                    if http.merge(&path, &patch).await.0 == 404 {
                        let name = format!("k{}", (writer + n) % 5);
                        http.post(CONFIG_MAPS, &config_map(&name)).await;
                    }
                    if n % 11 == 0 {
                        http.delete(CONFIG_MAPS).await;
                    }
                }
            })
        })
        .collect();
    // The reference: a watch from the start that is never interrupted.
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}");
    let mut whole = http.watch(&path).await;
    for writer in writers {
        writer.await.unwrap();
    }
    http.post(CONFIG_MAPS, &config_map("end")).await;
    let mut expected = Vec::new();
    while !matches!(expected.last(), Some((_, last)) if last == "ADDED end") {
        let event = whole.next().await.unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap();
        let description = format!("{} {name}", event["type"].as_str().unwrap());
        expected.push((version_of(&event), description));
    }
    let mut all_bookmarks = 0;
    for client in clients {
        let (seen, bookmarks) = client.await.unwrap();
        assert_eq!(seen, expected);
        all_bookmarks += bookmarks;
    }
    assert!(all_bookmarks > 0, "no client resumed from a bookmark");
}

/// Sends the same kind of request from two threads at the same time, repeatedly, and returns the
/// responses.
fn race(
    http: &Http,
    rounds: usize,
    request: impl Fn(usize, usize) -> (&'static str, &'static str, String, Value) + Sync,
) -> Vec<[(u16, Value); 2]> {
    let start = std::sync::Barrier::new(2);
    let runner = |writer: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut responses = Vec::new();
        for round in 0..rounds {
            let (method, kind, path, body) = request(round, writer);
            start.wait();
            responses.push(runtime.block_on(http.raw(method, &path, kind, body.to_string())));
        }
        responses
    };
    let (one, two) = std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(|| runner(0)), scope.spawn(|| runner(1)));
        (one.join().unwrap(), two.join().unwrap())
    });
    one.into_iter().zip(two).map(|(a, b)| [a, b]).collect()
}

/// Proves apply/merging, apply/ownership.
#[test]
fn concurrent_applies_create_once_then_merge() {
    let server = server();
    let http = http(&server);
    let responses = race(&http, 500, |round, writer| {
        let path = format!("{CONFIG_MAPS}/a{round}?fieldManager=m{writer}");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("a{round}")}, "data": {format!("k{writer}"): "x"}});
        ("PATCH", "application/apply-patch+yaml", path, config)
    });
    for both in responses {
        let mut codes = both.each_ref().map(|(code, _)| *code);
        codes.sort_unstable();
        assert_eq!(codes, [200, 201], "{both:?}");
        let last = both.iter().find(|(code, _)| *code == 200).unwrap();
        assert_eq!(last.1["data"], json!({"k0": "x", "k1": "x"}));
    }
}

/// Proves objects/preconditions.
#[test]
fn concurrent_puts_create_once() {
    let server = server();
    let http = http(&server);
    let responses = race(&http, 500, |round, writer| {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/l{round}");
        let lease = json!({"metadata": {"name": format!("l{round}")},
            "spec": {"holderIdentity": format!("h{writer}")}});
        ("PUT", "application/json", path, lease)
    });
    for both in responses {
        let mut codes = both.each_ref().map(|(code, _)| *code);
        codes.sort_unstable();
        // A Lease cannot be updated without its `resourceVersion`.
        assert_eq!(codes, [201, 422], "{both:?}");
    }
}
