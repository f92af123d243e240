use serde_json::Value;

use super::*;

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn read(response: Response<Body>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

#[tokio::test]
async fn pages_hold_every_pod_once_and_the_marker_after_an_expiry() {
    let server = Arc::new(Server::new(25));
    let all = read(server.list(0, 0)).await;
    assert_eq!(all["items"].as_array().unwrap().len(), 25);
    assert!(all["metadata"]["continue"].is_null());

    server.progress.send_modify(|now| now.expired += 1);
    let (mut names, mut from) = (Vec::new(), 0);
    loop {
        let page = read(server.list(10, from)).await;
        for item in page["items"].as_array().unwrap() {
            names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) => from = next.parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(names.len(), 26);
    assert_eq!(names.last().map(String::as_str), Some(MARKER));
    names.dedup();
    assert_eq!(names.len(), 26);
}

#[tokio::test]
async fn watch_has_every_event_in_order_and_then_expires() {
    let server = Arc::new(Server::new(3));
    server.progress.send_modify(|now| now.events += 4);
    let mut body = server.watch(Some(LIST_VERSION + 1)).into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let events: Vec<Value> = frame
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let of = |event: &Value, field: &str| {
        event["object"]["metadata"][field]
            .as_str()
            .map(str::to_owned)
    };
    let versions: Vec<_> = events
        .iter()
        .map(|event| of(event, "resourceVersion").unwrap())
        .collect();
    assert_eq!(versions, ["20000002", "20000003", "20000004"]);
    let first = read(server.list(1, 0)).await;
    assert_eq!(
        of(&events[2], "name"),
        first["items"][0]["metadata"]["name"]
            .as_str()
            .map(str::to_owned)
    );

    server.progress.send_modify(|now| now.expired += 1);
    let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let last: Value = serde_json::from_slice(&last).unwrap();
    assert_eq!(last["object"]["code"], 410);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn streaming_list_is_rejected() {
    let refused = no_watch_list();
    assert_eq!(refused.status(), 422);
    assert_eq!(read(refused).await["reason"], "Invalid");
}
