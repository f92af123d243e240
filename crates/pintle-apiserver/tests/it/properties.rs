//! Properties that hold for any sequence of requests.

use std::collections::BTreeMap;

use crate::support::*;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A random write.
#[derive(Debug, Clone)]
enum Op {
    Put(u8, u8),
    Label(u8, bool),
    Delete(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..6_u8, 0..4_u8).prop_map(|(key, value)| Op::Put(key, value)),
        (0..6_u8, any::<bool>()).prop_map(|(key, on)| Op::Label(key, on)),
        (0..6_u8).prop_map(Op::Delete),
    ];
    prop::collection::vec(op, 1..40)
}

async fn run(http: &Http, op: &Op) {
    match op {
        Op::Put(key, value) => {
            let path = format!("{CONFIG_MAPS}/k{key}");
            let patch = json!({"data": {"v": value.to_string()}});
            if http.merge(&path, &patch).await.0 == 404 {
                let mut object = config_map(&format!("k{key}"));
                object["data"] = patch["data"].clone();
                assert_eq!(http.post(CONFIG_MAPS, &object).await.0, 201);
            }
        }
        Op::Label(key, on) => {
            let value = if *on { json!("yes") } else { Value::Null };
            let patch = json!({"metadata": {"labels": {"chosen": value}}});
            http.merge(&format!("{CONFIG_MAPS}/k{key}"), &patch).await;
        }
        Op::Delete(key) => {
            http.delete(&format!("{CONFIG_MAPS}/k{key}")).await;
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

type State = BTreeMap<String, Value>;

fn state(list: &Value) -> State {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                item.clone(),
            )
        })
        .collect()
}

/// Applies watch events to a state, and checks that versions increase and every event is
/// consistent.
async fn follow(watch: &mut Watch, mut state: State, until: u64) -> State {
    let mut last = 0;
    while let Some(event) = watch.next().await {
        let mut object = event["object"].clone();
        let version: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let bookmark = event["type"] == "BOOKMARK";
        assert!(
            version > last || (bookmark && version == last),
            "versions must increase"
        );
        last = version;
        if bookmark {
            if version >= until {
                break;
            }
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object.as_object_mut().unwrap().remove("kind");
        object.as_object_mut().unwrap().remove("apiVersion");
        let consistent = match event["type"].as_str().unwrap() {
            "DELETED" => state.remove(&name).is_some(),
            kind => state.insert(name, object).is_some() == (kind == "MODIFIED"),
        };
        assert!(consistent, "inconsistent event: {event}");
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    // Proves watch/complete-and-ordered, watch/selectors.
    #[test]
    fn list_plus_watch_equals_a_later_list(
        before in ops(), after in ops(), selected in any::<bool>(),
    ) {
        runtime().block_on(async {
            let server = server();
            let http = http(&server);
            for op in &before {
                run(&http, op).await;
            }
            let selector = if selected { "&labelSelector=chosen" } else { "" };
            let (_, list) = http.get(&format!("{CONFIG_MAPS}?{selector}")).await;
            let version = list["metadata"]["resourceVersion"].as_str().unwrap();
            let path = format!(
                "{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={version}{selector}"
            );
            let mut watch = http.watch(&path).await;
            for op in &after {
                run(&http, op).await;
            }
            let until = server.resource_version().parse().unwrap();
            let followed = follow(&mut watch, state(&list), until).await;
            let (_, now) = http.get(&format!("{CONFIG_MAPS}?{selector}")).await;
            assert_eq!(followed, state(&now));
        });
    }

    // Proves lists/pages.
    #[test]
    fn pages_show_one_state_despite_writes(
        before in ops(), between in prop::collection::vec(ops(), 0..6), limit in 1..4_usize,
    ) {
        runtime().block_on(async {
            let server = server();
            let http = http(&server);
            for op in &before {
                run(&http, op).await;
            }
            let (_, whole) = http.get(CONFIG_MAPS).await;
            let mut pages = Vec::new();
            let mut token = String::new();
            let mut between = between.iter();
            loop {
                let (code, page) =
                    http.get(&format!("{CONFIG_MAPS}?limit={limit}&continue={token}")).await;
                assert_eq!(code, 200);
                pages.extend(page["items"].as_array().unwrap().clone());
                match page["metadata"]["continue"].as_str() {
                    Some(next) => token = next.to_owned(),
                    None => break,
                }
                for op in between.next().into_iter().flatten() {
                    run(&http, op).await;
                }
            }
            assert_eq!(Value::from(pages), whole["items"]);
        });
    }

    // Proves errors/status-reasons.
    #[test]
    fn requests_never_panic_or_write_partially(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE"]),
        path in prop::sample::select(vec![
            "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/a",
            "/apis/apps/v1/namespaces/default/deployments/a/scale", "/api/v1/namespaces/x/finalize",
            "/apis/example.com/v1/namespaces/default/foos", "/openapi/v3/api/v1", "/api/v1/pods",
            "/api/v1/namespaces/default/pods/a/binding", "/api/v1/namespaces/default/pods/a/eviction",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/%zz/%", "//", "/apis//v1/x",
        ]),
        query in "[a-zA-Z0-9=&%+!(),.-]{0,40}",
        known in prop::sample::select(vec![
            "", "labelSelector=", "fieldSelector=", "continue=", "limit=", "watch=true&timeoutSeconds=1&resourceVersion=",
            "dryRun=", "resourceVersion=", "fieldManager=", "gracePeriodSeconds=",
        ]),
        kind in prop::sample::select(vec![
            "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
            "application/merge-patch+json", "application/json-patch+json",
            "application/strategic-merge-patch+json", "application/apply-patch+yaml", "x/y",
        ]),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            any_json().prop_map(|value| value.to_string().into_bytes()),
            Just(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff".to_vec()),
        ],
    ) {
        runtime().block_on(async {
            let server = server();
            let http = http(&server);
            http.post(DEFINITIONS, &foo_definition()).await;
            http.post(CONFIG_MAPS, &config_map("a")).await;
            let path = format!("{path}?{known}{query}");
            let Ok(uri) = path.parse::<http::Uri>() else { return };
            let before = server.resource_version();
            let request = http::Request::builder()
                .method(method)
                .uri(uri)
                .header("content-type", kind)
                .body(http_body_util::Full::new(Bytes::from(body)))
                .unwrap();
            let response = http.send(request).await;
            let code = response.status().as_u16();
            assert!(code != 500 || server.resource_version() == before, "{path}");
            let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
            assert!(!String::from_utf8_lossy(&bytes).contains("panicked"), "{path}");
            if code >= 400 {
                assert_eq!(server.resource_version(), before, "a rejected request wrote something: {path}");
            }
            // Everything stored can be read.
            let (code, list) = http.get(CONFIG_MAPS).await;
            assert!(code == 200 && list["items"].is_array());
        });
    }
}

/// Generates JSON that resembles an object.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z.$/]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "metadata",
            "name",
            "labels",
            "finalizers",
            "spec",
            "data",
            "op",
            "path",
            "value",
            "kind",
            "apiVersion",
            "$patch",
            "ownerReferences",
            "generateName",
            "status",
            "replicas",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}
