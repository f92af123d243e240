//! Lists: selectors, paging, resource versions, collections.

use std::time::Duration;

use crate::support::*;
use pintle_apiserver::{ApiServer, Clock};
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap())
        .collect()
}

async fn filled(count: usize) -> (ApiServer, Http) {
    let server = server();
    let http = http(&server);
    for n in 0..count {
        http.post(
            CONFIG_MAPS,
            &labelled(&format!("c{n:02}"), "parity", ["even", "odd"][n % 2]),
        )
        .await;
    }
    (server, http)
}

/// Proves lists/selectors.
#[tokio::test]
async fn lists_are_sorted_and_filtered() {
    let (server, http) = filled(4).await;
    let (code, list) = http.get(CONFIG_MAPS).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ConfigMapList")));
    assert_eq!(
        list["metadata"]["resourceVersion"],
        server.resource_version()
    );
    assert_eq!(names(&list), ["c00", "c01", "c02", "c03"]);
    assert_eq!(
        list["items"][0].get("kind"),
        None,
        "items of built-in kinds have no type"
    );
    let (_, odd) = http
        .get(&format!("{CONFIG_MAPS}?labelSelector=parity%3Dodd"))
        .await;
    assert_eq!(names(&odd), ["c01", "c03"]);
    let (_, one) = http
        .get("/api/v1/configmaps?fieldSelector=metadata.name%3Dc02")
        .await;
    assert_eq!(names(&one), ["c02"]);
    let (_, none) = http.get("/api/v1/namespaces/kube-system/configmaps").await;
    assert_eq!(none["items"], json!([]));
}

/// Proves lists/selectors.
#[tokio::test]
async fn invalid_selectors_are_rejected() {
    let (_server, http) = filled(1).await;
    for bad in [
        "labelSelector=a%3Db%3Dc",
        "fieldSelector=spec.nope%3Dx",
        "fieldSelector=x",
        "limit=x",
    ] {
        let (code, status) = http.get(&format!("{CONFIG_MAPS}?{bad}")).await;
        assert_eq!(
            (code, &status["reason"]),
            (400, &json!("BadRequest")),
            "{bad}"
        );
    }
}

/// Proves lists/pages.
#[tokio::test]
async fn pages_show_one_state() {
    let (_server, http) = filled(5).await;
    let (_, first) = http.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["c00", "c01"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    http.delete(&format!("{CONFIG_MAPS}/c02")).await;
    http.post(CONFIG_MAPS, &config_map("c021")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = http
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&second), ["c02", "c03"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, last) = http
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&last), ["c04"]);
    assert_eq!(last["metadata"].get("continue"), None);
}

/// Proves lists/pages.
#[tokio::test]
async fn expired_page_can_continue_inconsistently() {
    let (server, http) = filled(4).await;
    let (_, first) = http.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    http.post(CONFIG_MAPS, &config_map("c021")).await;
    server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, status) = http
        .get(&format!("{CONFIG_MAPS}?limit=9&continue={token}"))
        .await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = http
        .get(&format!("{CONFIG_MAPS}?limit=9&continue={token}"))
        .await;
    assert_eq!(names(&rest), ["c02", "c021", "c03"]);
    let (code, _) = http
        .get(&format!("{CONFIG_MAPS}?continue={token}&resourceVersion=3"))
        .await;
    assert_eq!(code, 400);
    assert_eq!(
        http.get(&format!("{CONFIG_MAPS}?continue=nonsense"))
            .await
            .0,
        400
    );
}

/// Proves lists/resource-version.
#[tokio::test(start_paused = true)]
async fn resource_version_selects_the_state() {
    let (server, http) = filled(2).await;
    let (_, then) = http.get(CONFIG_MAPS).await;
    let version = then["metadata"]["resourceVersion"].as_str().unwrap();
    http.post(CONFIG_MAPS, &config_map("later")).await;
    let at = |query: String| {
        let path = format!("{CONFIG_MAPS}?{query}");
        let http = &http;
        async move { http.get(&path).await }
    };
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&at(exact.clone()).await.1).len(), 2);
    assert_eq!(
        names(&at(format!("resourceVersion={version}")).await.1).len(),
        3
    );
    let any = at("resourceVersion=0&limit=1".into()).await.1;
    assert_eq!(names(&any).len(), 3, "lists at version 0 are not paged");
    for bad in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Nope",
    ] {
        assert_eq!(at(bad.into()).await.0, 422, "{bad}");
    }
    let (code, status) = at("resourceVersion=9999".into()).await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(
        http.get(&format!("{CONFIG_MAPS}/c00?resourceVersion=9999"))
            .await
            .0,
        504
    );
    server.compact();
    let (code, status) = at(exact).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

/// Proves delete/answer.
#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let (_server, http) = filled(4).await;
    let (code, gone) = http
        .delete(&format!("{CONFIG_MAPS}?labelSelector=parity%3Dodd"))
        .await;
    assert_eq!((code, names(&gone)), (200, vec!["c01", "c03"]));
    assert_eq!(names(&http.get(CONFIG_MAPS).await.1), ["c00", "c02"]);
}

/// Proves apiserver/paths, errors/status-reasons.
#[tokio::test]
async fn all_namespaces_path_is_read_only() {
    let (_server, http) = filled(1).await;
    assert_eq!(names(&http.get("/api/v1/configmaps").await.1), ["c00"]);
    let (code, status) = http.delete("/api/v1/configmaps").await;
    assert_eq!((code, &status["reason"]), (405, &json!("MethodNotAllowed")));
    assert_eq!(
        http.post("/api/v1/configmaps", &config_map("x")).await.0,
        405
    );
}

/// Proves lists/pages, errors/status-reasons.
#[tokio::test]
async fn continue_token_does_not_leak_other_namespaces() {
    let (_server, http) = filled(3).await;
    let (_, first) = http.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    for other in ["kube-system", "a", "defaul", "default0"] {
        let path = format!("/api/v1/namespaces/{other}/configmaps?limit=1&continue={token}");
        let (code, list) = http.get(&path).await;
        assert_eq!((code, names(&list)), (200, vec![]), "{other}");
    }
    let (_, rest) = http.get(&format!("{CONFIG_MAPS}?continue={token}")).await;
    assert_eq!(names(&rest), ["c01", "c02"]);
}

/// Proves lists/pages.
#[tokio::test(start_paused = true)]
async fn pages_expire_five_minutes_after_a_write() {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder()
        .clock(Clock::starting_at(start))
        .seed(1)
        .build();
    let http = http(&server);
    for name in ["a", "b", "c"] {
        http.post(CONFIG_MAPS, &config_map(name)).await;
    }
    let (_, first) = http.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let page = format!("{CONFIG_MAPS}?limit=9&continue={token}");
    // Without writes, the state of the page is still current.
    tokio::time::sleep(Duration::from_mins(60)).await;
    assert_eq!(names(&http.get(&page).await.1), ["b", "c"]);
    http.post(CONFIG_MAPS, &config_map("b1")).await;
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(names(&http.get(&page).await.1), ["b", "c"]);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (code, status) = http.get(&page).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("The provided continue parameter is too old"));
    let exact = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={version}");
    assert_eq!(http.get(&exact).await.0, 410);
    // The error carries a token to continue from the current state.
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = http
        .get(&format!("{CONFIG_MAPS}?limit=9&continue={token}"))
        .await;
    assert_eq!(names(&rest), ["b", "b1", "c"]);
    // A watch needs the events, not the state.
    let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    assert_eq!(http.watch(&watch).await.take(1).await, ["ADDED b1"]);
}
