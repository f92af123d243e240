//! Watches: initial state, events, bookmarks and termination.

use std::time::Duration;

use crate::support::*;
use serde_json::json;

/// Proves watch/requests, watch/complete-and-ordered, watch/selectors.
#[tokio::test(start_paused = true)]
async fn watch_from_resource_version_sees_later_changes() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("before")).await;
    let (_, list) = http.get(CONFIG_MAPS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = http
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion={version}"
        ))
        .await;
    http.post(CONFIG_MAPS, &config_map("a")).await;
    http.merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"k": "2"}}))
        .await;
    http.delete(&format!("{CONFIG_MAPS}/before")).await;
    let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!(
        (&first["type"], &second["type"]),
        (&json!("ADDED"), &json!("MODIFIED"))
    );
    assert_eq!(first["object"]["kind"], "ConfigMap");
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(
        gone["object"]["data"],
        json!({"k": "v"}),
        "a deletion shows the last state"
    );
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        server.resource_version()
    );
}

/// Proves watch/complete-and-ordered.
#[tokio::test(start_paused = true)]
async fn watch_without_resource_version_starts_with_current_state() {
    let server = server();
    let http = http(&server);
    for name in ["b", "a"] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
    }
    for version in ["", "&resourceVersion=0"] {
        let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=1{version}")).await;
        assert_eq!(watch.take(2).await, ["ADDED a", "ADDED b"]);
    }
}

/// Proves watch/expired.
#[tokio::test(start_paused = true)]
async fn watch_from_compacted_resource_version_expires() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    server.compact();
    let mut watch = http
        .watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"))
        .await;
    assert_eq!(watch.code, 200);
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
}

/// Proves watch/selectors.
#[tokio::test(start_paused = true)]
async fn selector_watch_adds_and_deletes_as_objects_match() {
    let server = server();
    let http = http(&server);
    let mut watch = http
        .watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=app%3Dweb"))
        .await;
    http.post(CONFIG_MAPS, &labelled("a", "app", "db")).await;
    let path = format!("{CONFIG_MAPS}/a");
    http.merge(&path, &json!({"metadata": {"labels": {"app": "web"}}}))
        .await;
    http.merge(&path, &json!({"data": {"x": "1"}})).await;
    http.merge(&path, &json!({"metadata": {"labels": {"app": "db"}}}))
        .await;
    assert_eq!(watch.take(2).await, ["ADDED a", "MODIFIED a"]);
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(
        gone["object"]["metadata"]["labels"]["app"], "web",
        "a deletion shows the last matching state"
    );
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        server.resource_version()
    );
}

/// Proves watch/bookmarks, watch/requests.
#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_before_the_end() {
    let server = server();
    let http = http(&server);
    let start = tokio::time::Instant::now();
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=90&allowWatchBookmarks=true");
    let mut watch = http.watch(&path).await;
    http.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}}),
    )
    .await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_mins(1));
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        server.resource_version()
    );
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(start.elapsed(), Duration::from_secs(88));
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed(), Duration::from_secs(90));
}

/// Proves watch/bookmarks.
#[tokio::test(start_paused = true)]
async fn bookmarks_are_opt_in() {
    let server = server();
    let http = http(&server);
    let mut watch = http
        .watch(&format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=300"))
        .await;
    assert_eq!(watch.next().await, None);
}

/// Proves watch/bookmarks.
#[tokio::test(start_paused = true)]
async fn streaming_list_marks_its_end() {
    let server = server();
    let http = http(&server);
    for name in ["a", "b"] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
    }
    let query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true";
    let (code, status) = http.get(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let path = format!("{CONFIG_MAPS}?{query}&resourceVersionMatch=NotOlderThan");
    let mut watch = http.watch(&path).await;
    assert_eq!(watch.take(2).await, ["ADDED a", "ADDED b"]);
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(
        end["object"]["metadata"]["resourceVersion"],
        server.resource_version()
    );
    http.post(CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(watch.take(1).await, ["ADDED c"]);
    assert_eq!(
        http.get(&format!("{CONFIG_MAPS}?sendInitialEvents=true"))
            .await
            .0,
        422
    );
}

/// Proves watch/requests.
#[tokio::test(start_paused = true)]
async fn watch_from_future_resource_version_waits() {
    let server = server();
    let http = http(&server);
    let mut watch = http
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion=999&timeoutSeconds=5"
        ))
        .await;
    http.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(watch.next().await, None);
    let path = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=999"
    );
    let (code, event) = http.get(&path).await;
    assert_eq!((code, &event["type"]), (200, &json!("ERROR")));
    assert_eq!(event["object"]["code"], 504);
}

/// Proves watch/crd-deleted.
#[tokio::test(start_paused = true)]
async fn watches_end_when_their_crd_is_deleted() {
    let server = server();
    let http = http(&server);
    http.post(DEFINITIONS, &foo_definition()).await;
    http.post(FOOS, &foo("a")).await;
    let mut watch = http.watch(&format!("{FOOS}?watch=true")).await;
    assert_eq!(watch.take(1).await, ["ADDED a"]);
    http.delete(&format!("{DEFINITIONS}/foos.example.com"))
        .await;
    assert_eq!(watch.take(1).await, ["DELETED a"]);
    assert_eq!(watch.next().await, None);
}

/// Proves watch/expired.
#[tokio::test(start_paused = true)]
async fn watch_that_missed_nothing_survives_compaction() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let before = server.resource_version();
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={before}");
    let (mut idle, mut unread) = (http.watch(&path).await, http.watch(&path).await);
    http.post(
        "/api/v1/namespaces/default/secrets",
        &json!({"metadata": {"name": "s"}}),
    )
    .await;
    server.compact();
    let mut late = http.watch(&path).await;
    http.post(CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(idle.take(1).await, ["ADDED b"]);
    assert_eq!(late.next().await.unwrap()["object"]["code"], 410);
    server.compact();
    assert_eq!(unread.next().await.unwrap()["object"]["code"], 410);
    http.post(CONFIG_MAPS, &config_map("c")).await;
    assert_eq!(idle.take(1).await, ["ADDED c"]);
}

/// Proves watch/bookmarks, watch/requests.
#[tokio::test(start_paused = true)]
async fn busy_watch_still_gets_bookmarks_and_times_out() {
    let server = server();
    let http = http(&server);
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let start = tokio::time::Instant::now();
    let path = format!(
        "{CONFIG_MAPS}?watch=true&timeoutSeconds=180&allowWatchBookmarks=true&resourceVersion={}",
        server.resource_version()
    );
    let mut watch = http.watch(&path).await;
    let mut bookmarks = 0;
    loop {
        assert!(
            start.elapsed() < Duration::from_mins(4),
            "the watch did not time out"
        );
        let patch = json!({"data": {"n": format!("{:?}", start.elapsed())}});
        http.merge(&format!("{CONFIG_MAPS}/a"), &patch).await;
        match watch.next().await {
            Some(event) => bookmarks += usize::from(event["type"] == "BOOKMARK"),
            None => break,
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(bookmarks >= 2, "{bookmarks} bookmarks");
}
